"""An exported graph → a LEIR program, one rule call for each operator."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch.fx import Node

from steptp.errors import FrontendError, LeirError, Place
from steptp.frontend.builder import Builder
from steptp.frontend.capture import Capture, Leaf, capture, refuse_mutation
from steptp.frontend.dtypes import DTYPES, dtype_of
from steptp.frontend.errors import user_place
from steptp.frontend.finish import finish
from steptp.frontend.inplace import UPDATES, functional_name, written
from steptp.frontend.names import derived_name, fresh, size_name
from steptp.frontend.registry import Arg, Call, SizeNumber, rules
from steptp.frontend.symbols import Extents, Solution, Unrepresentable, solve
from steptp.frontend.value import Shape, Value
from steptp.ir import Buffer, DType, Expr, Program, check, eval_index, ix

__all__ = ["Translated", "translate", "translate_module"]

_PROMOTING = frozenset({"self", "other", "exponent", "min", "max", "value", "tensor1", "tensor2", "end", "weight", "input"})

_USUAL_RANGE = {DType.I64: 1 << 20, DType.I32: 1 << 10}
"""Half the declared range of integer inputs that index nothing: sums and products of such values provably do not overflow in usual programs."""


@dataclass(slots=True)
class Translated:
    """The program and, in order, the leaves behind its inputs and the buffers behind its extra outputs."""

    program: Program
    leaves: list[Leaf]
    mutated: dict[str, Leaf]


def translate(captured: Capture) -> Translated:
    """Translate a captured graph. Raises :class:`FrontendError` (``frontend-op``, ``frontend-op-form``, ``frontend-dtype``, …)."""
    return _Translation(captured).run()


def translate_module(module: torch.nn.Module, args: Sequence[object], name: str, *, sizes: str = "auto") -> tuple[Translated, bool]:
    """Capture, translate and check a module; the flag says whether sizes have names.

    Where a rule needs a number and the dynamic export has a symbol, the sizes are numbers. Raises :class:`FrontendError` as the capture and
    the rules do, ``frontend-invalid`` when the result is no valid program.
    """
    captured = capture(module, args, {}, name, sizes=sizes)
    try:
        done = translate(captured)
        check(done.program)
        return done, captured.dynamic
    except LeirError as err:
        if not captured.dynamic:
            raise FrontendError("frontend-invalid", f"the translation of {name} is not a valid program (please report): {err.message}") from err
    except FrontendError as err:
        if not captured.dynamic or err.code not in ("frontend-op-form", "frontend-size"):
            raise
    return translate_module(module, args, name, sizes="static")


class _Translation:
    def __init__(self, captured: Capture) -> None:
        self.captured = captured
        self.graph = captured.exported.graph
        self.taken = {leaf.name for leaf in captured.leaves} | {name for name, _ in captured.outputs}
        self.hints: dict[Expr, str] = {}
        self.extents = Extents(self._solve())
        self.env: dict[str, Arg] = {}
        self.changed: dict[str, Place | None] = {}
        self.aliases: dict[str, list[str]] = {}
        self._name_sizes()
        self.builder = Builder.new(self.extents.values, self.taken)

    # sizes

    def _solve(self) -> Solution:
        symbolic: list[torch.SymInt] = []
        for node in self.graph.nodes:
            value = node.meta.get("val")
            extents: tuple[object, ...] = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
            symbolic += [s for s in extents if isinstance(s, torch.SymInt)][:1]
        if not symbolic:
            return Solution()
        environment = symbolic[0].node.shape_env
        hints = environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val
        return solve([g.expr for g in environment.guards], {s: int(v) for s, v in hints.items()})

    def _name_sizes(self) -> None:
        order = [n for n in self.graph.nodes if n.op == "placeholder"]
        order.sort(key=lambda n: self.captured.placeholders[n.name].kind != "input")
        reads: list[tuple[int, int, bool, sympy.Expr]] = []
        for node in order:
            shape = node.meta["val"].shape
            for d, extent in enumerate(shape):
                if isinstance(extent, torch.SymInt):
                    reads.append((len(shape), d, self.captured.placeholders[node.name].kind != "input", extent.node.expr))
        late: list[tuple[sympy.Expr, str]] = []
        for rank, d, parameter, expr in reads:
            solved = self.extents.reduced(expr)
            if isinstance(solved, sympy.Symbol):
                if solved not in self.extents.names:
                    self.extents.name(solved, size_name(rank, d, self.taken, parameter=parameter))
            elif all(solved != known for known, _ in late):
                late.append((solved, size_name(rank, d, self.taken, parameter=parameter)))
        for solved, _ in late:
            for symbol in sorted(solved.free_symbols, key=lambda s: s.name):
                if symbol not in self.extents.names:
                    self.extents.name(symbol, size_name(0, 0, self.taken))
        self._derive_sizes()
        for solved, name in late:
            self.taken.discard(name)
            self.hints.setdefault(self.extents.index(solved), name)

    def _derive_sizes(self) -> None:
        """Name the compound dims of results, in graph order."""
        for node in self.graph.nodes:
            value = node.meta.get("val")
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if node.op != "call_function" or not isinstance(tensor, torch.Tensor):
                    continue
                for d, extent in enumerate(tensor.shape):
                    if isinstance(extent, torch.SymInt) and (part := self.extents.compound(extent.node.expr)) is not None:
                        self.extents.derive(part, derived_name(len(tensor.shape), d, self.taken))

    def index(self, value: object) -> Expr:
        """A dim or integer of the graph as a size expression."""
        if isinstance(value, torch.SymInt):
            return self.extents.index(value.node.expr)
        return ix(int(value))  # type: ignore[call-overload]

    def shape(self, shape: object) -> Shape:
        return tuple(self.index(s) for s in shape)  # type: ignore[attr-defined]

    # the walk

    def run(self) -> Translated:
        inputs: list[tuple[Leaf, Buffer, bool]] = []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                leaf = self.captured.placeholders[node.name]
                buffer = Buffer(
                    leaf.name, dtype_of(leaf.tensor.dtype, f"{leaf.kind} {leaf.name}") if node.users else DType.F32, self.shape(node.meta["val"].shape)
                )
                if node.users or leaf.kind == "input":
                    dtype_of(leaf.tensor.dtype, f"{leaf.kind} {leaf.name}")
                    inputs.append((leaf, buffer, bool(node.users)))
                self.env[node.name] = self.builder.array(buffer)
            elif node.op == "call_function":
                self.env[node.name] = self._call(node)
            elif node.op != "output":
                raise FrontendError("frontend-op", f"cannot translate a graph node of kind {node.op}", place=user_place(node.meta.get("stack_trace")))
        results: list[tuple[str, Value]] = []
        outputs, mutated = self._with_mutations()
        for name, source in outputs:
            value = self.env.get(source)
            if not isinstance(value, Value):
                raise FrontendError("frontend-no-output", "an output of the module is not a tensor", hint="return tensors only")
            results.append((name, value))
        inputs.sort(key=lambda item: ("input", "param", "buffer", "constant").index(item[0].kind))
        buffers = [self._ranged(buffer) for _, buffer, _ in inputs]
        program = finish(self.builder, buffers, results, self.extents.values, derived=self.extents.derived, constraints=self._constraints(), hints=self.hints)
        return Translated(program, [leaf for leaf, _, _ in inputs], mutated)

    def _with_mutations(self) -> tuple[list[tuple[str, str]], dict[str, Leaf]]:
        """Outputs and mutated buffers, those from in-place operators in the graph included."""
        outputs, mutated = list(self.captured.outputs), dict(self.captured.mutated)
        for source, place in self.changed.items():
            leaf = self.captured.placeholders[source]
            refuse_mutation(leaf, place)
            name = fresh(f"{leaf.name}_out", self.builder.taken)
            self.builder.fixed.add(name)
            outputs.append((name, source))
            mutated[name] = leaf
        return outputs, mutated

    def _write(self, writer: Node, node: Node, value: Arg) -> None:
        """Every name of the memory that ``node`` stands for now means ``value``."""
        base = node
        while base.op == "call_function" and (below := written(base)) is not None:
            base = below
        names = self.aliases.setdefault(base.name, [base.name])
        if written(writer) is not None:
            names.append(writer.name)
        for name in names:
            self.env[name] = value
        if base.op == "placeholder":
            self.changed.setdefault(base.name, user_place(writer.meta.get("stack_trace")))

    def _ranged(self, buffer: Buffer) -> Buffer:
        """Declare the range of an integer input: that of the dim it indexes, else one that leaves room for arithmetic."""
        extent = self.builder.ranges.get(buffer.name)
        if extent is not None and buffer.dtype.is_int:
            return replace(buffer, range=(ix(0), extent))
        usual = _USUAL_RANGE.get(buffer.dtype)
        if usual is None:
            return buffer
        return replace(buffer, range=(ix(-usual), ix(usual)))

    def _constraints(self) -> list[Expr]:
        """The guards that are left, as conditions on sizes; one that mentions something without a name is about no dim."""
        out: list[Expr] = []
        for condition in self.extents.solution.conditions:
            try:
                expr = self.extents.index(condition)
            except Unrepresentable:
                continue
            if expr.dtype is DType.BOOL and expr not in out and eval_index(expr, self.extents.values):
                out.append(expr)
        return out

    def _call(self, node: Node) -> Arg:
        target = node.target
        if target is operator.getitem:
            whole, position = node.args
            assert isinstance(whole, Node)
            assert isinstance(position, int)
            source = self.env[whole.name]
            assert isinstance(source, tuple)
            return source[position]
        value = node.meta.get("val")
        place = user_place(node.meta.get("stack_trace"))
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
            return self._arg(value)
        if not isinstance(target, torch._ops.OpOverload):
            raise FrontendError("frontend-op", f"no rule for {getattr(target, '__name__', target)}", place=place, hint=_WHAT_TO_DO)
        name = str(target)
        if value is None and not node.users:
            return None  # assertions on sizes or metadata
        target_node = written(node)
        if target_node is not None:
            name = functional_name(name)
        fn = rules().get(name)
        if fn is None:
            raise self._no_rule(name, value, place)
        try:
            result = fn(self.builder, self._describe(node, name, value, place))
        except LeirError as err:
            raise FrontendError("frontend-op-form", f"{name}: {err.message}", place=place, hint=_WHAT_TO_DO) from err
        if target_node is not None:
            self._write(node, target_node, result)
        if name in UPDATES and isinstance(result, tuple):
            return self._update(node, name, result)
        return result

    def _update(self, node: Node, name: str, result: tuple[Value | None, ...]) -> Arg:
        """Hidden updates of arguments (running statistics); the call's own value is the first result."""
        schema = node.target._schema  # type: ignore[union-attr]
        given = dict(zip([a.name for a in schema.arguments], node.args, strict=False)) | dict(node.kwargs)
        for argument, position in UPDATES[name].items():
            fresh_value, target = result[position], given.get(argument)
            if fresh_value is not None and isinstance(target, Node):
                self._write(node, target, fresh_value)
        return result[0]

    def _no_rule(self, name: str, value: object, place: Place | None) -> FrontendError:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.dtype not in DTYPES:
                dtype_of(tensor.dtype, f"the result of {name}", place)
        near = difflib.get_close_matches(name, rules(), 3, 0.75)
        similar = f"; operators with a rule and a similar name: {', '.join(near)}" if near else ""
        return FrontendError("frontend-op", f"there is no rule for the operator {name}", place=place, hint=_WHAT_TO_DO + similar)

    def _describe(self, node: Node, name: str, value: object, place: Place | None) -> Call:
        schema = node.target._schema  # type: ignore[union-attr]
        raw = dict(zip([a.name for a in schema.arguments], node.args, strict=False)) | dict(node.kwargs)
        for argument in schema.arguments:
            if argument.name not in raw and argument.has_default_value():
                raw[argument.name] = argument.default_value
        parts = list(value) if isinstance(value, (list, tuple)) else [value]
        users = (
            frozenset(u.args[1] for u in node.users if u.target is operator.getitem)
            if isinstance(value, (list, tuple))
            else frozenset({0} if node.users else ())
        )
        results = tuple(
            (self.shape(p.shape), DTYPES.get(p.dtype, DType.F32) if n not in users else dtype_of(p.dtype, f"the result of {name}", place))
            if isinstance(p, torch.Tensor)
            else ((), DType.F32)
            for n, p in enumerate(parts)
        )
        args = {key: self._arg(item) for key, item in raw.items()}
        return Call(name, args, results, users, self._promoted(raw, parts), place)  # type: ignore[arg-type]

    def _promoted(self, raw: Mapping[str, object], parts: list[object]) -> DType:
        found: list[object] = []
        for key, item in raw.items():
            for one in item if isinstance(item, (list, tuple)) else (item,):
                if isinstance(one, Node) and isinstance(one.meta.get("val"), (torch.Tensor, torch.SymInt, torch.SymFloat)):
                    found.append(one.meta["val"])
                elif isinstance(one, (int, float, bool)) and key in _PROMOTING:
                    found.append(one)
        if any(isinstance(x, torch.Tensor) for x in found):
            dtype = elementwise_dtypes(*found, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)[1]
            if dtype in DTYPES:
                return DTYPES[dtype]
        first = parts[0]
        return DTYPES.get(first.dtype, DType.F32) if isinstance(first, torch.Tensor) else DType.F32

    def _arg(self, value: object) -> Arg:
        if isinstance(value, Node):
            return self.env[value.name]
        if isinstance(value, torch.SymInt):
            return self.index(value)
        if isinstance(value, torch.SymFloat):
            expr = self.extents.reduced(value.node.expr)
            return float(expr) if expr.is_number else SizeNumber(lambda dtype: self.extents.number(expr, dtype))
        if isinstance(value, torch.SymBool):
            return bool(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._arg(v) for v in value)
        if isinstance(value, torch.dtype):
            return DTYPES.get(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return None  # devices, layouts and memory formats do not matter here


_WHAT_TO_DO = "write this line with other operators, or add a rule for it (docs/adding-an-op.md)"
