"""Capture of a PyTorch module with ``torch.export``.

The module's parameters and buffers become arguments of a wrapper, so their dims can be symbolic like those of inputs. A static
export comes first: it is quick, and it shows the module's own errors plainly. A graph of moderate size is then exported again with
every dim dynamic, a larger one with the dims of its inputs dynamic; where that fails the static graph is used, with sizes as numbers.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from steptp.errors import FrontendError, Place
from steptp.frontend.dtypes import dtype_of
from steptp.frontend.errors import control_flow, failed_export, user_place
from steptp.frontend.inplace import translatable
from steptp.frontend.names import fresh, identifier
from steptp.frontend.registry import rules

__all__ = ["Leaf", "Capture", "capture", "leaves_of", "refuse_mutation", "NAMED_LIMIT", "INPUTS_LIMIT"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

NAMED_LIMIT = 36
"""Up to this effort (see :func:`_effort`) every dim gets a name."""

INPUTS_LIMIT = 400
"""Up to this effort the dims of inputs get names and those of parameters are numbers; above, all dims are numbers."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor the program reads. ``kind`` is ``input``, ``param`` or ``buffer``; ``path`` is its qualified name in the module."""

    name: str
    kind: str
    path: str
    tensor: torch.Tensor


@dataclass(slots=True)
class Capture:
    """An exported graph and how its placeholders and outputs relate to the module.

    ``placeholders`` map a graph input to a leaf; ``outputs`` list (output name, graph node name); ``mutated`` says which
    outputs are new values of buffers.
    """

    exported: ExportedProgram
    leaves: list[Leaf]
    placeholders: dict[str, Leaf]
    outputs: list[tuple[str, str]]
    mutated: dict[str, Leaf] = field(default_factory=dict)
    dynamic: bool = False


class _Wrapper(torch.nn.Module):
    """``forward(tensors)`` runs the module with all its tensors passed in."""

    def __init__(self, module: torch.nn.Module, leaves: Sequence[Leaf], rebuild: object) -> None:
        super().__init__()
        object.__setattr__(self, "_held", (module, tuple(leaves), rebuild))

    def forward(self, tensors: tuple[torch.Tensor, ...]) -> object:
        module, leaves, rebuild = self._held  # type: ignore[misc]
        own = {leaf.path: t for leaf, t in zip(leaves, tensors, strict=True) if leaf.kind != "input"}
        args, kwargs = rebuild([t for leaf, t in zip(leaves, tensors, strict=True) if leaf.kind == "input"])
        return torch.func.functional_call(module, own, args, kwargs)


def leaves_of(module: torch.nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Leaf]:
    """Input tensors by argument name, then parameters and buffers by qualified name with dots as underscores."""
    taken: set[str] = set()
    found: list[Leaf] = []
    names = _argument_names(module, len(args))
    for name, value in [*zip(names, args, strict=True), *kwargs.items()]:
        flat = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        for number, tensor in enumerate(flat):
            stem = identifier(name) if isinstance(value, torch.Tensor) else f"{identifier(name)}{number}"
            found.append(Leaf(fresh(stem, taken), "input", "", tensor))
    for kind, tensors in (("param", module.named_parameters()), ("buffer", module.named_buffers())):
        for path, tensor in tensors:
            found.append(Leaf(fresh(identifier(path), taken), kind, path, tensor.detach()))
    return found


def _argument_names(module: torch.nn.Module, count: int) -> list[str]:
    out: list[str] = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            out += [f"{parameter.name}{n}" for n in range(count - len(out))]
        elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            out.append(parameter.name)
    if len(out) < count:
        raise FrontendError("frontend-arguments", f"forward() takes {len(out)} argument(s), but there are {count} example inputs")
    return out[:count]


def capture(module: torch.nn.Module, args: Sequence[object], kwargs: Mapping[str, object], name: str, *, sizes: str = "auto") -> Capture:
    """Export ``module`` on example inputs.

    ``sizes``: ``auto`` (named sizes where the export allows it in good time), ``static`` (numbers). Raises :class:`FrontendError`:
    ``frontend-export``, ``frontend-control-flow``, ``frontend-random``, ``frontend-mutation``, ``frontend-no-output``.
    """
    leaves = leaves_of(module, args, kwargs)
    flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))

    def rebuild(tensors: Sequence[torch.Tensor]) -> object:
        feed = iter(tensors)
        return pytree.tree_unflatten([next(feed) if isinstance(v, torch.Tensor) else v for v in flat], spec)

    wrapper = _Wrapper(module, leaves, rebuild)
    try:
        static = _export(wrapper, leaves)
    except FrontendError:
        raise
    except Exception as err:  # noqa: BLE001 - the tracer passes on whatever the user's forward() raises
        raise failed_export(err, name) from None
    _refuse_random(static)
    _refuse_unbacked(static, name)
    _refuse_complex(static)
    effort = _effort(static)
    for which, limit in ((("input", "param", "buffer"), NAMED_LIMIT), (("input",), INPUTS_LIMIT)):
        if sizes == "auto" and effort <= limit:
            try:
                return _describe(_decompose(_export(wrapper, leaves, which)), leaves, True)
            except FrontendError:
                raise
            except Exception:
                logging.getLogger(__name__).debug("dynamic export of %s failed", name, exc_info=True)
    try:
        return _describe(_decompose(static), leaves, False)
    except FrontendError:
        raise
    except Exception as err:  # noqa: BLE001 - as above: decompositions run PyTorch code on the user's graph
        raise failed_export(err, name) from None


