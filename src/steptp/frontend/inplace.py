"""In-place operators of an exported graph, without a functionalising re-trace.

``relu_(x)`` is ``relu(x)`` after which every name of ``x`` means the result, as long as no *view* shares its memory. Graphs
where that is so, which is the usual case, are translated as they are; others go through PyTorch's functionalisation.
"""

from __future__ import annotations

from collections.abc import Container

import torch
from torch.fx import Graph, Node

__all__ = ["translatable", "functional_name", "written", "UPDATES"]

_MAY_ALIAS = frozenset({"dropout", "feature_dropout", "alpha_dropout"})  # their schemas do not say that they can return their input

UPDATES: dict[str, dict[str, int]] = {"aten.batch_norm.default": {"running_mean": 3, "running_var": 4}}
"""Operators that change arguments without saying so in their schema: argument → position among the rule's results."""


def functional_name(name: str) -> str:
    """``aten.relu_.default`` → ``aten.relu.default``."""
    space, op, overload = name.split(".")
    return f"{space}.{op.removesuffix('_')}.{overload}"


def written(node: Node) -> Node | None:
    """The node whose memory an in-place operator writes, if it is one of the plain kind ``op_(self, …)``."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable and node.args and isinstance(node.args[0], Node):
        return node.args[0]
    return None


def translatable(graph: Graph, known: Container[str]) -> bool:
    """Whether every operator has a rule and in-place operators write memory that no view shares."""
    for node in graph.nodes:
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            continue
        if not target._schema.is_mutable:
            if str(target) not in known and _gives_tensors(node):
                return False
        elif functional_name(str(target)) not in known or not target._schema.name.endswith("_") or not _private(node):
            return False
    return True


def _gives_tensors(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, (torch.Tensor, list, tuple))


def _private(node: Node) -> bool:
    base = written(node)
    while base is not None and base.op == "call_function" and (below := written(base)) is not None:
        if any(_views(user) for user in base.users):
            return False
        base = below
    if base is None or (base.op == "call_function" and (not isinstance(base.target, torch._ops.OpOverload) or _views(base))):
        return False
    value, source = node.meta.get("val"), base.meta.get("val")
    same = isinstance(value, torch.Tensor) and isinstance(source, torch.Tensor) and value.dtype == source.dtype
    return same and not any(_views(user) for user in base.users)


def _views(node: Node) -> bool:
    """Whether the result may share memory with an argument (in-place operators aside)."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    schema = target._schema
    return any(r.alias_info is not None for r in schema.returns) or schema.name.split("::")[-1] in _MAY_ALIAS
