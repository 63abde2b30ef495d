"""LEIR programs as frozen trees.

A rewrite never changes a node: it builds a new tree. A *path* is a tuple of child positions from the
program's body, so ``(0, 2)`` is the third statement in the body of the first one.

Index expressions and value expressions are one language: loop variables and sizes are ``i64`` values.
Arithmetic on nodes (``a + b``) builds nodes; a Python number takes the other operand's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias, Union

from steptp.errors import LeirError
from steptp.ir.ops import OPS, REDUCERS, OpRule
from steptp.ir.types import DType, LoopKind, Scope, int_range, round_literal

__all__ = [
    "Expr", "Const", "Var", "Size", "Load", "Op", "Cast",
    "Stmt", "Store", "If", "Loop", "Body", "Path",
    "Buffer", "SizeDecl", "Program",
    "const", "op", "cast", "select", "call", "identity_of", "Number",
]  # fmt: skip

Number: TypeAlias = Union[int, float, bool]
Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expr:
    """Base of expressions. Every node knows its ``dtype``."""

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    def __add__(self, other: Expr | Number) -> Expr:
        return op("+", self, other)

    def __radd__(self, other: Number) -> Expr:
        return op("+", other, self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return op("-", self, other)

    def __rsub__(self, other: Number) -> Expr:
        return op("-", other, self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return op("*", self, other)

    def __rmul__(self, other: Number) -> Expr:
        return op("*", other, self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return op("/", self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return op("/", other, self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return op("//", self, other)

    def __mod__(self, other: Expr | Number) -> Expr:
        return op("%", self, other)

    def __neg__(self) -> Expr:
        return op("neg", self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return op("<", self, other)

    def __le__(self, other: Expr | Number) -> Expr:
        return op("<=", self, other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return op(">", self, other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return op(">=", self, other)

    def eq(self, other: Expr | Number) -> Expr:
        """The comparison node ``self == other`` (``==`` itself compares nodes)."""
        return op("==", self, other)

    def ne(self, other: Expr | Number) -> Expr:
        return op("!=", self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A literal, already rounded to its dtype. Equality is by bit pattern: NaN equals NaN, -0.0 differs from 0.0."""

    value: Number
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    def _key(self) -> tuple[str, DType]:
        return (repr(self.value), self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A loop variable, an ``i64``."""

    name: str

    @property
    def dtype(self) -> DType:
        return DType.I64


@dataclass(frozen=True, slots=True)
class Size(Expr):
    """A named size, an ``i64``."""

    name: str

    @property
    def dtype(self) -> DType:
        return DType.I64


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """A read of one element ``buffer[indices]``; ``type`` repeats the buffer's dtype (the validity table checks it)."""

    buffer: str
    indices: tuple[Expr, ...]
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True, slots=True)
class Op(Expr):
    """An operator of :data:`steptp.ir.ops.OPS` on operands. Build it with :func:`op`, which checks types."""

    name: str
    args: tuple[Expr, ...]
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """Conversion to ``type``: float → int saturates with NaN → 0; float → float rounds to nearest even."""

    type: DType
    arg: Expr

    @property
    def dtype(self) -> DType:
        return self.type


def const(value: Number, dtype: DType) -> Const:
    """A literal of ``dtype``; raises :class:`LeirError` ``type-literal`` when the dtype cannot hold it."""
    try:
        return Const(round_literal(value, dtype), dtype)
    except ValueError as err:
        raise LeirError("type-literal", str(err)) from None


def op(name: str, *args: Expr | Number) -> Op:
    """Build an operator node and check its operand types (:class:`LeirError` ``type-operand`` when they do not fit)."""
    spec = OPS.get(name)
    if spec is None:
        raise LeirError("type-operand", f"unknown operator {name!r}")
    if len(args) != spec.arity:
        raise LeirError("type-operand", f"{name} takes {spec.arity} operand(s), got {len(args)}")
    if len(args) == 2:
        a, b = args
        if isinstance(a, Expr) and isinstance(b, Expr) and (shared := a.dtype) is b.dtype:
            return Op(name, (a, b), _result(name, spec.rule, shared, (a, b)))
    typed = [a.dtype for a in args[1 if spec.rule is OpRule.SELECT else 0 :] if isinstance(a, Expr)]
    if not typed:
        raise LeirError("type-operand", f"{name}: no operand has a dtype", hint="give a literal its dtype, e.g. f32(1)")
    main = typed[0]
    if any(t is not main for t in typed):
        shown = ", ".join(str(t) for t in typed)
        raise LeirError("type-operand", f"{name}: operands have different dtypes ({shown})", hint="cast one of them, e.g. f32(x)")
    nodes = tuple(a if isinstance(a, Expr) else const(a, DType.BOOL if i == 0 and spec.rule is OpRule.SELECT else main) for i, a in enumerate(args))
    return Op(name, nodes, _result(name, spec.rule, main, nodes))