def _effort(exported: ExportedProgram) -> int:
    """How long a dynamic export would take, in operator calls; windows and batch statistics breed many guards."""
    total = 0
    for node in exported.graph.nodes:
        if node.op == "call_function":
            total += 3 if any(word in str(node.target) for word in ("conv", "pool", "batch_norm", "group_norm", "interpolate", "upsample")) else 1
    return total


def _export(wrapper: torch.nn.Module, leaves: Sequence[Leaf], dynamic: Sequence[str] = ()) -> ExportedProgram:
    """Export with the dims of leaves of the ``dynamic`` kinds symbolic."""
    shapes = (tuple(dict.fromkeys(range(leaf.tensor.ndim), Dim.AUTO) if leaf.kind in dynamic else None for leaf in leaves),) if dynamic else None
    with _quiet():
        return export(wrapper, (tuple(leaf.tensor for leaf in leaves),), strict=False, dynamic_shapes=shapes)


def _decompose(exported: ExportedProgram) -> ExportedProgram:
    """Core ATen without in-place operators, but operators with a rule stay whole; the graph itself if it is that already."""
    known = rules()
    if translatable(exported.graph, known):
        return exported
    table: Any = torch.export.default_decompositions()
    for target, decomposition in decomposition_table.items():
        if isinstance(target, torch._ops.OpOverload) and target not in table and str(target) not in known:
            table[target] = decomposition
    for target in list(table):
        if str(target) in known:
            table.pop(target)
    with _quiet():
        done: ExportedProgram = exported.run_decompositions(table)
    return done


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings or log lines of the tracer about what is handled here."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def _refuse_random(exported: ExportedProgram) -> None:
    for node in exported.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
            continue
        name = target._schema.name.split("::")[-1]
        place = user_place(node.meta.get("stack_trace"))
        if "dropout" in name and "scaled_dot_product" not in name:
            values = dict(zip([a.name for a in target._schema.arguments], node.args, strict=False)) | dict(node.kwargs)
            if values.get("p") == 0 or not values.get("train", values.get("training", True)):
                continue
            raise FrontendError(
                "frontend-random", "dropout is active: the module is in training mode", place=place,
                hint="call .eval() on the module, or set p=0; a program with random results has no reference to verify against",
            )  # fmt: skip
        if "scaled_dot_product" in name or name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            values = dict(zip([a.name for a in target._schema.arguments], node.args, strict=False)) | dict(node.kwargs)
            if not values.get("dropout_p", values.get("dropout", 0)) or not values.get("train", True):
                continue
        raise FrontendError(
            "frontend-random", f"the module draws random numbers ({target})", place=place,
            hint="pass the random tensor as an input of forward()",
        )  # fmt: skip


def _refuse_complex(exported: ExportedProgram) -> None:
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(part, torch.Tensor) and part.dtype.is_complex:
                dtype_of(part.dtype, f"the result of {node.target}", user_place(node.meta.get("stack_trace")))


def refuse_mutation(leaf: Leaf, place: Place | None = None) -> None:
    """Only buffers may change; raises :class:`FrontendError` ``frontend-mutation`` for an input or a parameter."""
    if leaf.kind != "buffer":
        raise FrontendError(
            "frontend-mutation", f"the module changes its {leaf.kind} {leaf.name} in place", place=place,
            hint="work on a copy (x = x.clone()) or use the operator without the trailing underscore",
        )  # fmt: skip


def _refuse_unbacked(exported: ExportedProgram, name: str) -> None:
    """Numbers read out of tensors (``.item()``) and shapes that depend on values (masks as indices)."""
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        parts = value if isinstance(value, (list, tuple)) else (value,)
        if node.op == "call_function" and any(free_unbacked_symbols(p) for p in parts if isinstance(p, (torch.Tensor, *_SYMBOLIC))):
            raise control_flow(name, user_place(node.meta.get("stack_trace")))


def _describe(exported: ExportedProgram, leaves: list[Leaf], dynamic: bool) -> Capture:
    signature = exported.graph_signature
    placeholders: dict[str, Leaf] = {}
    feed = iter(leaves)
    taken = {leaf.name for leaf in leaves}
    kept = list(leaves)
    for item in signature.input_specs:
        name = item.arg.name
        if item.kind is InputKind.USER_INPUT:
            placeholders[name] = next(feed)
        else:
            tensor = exported.constants.get(item.target or "", exported.state_dict.get(item.target or ""))
            if not isinstance(tensor, torch.Tensor):
                raise FrontendError("frontend-constant", f"the module uses a constant that is no tensor: {item.target}")
            leaf = Leaf(
                fresh(identifier((item.target or name).split(".")[-1].replace("lifted_tensor_", "const")), taken), "constant", item.target or name, tensor
            )
            placeholders[name] = leaf
            kept.append(leaf)
    results: list[str] = []
    mutated: dict[str, Leaf] = {}
    changed: list[tuple[str, str]] = []
    for out in signature.output_specs:
        if out.kind is OutputKind.USER_OUTPUT:
            if getattr(out.arg, "value", 0) is None and not hasattr(out.arg, "expr_str"):
                continue
            results.append(out.arg.name)
        elif out.kind in (OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION):
            leaf = placeholders[out.target or ""] if out.target in placeholders else next(p for p in placeholders.values() if p.path == out.target)
            refuse_mutation(leaf)
            name = fresh(f"{leaf.name}_out", taken)
            mutated[name] = leaf
            changed.append((name, out.arg.name))
    if not results and not changed:
        raise FrontendError("frontend-no-output", "the module returns no tensor", hint="forward() must return a tensor or a tuple of tensors")
    names = [fresh("Y" if len(results) == 1 else f"Y{n}", taken) for n in range(len(results))]
    return Capture(exported, kept, placeholders, [*zip(names, results, strict=True), *changed], mutated, dynamic)
