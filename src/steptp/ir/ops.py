"""The table of scalar operators: one row per operator says how it prints, types and behaves.

A row is the single source for the parser, the printer, the type rules and the docs; evaluators and
back ends each add one handler per name and a test checks that none is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["OpForm", "OpRule", "OpSpec", "OPS", "REDUCERS", "Reducer"]


class OpForm(str, Enum):
    """Concrete syntax of an operator."""

    INFIX = "infix"
    PREFIX = "prefix"
    CALL = "call"


class OpRule(str, Enum):
    """Type rule: what the operands must be and what comes out."""

    NUMERIC = "numeric"  # all operands one int or float dtype; the result has it
    FLOAT = "float"  # all operands one float dtype; the result has it
    INTEGER = "integer"  # all operands one int dtype; the result has it
    COMPARE = "compare"  # two operands of one dtype; bool
    LOGIC = "logic"  # bool operands; bool
    TEST = "test"  # one float operand; bool
    SELECT = "select"  # bool, then two operands of one dtype; that dtype


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operator. ``precedence`` orders infix forms (higher binds tighter; calls have 9)."""

    name: str
    arity: int
    form: OpForm
    rule: OpRule
    precedence: int = 9
    doc: str = ""


def _rows() -> list[OpSpec]:
    infix, prefix, call = OpForm.INFIX, OpForm.PREFIX, OpForm.CALL
    return [
        OpSpec("or", 2, infix, OpRule.LOGIC, 1, "either; evaluates the right side only if the left is false"),
        OpSpec("and", 2, infix, OpRule.LOGIC, 2, "both; evaluates the right side only if the left is true"),
        OpSpec("not", 1, prefix, OpRule.LOGIC, 3, "negation of a bool"),
        OpSpec("<", 2, infix, OpRule.COMPARE, 4),
        OpSpec("<=", 2, infix, OpRule.COMPARE, 4),
        OpSpec(">", 2, infix, OpRule.COMPARE, 4),
        OpSpec(">=", 2, infix, OpRule.COMPARE, 4),
        OpSpec("==", 2, infix, OpRule.COMPARE, 4),
        OpSpec("!=", 2, infix, OpRule.COMPARE, 4),
        OpSpec("+", 2, infix, OpRule.NUMERIC, 5),
        OpSpec("-", 2, infix, OpRule.NUMERIC, 5),
        OpSpec("*", 2, infix, OpRule.NUMERIC, 6),
        OpSpec("/", 2, infix, OpRule.FLOAT, 6, "IEEE division"),
        OpSpec("//", 2, infix, OpRule.INTEGER, 6, "floor division; the divisor must not be 0"),
        OpSpec("%", 2, infix, OpRule.INTEGER, 6, "floor remainder (sign of the divisor)"),
        OpSpec("neg", 1, prefix, OpRule.NUMERIC, 7, "written -x"),
        OpSpec("max", 2, call, OpRule.NUMERIC, doc="NaN if either operand is NaN"),
        OpSpec("min", 2, call, OpRule.NUMERIC, doc="NaN if either operand is NaN"),
        OpSpec("abs", 1, call, OpRule.NUMERIC),
        OpSpec("exp", 1, call, OpRule.FLOAT),
        OpSpec("expm1", 1, call, OpRule.FLOAT, doc="exp(x)-1 without cancellation near 0"),
        OpSpec("log", 1, call, OpRule.FLOAT, doc="natural logarithm; NaN below 0, -inf at 0"),
        OpSpec("log1p", 1, call, OpRule.FLOAT, doc="log(1+x) without cancellation near 0"),
        OpSpec("sqrt", 1, call, OpRule.FLOAT),
        OpSpec("rsqrt", 1, call, OpRule.FLOAT, doc="1/sqrt(x)"),
        OpSpec("tanh", 1, call, OpRule.FLOAT),
        OpSpec("sigmoid", 1, call, OpRule.FLOAT, doc="1/(1+exp(-x))"),
        OpSpec("erf", 1, call, OpRule.FLOAT),
        OpSpec("sin", 1, call, OpRule.FLOAT),
        OpSpec("cos", 1, call, OpRule.FLOAT),
        OpSpec("floor", 1, call, OpRule.FLOAT),
        OpSpec("ceil", 1, call, OpRule.FLOAT),
        OpSpec("round", 1, call, OpRule.FLOAT, doc="to nearest integer, ties to even"),
        OpSpec("pow", 2, call, OpRule.FLOAT, doc="IEEE pow"),
        OpSpec("isnan", 1, call, OpRule.TEST),
        OpSpec("select", 3, call, OpRule.SELECT, doc="evaluates only the chosen side"),
    ]


OPS: dict[str, OpSpec] = {row.name: row for row in _rows()}


@dataclass(frozen=True, slots=True)
class Reducer:
    """An associative and commutative combiner of an accumulation ``X[i] op= e``.

    ``op`` names the binary operator; ``identity`` is its neutral element (``inf`` and ``-inf`` become the
    smallest or largest value for integer dtypes).
    """

    token: str
    op: str
    identity: float | int | bool


REDUCERS: dict[str, Reducer] = {
    "+": Reducer("+=", "+", 0),
    "*": Reducer("*=", "*", 1),
    "max": Reducer("max=", "max", float("-inf")),
    "min": Reducer("min=", "min", float("inf")),
    "or": Reducer("or=", "or", False),
    "and": Reducer("and=", "and", True),
}