def _result(name: str, rule: OpRule, main: DType, args: tuple[Expr, ...]) -> DType:
    if rule is OpRule.NUMERIC:
        ok = main is not DType.BOOL
    elif rule is OpRule.FLOAT or rule is OpRule.TEST:
        ok = main.is_float
    elif rule is OpRule.INTEGER:
        ok = main.is_int
    elif rule is OpRule.LOGIC:
        ok = main is DType.BOOL
    else:
        ok = rule is OpRule.COMPARE or args[0].dtype is DType.BOOL
    if not ok:
        hint = "use // for integers" if name == "/" else ""
        raise LeirError("type-operand", f"{name} does not take {main if rule is not OpRule.SELECT else args[0].dtype}", hint=hint)
    return DType.BOOL if rule in (OpRule.COMPARE, OpRule.LOGIC, OpRule.TEST) else main


def call(name: str, *args: Expr | Number) -> Op:
    """Alias of :func:`op` that reads well for functions: ``call("exp", x)``."""
    return op(name, *args)


def cast(dtype: DType, arg: Expr) -> Expr:
    """Convert to ``dtype``. A cast to the same dtype is the operand; a cast of a literal is a literal."""
    if arg.dtype is dtype:
        return arg
    if isinstance(arg, Const) and not (dtype.is_int and arg.dtype.is_float):
        return const(bool(arg.value) if dtype is DType.BOOL else arg.value, dtype)
    return Cast(dtype, arg)


def select(cond: Expr, yes: Expr | Number, no: Expr | Number) -> Op:
    """``yes`` where ``cond`` holds, else ``no``; only the chosen side is evaluated."""
    return op("select", cond, yes, no)


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[indices] = value`` or an accumulation.

    ``reduce`` is a key of :data:`REDUCERS` or ``None`` for plain assignment. An accumulation *resets*
    its target to the reducer's identity before the outermost enclosing loop (inside the target's
    declaration) that does not index the target; with ``carry`` it continues from the present value.
    """

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    reduce: str | None = None
    carry: bool = False


@dataclass(frozen=True, slots=True)
class If:
    """A guard: the body runs where ``cond`` holds. It protects writes, unlike ``select``."""

    cond: Expr
    body: Body


@dataclass(frozen=True, slots=True)
class Loop:
    """``var`` runs from 0 to ``extent`` - 1. ``tmps`` are fresh on every entry to the body (private to the iteration)."""

    var: str
    extent: Expr
    body: Body
    kind: LoopKind = LoopKind.SERIAL
    tmps: tuple[Buffer, ...] = ()


Stmt: TypeAlias = Union[Store, If, Loop]
Body: TypeAlias = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array. ``shape`` are size expressions; ``range`` (low, high exclusive) bounds an integer input's values."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: Scope = Scope.GLOBAL
    range: tuple[Expr, Expr] | None = None


@dataclass(frozen=True, slots=True)
class SizeDecl:
    """A named size and its present value; ``expr`` derives it from earlier sizes (``OH=H-K+1``)."""

    name: str
    value: int
    expr: Expr | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program. ``constraints`` are bool expressions over sizes that every re-binding must satisfy."""

    sizes: tuple[SizeDecl, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Body
    tmps: tuple[Buffer, ...] = ()
    constraints: tuple[Expr, ...] = ()
    _cache: dict[str, object] = field(default_factory=dict, compare=False, repr=False)

    @property
    def size_env(self) -> dict[str, int]:
        """Size name → value."""
        return {s.name: s.value for s in self.sizes}

    def __hash__(self) -> int:
        found = self._cache.get("python_hash")
        if not isinstance(found, int):
            found = self._cache["python_hash"] = hash((self.sizes, self.inputs, self.outputs, self.body, self.tmps, self.constraints))
        return found

    def with_(self, **changes: object) -> Program:
        """A copy with some fields replaced (and caches dropped)."""
        return replace(self, _cache={}, **changes)  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[object, ...]:
        return (Program, (self.sizes, self.inputs, self.outputs, self.body, self.tmps, self.constraints))


def identity_of(reduce: str, dtype: DType) -> Const:
    """The neutral element of a reducer for ``dtype``."""
    value = REDUCERS[reduce].identity
    if dtype.is_int and isinstance(value, float):
        low, high = int_range(dtype)
        return Const(low if value < 0 else high, dtype)
    return const(value, dtype)
