"""A second reading of the published notation: the tree run as it stands, statement by statement, over dictionaries in f64."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from steptp.ir.published.reader import read_tree
from steptp.ir.published.tree import Access, Binary, Call, Name, Number, Term, Unary

__all__ = ["run_text"]

_OPS: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&": lambda a, b: a and b,
}  # fmt: skip
_CALLS: dict[str, Any] = {"exp": math.exp, "log": math.log, "sqrt": math.sqrt, "erf": math.erf, "abs": abs, "max": max, "min": min, "tanh": math.tanh}


def run_text(text: str, inputs: Mapping[str, np.ndarray], starts: Mapping[str, float]) -> dict[str, dict[tuple[int, ...], float]]:
    """Every tensor's elements after the run. ``starts`` says what elements of a tensor are before anything is written to them."""
    memory: dict[str, dict[tuple[int, ...], Any]] = {n: {i: v.item() for i, v in np.ndenumerate(a)} for n, a in inputs.items()}

    def get(access: Access, env: dict[str, int]) -> Any:
        index = tuple(int(value(i, env)) for i in access.indices)
        cells = memory.setdefault(access.name, {})
        return cells[index] if index in cells else starts[access.name]

    def value(term: Term, env: dict[str, int]) -> Any:
        if isinstance(term, Number):
            return term.value
        if isinstance(term, Name):
            return env[term.name]
        if isinstance(term, Access):
            return get(term, env)
        if isinstance(term, Unary):
            return -value(term.arg, env)
        if isinstance(term, Call):
            if term.name == "if_then_else":
                return value(term.args[1] if value(term.args[0], env) else term.args[2], env)
            return _CALLS[term.name](*(value(a, env) for a in term.args))
        assert isinstance(term, Binary)
        if term.op == "/":
            return value(term.left, env) / value(term.right, env)
        return _OPS[term.op](value(term.left, env), value(term.right, env))

    for nest in read_tree(text).nests:
        for point in itertools.product(*(range(h.extent) for h in nest.loops)):
            env = dict(zip((h.var for h in nest.loops), point, strict=True))
            for st in nest.statements:
                index = tuple(int(value(i, env)) for i in st.target.indices)
                memory.setdefault(st.target.name, {})[index] = value(st.value, env)
    return memory
