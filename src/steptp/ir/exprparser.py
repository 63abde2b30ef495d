"""Expressions from tokens: precedence climbing, name lookup and dtypes in one pass.

A literal has no dtype of its own. It stays *pending* until an operand beside it, an index position, or the target of
the store gives it one; an operator whose operands are all pending is pending too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import NoReturn, TypeAlias, Union

from steptp.errors import LeirError
from steptp.ir.lexer import Tokens
from steptp.ir.nodes import Buffer, Cast, Const, Expr, Load, Op, Size, const
from steptp.ir.ops import OPS, OpForm, OpRule
from steptp.ir.printer import print_expr
from steptp.ir.types import DType, int_range

__all__ = ["ExprParser", "MAX_DEPTH", "suggest", "counted", "depth_of"]

MAX_DEPTH = 128
"""Deepest expression tree, in operators, calls and accesses."""

_RANK = {name: row.precedence for name, row in OPS.items() if row.form is OpForm.INFIX}
_RULE = {name: row.rule for name, row in OPS.items()}
_CALLS = {name: row for name, row in OPS.items() if row.form is OpForm.CALL}
DTYPES = {d.value: d for d in DType}
_ANY = frozenset(DType)
_FLOATS = frozenset(d for d in DType if d.is_float)
_INTS = frozenset(d for d in DType if d.is_int)
_BOOLS = frozenset({DType.BOOL})
_TAKES = {
    OpRule.NUMERIC: _FLOATS | _INTS, OpRule.FLOAT: _FLOATS, OpRule.INTEGER: _INTS, OpRule.COMPARE: _ANY,
    OpRule.LOGIC: _BOOLS, OpRule.TEST: _FLOATS, OpRule.SELECT: _ANY,
}  # fmt: skip
_GIVES_BOOL = frozenset({OpRule.COMPARE, OpRule.LOGIC, OpRule.TEST})
_BOOL_CONST = {"true": Const(True, DType.BOOL), "false": Const(False, DType.BOOL)}
_I64 = DType.I64
_CHAINS = frozenset({"<", "<="})
_COMPARISONS = frozenset(name for name, rule in _RULE.items() if rule is OpRule.COMPARE)
_CHAIN = "only < and <= chain, as in 0<=i<N; put other comparisons in parentheses"
_LAYOUT = {"newline": "the end of the line", "eof": "the end of the text", "indent": "an indented line", "dedent": "the end of the block"}


class _Literal:
    """A number whose dtype is still open."""

    __slots__ = ("end", "start", "text")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end = text, start, end


class _Pending:
    """An operator on literals whose dtype is still open."""

    __slots__ = ("args", "depth", "end", "name", "start")

    def __init__(self, name: str, args: tuple[_Node, ...], start: int, end: int) -> None:
        self.name, self.args, self.start, self.end = name, args, start, end
        self.depth: int = 1 + max((a.depth for a in args if isinstance(a, _Pending)), default=1)


_Open: TypeAlias = Union[_Literal, _Pending]
_Node: TypeAlias = Union[Expr, _Literal, _Pending]


def suggest(name: str, known: Iterable[str]) -> str:
    """A did-you-mean hint, or nothing."""
    close = get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""


def counted(number: int, noun: str) -> str:
    """``1 index``, ``2 indices``, ``3 arguments``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {'indices' if noun == 'index' else noun + 's'}"


def depth_of(expr: Expr) -> int:
    """Height of an expression tree (a leaf has 1), counted without recursion."""
    depth, level = 0, [expr]
    while level:
        depth += 1
        parts = (n.args if isinstance(n, Op) else n.indices if isinstance(n, Load) else (n.arg,) if isinstance(n, Cast) else () for n in level)
        level = [part for below in parts for part in below]
    return depth


@lru_cache(maxsize=4096)
def _literal(text: str, dtype: DType) -> Const:
    """Raises ``ValueError`` with the reason when ``dtype`` cannot hold the literal."""
    if dtype is DType.BOOL:
        raise ValueError("a number is not a bool")
    if dtype.is_int:
        if not text.lstrip("-").isdigit():
            raise ValueError(f"{text} is not a literal of {dtype}")
        low, high = int_range(dtype)
        if len(text) > 20 or not low <= int(text) <= high:
            raise ValueError(f"{text} does not fit {dtype}")
        return Const(int(text), dtype)
    made = const(float(text), dtype)
    if math.isinf(made.value) and not text.endswith("inf"):
        raise ValueError(f"{text} does not fit {dtype}")
    return made


