"""Sizes: evaluating size expressions and re-binding a program to other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from steptp.errors import LeirError
from steptp.ir.nodes import Const, Expr, Op, Program, Size, SizeDecl, Var

__all__ = ["eval_index", "eval_size", "shape_of", "rebind", "free_size_names", "constraint_holds", "INDEX_OPS"]

INDEX_OPS = frozenset({"+", "-", "*", "//", "%", "neg", "max", "min", "abs"})


def eval_index(expr: Expr, env: Mapping[str, int]) -> int:
    """The value of an integer expression over sizes and loop variables named in ``env``.

    Comparisons and logic give 0 or 1. Raises :class:`LeirError` ``check-index`` for anything else.
    """
    if isinstance(expr, Const) and not expr.type.is_float:
        return int(expr.value)
    if isinstance(expr, (Size, Var)):
        if expr.name not in env:
            raise LeirError("check-index", f"{expr.name} has no value here")
        return env[expr.name]
    if isinstance(expr, Op):
        name, args = expr.name, expr.args
        if name == "and":
            return int(bool(eval_index(args[0], env)) and bool(eval_index(args[1], env)))
        if name == "or":
            return int(bool(eval_index(args[0], env)) or bool(eval_index(args[1], env)))
        if name == "select":
            return eval_index(args[1] if eval_index(args[0], env) else args[2], env)
        values = [eval_index(a, env) for a in args]
        if name in ("//", "%") and values[1] == 0:
            raise LeirError("check-index", "division by zero in a size or index")
        if (handler := _HANDLERS.get(name)) is not None:
            return handler(*values)
    raise LeirError("check-index", "not an integer expression over sizes and loop variables")


_HANDLERS: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "neg": lambda a: -a, "max": max, "min": min, "abs": abs, "not": lambda a: int(not a),
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b), "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
}  # fmt: skip


def eval_size(expr: Expr, program: Program) -> int:
    """The present value of a size expression."""
    return eval_index(expr, program.size_env)


def shape_of(shape: tuple[Expr, ...], program: Program) -> tuple[int, ...]:
    """The present shape, in elements."""
    env = program.size_env
    return tuple(eval_index(s, env) for s in shape)


def free_size_names(program: Program) -> tuple[str, ...]:
    """Sizes that a re-binding may set: those not derived from others."""
    return tuple(s.name for s in program.sizes if s.expr is None)


def constraint_holds(program: Program, env: Mapping[str, int]) -> bool:
    """Whether every constraint of the program holds under ``env``."""
    try:
        return all(eval_index(c, env) for c in program.constraints)
    except LeirError:
        return False


def rebind(program: Program, values: Mapping[str, int]) -> Program:
    """The same program at other sizes; derived sizes are computed again.

    Raises :class:`LeirError`: ``size-unknown`` for a name that is not a free size, ``size-negative`` for a value
    below 0 (derived ones included), ``size-constraint`` when a constraint would not hold.
    """
    free = set(free_size_names(program))
    if unknown := sorted(set(values) - free):
        raise LeirError("size-unknown", f"no free size named {', '.join(unknown)}", hint=f"free sizes: {', '.join(sorted(free)) or 'none'}")
    env: dict[str, int] = {}
    decls: list[SizeDecl] = []
    for decl in program.sizes:
        value = eval_index(decl.expr, env) if decl.expr is not None else int(values.get(decl.name, decl.value))
        if value < 0:
            raise LeirError("size-negative", f"size {decl.name} would be {value}")
        env[decl.name] = value
        decls.append(replace(decl, value=value))
    if not constraint_holds(program, env):
        shown = ", ".join(f"{k}={v}" for k, v in env.items())
        raise LeirError("size-constraint", f"a size constraint of the program does not hold for {shown}")
    return program.with_(sizes=tuple(decls))
