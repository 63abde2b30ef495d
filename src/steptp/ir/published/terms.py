"""Terms of the notation → LEIR expressions: which dtype every operator works in, and where values are converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NoReturn

from steptp.errors import LeirError
from steptp.ir.nodes import Const, Expr, Load, Var, call, cast, const, op, select
from steptp.ir.published.tree import Access, Binary, Call, Name, Number, Span, Term, Text, Unary, children, walk
from steptp.ir.types import DType, round_literal

__all__ = ["Terms", "join_dtypes"]

_LOGIC = frozenset({"&"})
_COMPARE = frozenset({"<", "<=", ">", ">=", "==", "!="})
_FLOAT_CALLS = frozenset({"exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sin", "cos", "floor", "ceil", "pow"})
_WIDTH = {DType.F16: 1, DType.BF16: 1, DType.F32: 2, DType.F64: 3, DType.I8: 1, DType.I32: 2, DType.I64: 3}


def join_dtypes(a: DType | None, b: DType | None) -> DType | None:
    """The dtype in which two operands meet; ``None`` for literals, which fit either. Bools meet only bools."""
    if a is None or b is None or a is b:
        return b if a is None else a
    if DType.BOOL in (a, b):
        return DType.BOOL
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if _WIDTH[a] == _WIDTH[b]:
        return DType.F32
    return a if _WIDTH[a] > _WIDTH[b] else b


@dataclass
class Terms:
    """Converts the terms of one text. ``arrays`` gives every tensor's dtype and new name, ``vars`` the loop variables' new names."""

    text: Text
    dtypes: Mapping[str, DType]
    names: Mapping[str, str]
    notes: Callable[[str, str, Span], None]
    vars: Mapping[str, str] = field(default_factory=dict)
    _types: dict[int, DType | None] = field(default_factory=dict)
    _keep: list[Term] = field(default_factory=list)  # ids stay theirs while the memo lives

    def value(self, term: Term, target: DType) -> Expr:
        """``term`` as a value of ``target``, rounded to it where it is wider."""
        own = self.type_of(term)
        if own is None:
            own = target if target.is_float or self._whole(term) else DType.F64
            own = own if self._holds(term, own) else DType.F64
        if own is DType.BOOL and target is not DType.BOOL:
            self._fail("a condition is stored as a number", term, "write if_then_else(condition,1,0)")
        if own is not target:
            self.notes("dtype-mixed", f"a value computed in {own} is stored as {target}", term.span)
        return cast(target, self.emit(term, own))

    def index(self, term: Term) -> Expr:
        """``term`` as an index: ``i64``, with tables converted."""
        for part in walk(term):
            bad = (isinstance(part, Binary) and part.op in ("/", "**")) or (isinstance(part, Number) and not isinstance(part.value, int))
            if bad:
                raise self.text.error("published-index", "an index holds whole numbers only", part.span, "write // for whole division")
        own = self.type_of(term)
        if own is not None and not own.is_int:
            raise self.text.error("published-index", f"an index is a whole number, but this is {own}", term.span)
        return self.emit(term, DType.I64)

    # dtypes

    def type_of(self, term: Term) -> DType | None:
        """The dtype in which ``term`` is computed; ``None`` for a term of literals only."""
        if id(term) not in self._types:
            self._types[id(term)] = self._infer(term)
            self._keep.append(term)
        return self._types[id(term)]

    def _infer(self, term: Term) -> DType | None:
        if isinstance(term, Number):
            return None
        if isinstance(term, Name):
            return DType.I64
        if isinstance(term, Access):
            return DType(term.dtype)
        if isinstance(term, Unary):
            return self.type_of(term.arg)
        if isinstance(term, Binary) and (term.op in _COMPARE or term.op in _LOGIC):
            return DType.BOOL
        parts = children(term)[1:] if isinstance(term, Call) and term.name == "if_then_else" else children(term)
        joined = self.joined(*parts)
        floats = (isinstance(term, Binary) and term.op in ("/", "**")) or (isinstance(term, Call) and term.name in _FLOAT_CALLS)
        return DType.F64 if floats and joined is not None and joined.is_int else joined

    def joined(self, *terms: Term) -> DType | None:
        """The dtype in which the terms meet, wide enough for the literals among them."""
        out: DType | None = None
        for term in terms:
            out = join_dtypes(out, self.type_of(term))
        if out is None or out is DType.BOOL:
            return out
        if all(self._holds(term, out) for term in terms if self.type_of(term) is None):
            return out
        return DType.F64

    def _holds(self, term: Term, dtype: DType) -> bool:
        """Whether every literal of a term of literals is exact in ``dtype``."""
        if isinstance(term, Number):
            value = term.value
            if dtype.is_int:
                return isinstance(value, int)
            if value != value or value in (float("inf"), float("-inf")):
                return True
            return bool(Fraction(value) == _exact(round_literal(value, dtype)))
        if isinstance(term, Binary) and term.op == "/" and dtype.is_int:
            return False
        return all(self._holds(inner, dtype) for inner in children(term))

    def _whole(self, term: Term) -> bool:
        return self._holds(term, DType.I64)

    # expressions

    def emit(self, term: Term, want: DType) -> Expr:
        """``term`` as an expression of dtype ``want``."""
        own = self.type_of(term)
        made = self._made(term, want if own is None else own)
        if made.dtype is want:
            return made
        if DType.BOOL in (made.dtype, want):
            self._fail(f"a {'condition' if made.dtype is DType.BOOL else 'number'} stands where a {want} is wanted", term)
        if own is not None and not isinstance(made, Const):
            self.notes("dtype-mixed", f"{made.dtype} meets {want} here", term.span)
        return cast(want, made)

    def _made(self, term: Term, dtype: DType) -> Expr:
        if isinstance(term, Number):
            return self._number(term, dtype)
        if isinstance(term, Name):
            return Var(self.vars[term.name])
        if isinstance(term, Access):
            held = self.dtypes[term.name]
            return cast(DType(term.dtype), Load(self.names[term.name], tuple(self.index(i) for i in term.indices), held))
        if isinstance(term, Unary):
            return op("neg", self.emit(term.arg, dtype))
        return self._call(term, dtype) if isinstance(term, Call) else self._binary(term, dtype)

    def _number(self, term: Number, dtype: DType) -> Expr:
        if not dtype.is_float and not isinstance(term.value, int):
            self._fail(f"{term.value} is no {dtype}", term)
        try:
            return const(term.value, dtype)
        except LeirError as err:
            self._fail(err.message, term)

    def _binary(self, term: Binary, dtype: DType) -> Expr:
        left, right = term.left, term.right
        if term.op in _LOGIC:
            self.notes("condition", "two conditions are joined by '&'", term.span)
            return op("and", self.emit(left, DType.BOOL), self.emit(right, DType.BOOL))
        if term.op in _COMPARE:
            at = self.joined(left, right) or (DType.I64 if self._whole(left) and self._whole(right) else DType.F64)
            return op(term.op, self.emit(left, at), self.emit(right, at))
        if term.op == "/":
            return self._quotient(term, dtype)
        if term.op == "**":
            return op("pow", self.emit(left, dtype), self.emit(right, dtype))
        if term.op in ("//", "%") and not dtype.is_int:
            self._fail(f"{term.op} takes whole numbers, but this is {dtype}", term)
        if (dtype is DType.F64 or not self._plain(dtype, left, right)) and (self.type_of(left) is None) != (self.type_of(right) is None):
            number = left if self.type_of(left) is None else right
            other = self.type_of(right if number is left else left)
            if other is not dtype and other is not None and other.is_float:
                self.notes("dtype-literal", f"this literal is not exact in {other}", number.span)
        return op(term.op, self.emit(left, dtype), self.emit(right, dtype))

    def _plain(self, dtype: DType, *terms: Term) -> bool:
        return all(self.type_of(t) in (None, dtype) for t in terms)

    def _quotient(self, term: Binary, dtype: DType) -> Expr:
        left, right = term.left, term.right
        at = dtype if dtype.is_float else DType.F64
        if isinstance(left, Number) and isinstance(right, Number) and isinstance(left.value, int) and isinstance(right.value, int) and right.value:
            self.notes("division", f"{left.value}/{right.value} is a real number", term.span)
            exact = Fraction(left.value, right.value)
            rounded = round_literal(left.value / right.value, at)
            if _exact(rounded) == exact:
                return const(rounded, at)
        for number, other in ((left, right), (right, left)):
            partner = self.type_of(other)
            if self.type_of(number) is None and partner is not None and partner is not at and partner.is_float:
                self.notes("dtype-literal", f"this literal is not exact in {partner}", number.span)
        return op("/", self.emit(left, at), self.emit(right, at))

    def _call(self, term: Call, dtype: DType) -> Expr:
        if term.name == "if_then_else":
            cond, yes, no = term.args
            if self.type_of(cond) is not DType.BOOL:
                self._fail("the first argument of if_then_else is a condition", cond, "compare it with something")
            return select(self.emit(cond, DType.BOOL), self.emit(yes, dtype), self.emit(no, dtype))
        if term.name in ("max", "min"):
            out = self.emit(term.args[0], dtype)
            for arg in term.args[1:]:
                out = op(term.name, out, self.emit(arg, dtype))
            return out
        if dtype is DType.BOOL:
            self._fail(f"{term.name} takes numbers", term)
        return call(term.name, *(self.emit(arg, dtype) for arg in term.args))

    def _fail(self, message: str, term: Term, hint: str = "") -> NoReturn:
        error: LeirError = self.text.error("published-type", message, term.span, hint)
        raise error


def _exact(value: float | int | bool) -> Fraction | None:
    try:
        return Fraction(value)
    except (OverflowError, ValueError):
        return None