class ExprParser:
    """Reads expressions at ``pos``. ``names`` are the loop variables and sizes in view, ``buffers`` the arrays."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.pos = 0
        self.depth = 0
        self.chain: tuple[Expr | None, list[Expr]] = (None, [])  # the chained comparison read last, and its parts
        self.names: dict[str, Expr] = {}
        self.buffers: dict[str, Buffer] = {}
        self.hidden: dict[str, str] = {}  # names that are known but not in view → where they are

    # errors

    def fail(self, code: str, message: str, start: int, end: int | None = None, hint: str = "") -> NoReturn:
        raise LeirError(code, message, place=self.tokens.place(start, end), hint=hint)

    def found(self) -> str:
        kind, text = self.kinds[self.pos], self.texts[self.pos]
        return _LAYOUT.get(kind, f"'{text}'")

    def expect(self, kind: str, after: str, hint: str = "") -> None:
        if self.kinds[self.pos] != kind:
            self.fail("syntax-expected", f"expected '{kind}' after {after}, found {self.found()}", self.pos, hint=hint)
        self.pos += 1

    # entry points

    def value(self, expected: DType | None) -> Expr:
        """One expression; its literals take ``expected`` where nothing nearer gives a dtype. The caller checks the dtype."""
        start = self.pos
        self.depth = 0
        node = self._expr(1)
        if not isinstance(node, Expr):
            if expected is None:
                self._no_dtype(start)
            node = self._resolve(node, expected)
        if self.pos - start > MAX_DEPTH and depth_of(node) > MAX_DEPTH:
            self._too_deep(start)
        return node

    def index(self, what: str) -> Expr:
        """One expression that must be an ``i64``."""
        start = self.pos
        node = self.value(_I64)
        if node.dtype is not _I64:
            self._not_i64(node, what, start)
        return node

    def _not_i64(self, node: Expr, what: str, start: int) -> NoReturn:
        hint = f"write i64({_short(node)})" if node.dtype.is_int else ""
        self.fail("type-index", f"{what} must be i64, but {_short(node)} is {node.dtype}", start, self.pos, hint)

    def _too_deep(self, start: int) -> NoReturn:
        self.fail("syntax-depth", f"the expression nests deeper than {MAX_DEPTH} levels", start, hint="split it with a temporary or a loop")

    def _no_dtype(self, start: int) -> NoReturn:
        self.fail("type-literal", "nothing here gives the literal a dtype", start, self.pos, "write it as a cast of a literal, e.g. f32(1)")

    # grammar

    def _expr(self, least: int) -> _Node:
        self.depth += 1
        if self.depth > 2 * MAX_DEPTH:
            self._too_deep(self.pos)
        kinds, start = self.kinds, self.pos
        left = self._unary(least)
        sign = ""  # of the comparison that 'left' ends with
        while True:
            name = kinds[self.pos]
            rank = _RANK.get(name)
            if rank is None or rank < least:
                self.depth -= 1
                return left
            if sign and name in _COMPARISONS and not (name in _CHAINS and sign in _CHAINS):
                self.fail("syntax-chain", f"a comparison with {sign} stands before {name}", self.pos, hint=_CHAIN)
            self.pos += 1
            right = self._expr(rank + 1)
            if name in _COMPARISONS:
                left = self._continue(left, name, right, start) if sign else self._combine(name, (left, right), start)
                sign = name
            elif name == "and" and right is self.chain[0] and isinstance(left, Expr):  # its parts join the row of conditions
                for part in self.chain[1]:
                    left = self._combine(name, (left, part), start)
            else:
                left, sign = self._combine(name, (left, right), start), ""

    def _continue(self, left: _Node, name: str, right: _Node, start: int) -> _Node:
        """A further comparison: ``a<b<c`` is ``a<b and b<c``."""
        assert isinstance(left, Op)
        parts = self.chain[1] if left is self.chain[0] else [left]
        last = parts[-1]
        assert isinstance(last, Op)
        part = self._combine(name, (last.args[1], right), start)
        chained = self._combine("and", (left, part), start)
        assert isinstance(part, Expr)
        assert isinstance(chained, Expr)
        self.chain = (chained, [*parts, part])
        return chained

    def _unary(self, least: int) -> _Node:
        start = self.pos
        kind = self.kinds[start]
        if kind == "name":
            return self._name(start)
        if kind == "num":
            self.pos += 1
            return _Literal(self.texts[start], start, self.pos)
        if kind == "-":
            after = self.kinds[start + 1]
            if after == "num" or after == "inf" or after == "nan":
                self.pos += 2
                return _Literal("-" + self.texts[start + 1], start, self.pos)
            self.pos += 1
            self.depth += 1
            if self.depth > 2 * MAX_DEPTH:
                self._too_deep(start)
            arg = self._unary(7)
            self.depth -= 1
            return self._combine("neg", (arg,), start)
        if kind == "not":
            if least > 3:
                self.fail("syntax-expected", "'not' binds more loosely than the operator before it", start, hint="put it in parentheses: (not x)")
            self.pos += 1
            return self._combine("not", (self._expr(3),), start)
        if kind == "(":
            self.pos += 1
            inner = self._expr(1)
            self.chain = (None, [])
            self.expect(")", "the expression in parentheses")
            return inner
        if kind in _BOOL_CONST:
            self.pos += 1
            return _BOOL_CONST[kind]
        if kind == "inf" or kind == "nan":
            self.pos += 1
            return _Literal(kind, start, self.pos)
        self.fail("syntax-expected", f"expected an expression, found {self.found()}", start)

    def _name(self, start: int) -> _Node:
        text = self.texts[start]
        after = self.kinds[start + 1]
        if after == "[":
            return self._access(text, start)
        if after == "(":
            return self._call(text, start)
        node = self.names.get(text)
        if node is None:
            self._unknown_name(text, start)
        self.pos += 1
        return node

    def _unknown_name(self, text: str, start: int) -> NoReturn:
        if (buffer := self.buffers.get(text)) is not None:
            shown = ",".join("?" * len(buffer.shape))
            self.fail("check-rank", f"{text} is an array: it needs {counted(len(buffer.shape), 'index')}", start, hint=f"write {text}[{shown}]")
        if text in DTYPES or text in _CALLS:
            self.fail("syntax-expected", f"{text} needs an argument in parentheses", start)
        if text in self.hidden:
            self.fail("check-name", f"{text} is not in view here: {self.hidden[text]}", start)
        self.fail("check-name", f"no loop variable or size named {text} is in view here", start, hint=suggest(text, [*self.names, *self.buffers]))

    def target(self, text: str, start: int) -> tuple[Buffer, tuple[Expr, ...]]:
        """A buffer and its indices, at ``NAME [``."""
        buffer = self.buffers.get(text)
        if buffer is None:
            if text in self.names:
                self.fail("check-name", f"{text} is a {'size' if isinstance(self.names[text], Size) else 'loop variable'}, not an array", start)
            if text in self.hidden:
                self.fail("check-name", f"{text} is not in view here: {self.hidden[text]}", start)
            self.fail("check-name", f"no array named {text} is in view here", start, hint=suggest(text, self.buffers))
        self.pos = start + 2
        indices: list[Expr] = []
        kinds = self.kinds
        if kinds[self.pos] != "]":
            while True:
                first = self.pos
                node = self._expr(1)
                if not isinstance(node, Expr):
                    node = self._resolve(node, _I64)
                elif node.dtype is not _I64:
                    self._not_i64(node, f"an index of {text}", first)
                indices.append(node)
                if kinds[self.pos] != ",":
                    break
                self.pos += 1
        self.expect("]", f"the indices of {text}")
        if self.pos - start > MAX_DEPTH and any(depth_of(i) > MAX_DEPTH for i in indices):
            self._too_deep(start)
        if len(indices) != len(buffer.shape):
            self.fail("check-rank", f"{text} has {counted(len(buffer.shape), 'dimension')}, but is given {counted(len(indices), 'index')}", start, self.pos)
        return buffer, tuple(indices)

    def _access(self, text: str, start: int) -> Expr:
        buffer, indices = self.target(text, start)
        return Load(text, indices, buffer.dtype)

    def _call(self, text: str, start: int) -> _Node:
        row, dtype = _CALLS.get(text), DTYPES.get(text)
        if row is None and dtype is None:
            hint = f"{text} is an array: index it with [ ]" if text in self.buffers else suggest(text, [*_CALLS, *DTYPES])
            self.fail("syntax-function", f"no function named {text}", start, hint=hint)
        self.pos = start + 2
        args: list[_Node] = []
        while True:
            args.append(self._expr(1))
            if self.kinds[self.pos] != ",":
                break
            self.pos += 1
        self.expect(")", f"the arguments of {text}")
        arity = row.arity if row is not None else 1
        if len(args) != arity:
            self.fail("type-operand", f"{text} takes {counted(arity, 'argument')}, got {len(args)}", start, self.pos)
        if row is not None:
            return self._combine(text, tuple(args), start)
        assert dtype is not None
        return Cast(dtype, args[0]) if isinstance(args[0], Expr) else self._resolve(args[0], dtype)

    # dtypes

    def _combine(self, name: str, args: tuple[_Node, ...], start: int) -> _Node:
        rule = _RULE[name]
        main: DType | None = None
        is_open = False
        first: Expr | None = None
        for arg in args[1:] if rule is OpRule.SELECT else args:
            if not isinstance(arg, Expr):
                is_open = True
            elif main is None:
                main, first = arg.dtype, arg
            elif arg.dtype is not main:
                assert first is not None
                self._mismatch(name, first, arg, start)
        if rule is OpRule.SELECT:
            cond = args[0]
            if not isinstance(cond, Expr) or cond.dtype is not DType.BOOL:
                shown = f"{_short(cond)} is {cond.dtype}" if isinstance(cond, Expr) else "it is a number"
                self.fail("type-operand", f"the condition of select must be bool, but {shown}", start, self.pos)
        if main is None:
            if rule in _GIVES_BOOL:
                self._no_dtype(start)
            made = _Pending(name, args, start, self.pos)
            if made.depth > MAX_DEPTH:
                self._too_deep(start)
            return made
        if main not in _TAKES[rule]:
            self._refuse(name, main, start, self.pos)
        if is_open and rule is OpRule.COMPARE and main is DType.BOOL:
            self.fail("type-operand", f"{name} needs equal dtypes, but one side is bool and the other a number", start, self.pos, _CHAIN)
        nodes = tuple(a if isinstance(a, Expr) else self._resolve(a, main) for a in args) if is_open else args
        return Op(name, nodes, DType.BOOL if rule in _GIVES_BOOL else main)  # type: ignore[arg-type]

    def _mismatch(self, name: str, left: Expr, right: Expr, start: int) -> NoReturn:
        hint = f"cast one side, e.g. {left.dtype}({_short(right)})"
        if left.dtype is DType.BOOL and name in ("<", "<=", ">", ">=", "==", "!="):
            hint = _CHAIN
        self.fail("type-operand", f"{name} needs equal dtypes, but {_short(left)} is {left.dtype} and {_short(right)} is {right.dtype}", start, self.pos, hint)

    def _refuse(self, name: str, dtype: DType, start: int, end: int) -> NoReturn:
        hint = "use // for integers, or cast to a float" if name == "/" and dtype.is_int else ""
        if dtype is DType.BOOL and name in ("+", "*", "max", "min"):
            hint = "use 'and' or 'or' for bools"
        self.fail("type-operand", f"{name} does not take {dtype}", start, end, hint)

    def _resolve(self, node: _Open, dtype: DType) -> Expr:
        if isinstance(node, _Literal):
            try:
                return _literal(node.text, dtype)
            except ValueError as err:
                hint = "write true or false" if dtype is DType.BOOL else "write inf for infinity" if dtype.is_float else ""
                if dtype.is_int and not node.text.lstrip("-").isdigit():
                    hint = "integer literals have digits only"
                self.fail("type-literal", str(err), node.start, node.end, hint)
        if dtype not in _TAKES[_RULE[node.name]]:
            self._refuse(node.name, dtype, node.start, node.end)
        args = tuple(a if isinstance(a, Expr) else self._resolve(a, dtype) for a in node.args)
        return Op(node.name, args, dtype)


def _short(expr: Expr, show: Callable[[Expr], str] = print_expr) -> str:
    text = show(expr)
    return text if len(text) <= 40 else text[:37] + "..."
