"""Constants, ranges, masks and copies: values that take no storage of their own."""

from __future__ import annotations

from steptp.frontend.builder import Builder
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Value, as_dtype, broadcast_to
from steptp.ir import DType, Expr, cast, const, select


@rule("aten.full.default", "aten.full_like.default", "aten.new_full.default", "aten.fill.Scalar")
def full(b: Builder, c: Call) -> Value:
    """A tensor of one number."""
    key = "value" if "fill" in c.name.split(".")[1] else "fill_value"
    return broadcast_to(c.operand(key, c.dtype), c.shape)


def _filled(number: int) -> None:
    name = "ones" if number else "zeros"

    def apply(b: Builder, c: Call) -> Value:
        return broadcast_to(c.literal(number, c.dtype), c.shape)

    rule(f"aten.{name}.default", f"aten.{name}_like.default", f"aten.new_{name}.default")(apply)


_filled(0)
_filled(1)


@rule("aten.empty.memory_format", "aten.empty_like.default", "aten.empty_permuted.default", "aten.empty_strided.default",
      "aten.new_empty.default", "aten.new_empty_strided.default")  # fmt: skip
def empty(b: Builder, c: Call) -> Value:
    """Undefined elements, which something fills before they count; zeros here."""
    return broadcast_to(c.literal(0, c.dtype), c.shape)


@rule("aten.scalar_tensor.default")
def scalar_tensor(b: Builder, c: Call) -> Value:
    """A number as a 0-dim tensor."""
    return c.operand("s", c.dtype)


@rule("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(b: Builder, c: Call) -> Value:
    """``start + step*i``."""
    kind = DType.I64 if c.dtype.is_int else c.dtype
    start = c.literal(c.args.get("start", 0), kind).at(())
    step = c.literal(c.args.get("step", 1), kind).at(())

    def element(i: Expr) -> Expr:
        value = cast(kind, i)
        value = value if step == const(1, kind) else value * step
        return cast(c.dtype, value if start == const(0, kind) else value + start)

    return Value(c.shape, c.dtype, lambda i: element(i[0]))


@rule("aten.linspace.default")
def linspace(b: Builder, c: Call) -> Value:
    """``start + i*(end-start)/(steps-1)``."""
    low, high, steps = float(c.number("start")), float(c.number("end")), c.integer("steps")
    width = (high - low) / max(steps - 1, 1)
    return Value(c.shape, c.dtype, lambda i: cast(c.dtype, i[0]) * width + low if low else cast(c.dtype, i[0]) * width)


@rule("aten.eye.default", "aten.eye.m")
def eye(b: Builder, c: Call) -> Value:
    """1 on the diagonal."""
    return Value(c.shape, c.dtype, lambda i: select(i[0].eq(i[1]), const(1, c.dtype), const(0, c.dtype)))


@rule("aten.tril.default", "aten.triu.default")
def triangle(b: Builder, c: Call) -> Value:
    """Zero above (``tril``) or below (``triu``) a diagonal of the last two dims."""
    x, shift = c.tensor("self"), c.extent("diagonal")
    lower = ".tril." in c.name

    def element(i: tuple[Expr, ...]) -> Expr:
        row, column = i[-2] + shift, i[-1]
        return select(column <= row if lower else column >= row, x.at(i), const(0, c.dtype))

    return b.pointwise(c.shape, c.dtype, element, like=[x])


@rule(
    "aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default", "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default", "aten.positive.default",
)  # fmt: skip
def same(b: Builder, c: Call) -> Value:
    """The tensor itself: values have no storage to copy."""
    return c.tensor("self")


@rule(
    "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other", "aten.type_as.default",
)  # fmt: skip
def convert(b: Builder, c: Call) -> Value:
    """A cast, inline."""
    return as_dtype(c.tensor("self"), c.dtype)


@rule("aten.copy.default")
def copy(b: Builder, c: Call) -> Value:
    """``src`` in the shape and dtype of ``self``."""
    return broadcast_to(as_dtype(c.tensor("src"), c.dtype), c.shape)


@rule("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")
def dropout(b: Builder, c: Call) -> Value:
    """Inactive dropout only; the capture refuses active dropout before it comes here."""
    return c.tensor("input")
