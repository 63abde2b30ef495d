"""What the Legal section of each strategy's steps owes, and what has a place there.

A claim that is true of nearly every step says nothing of this one. So each strategy has its kinds, the two programs decide which of them are due
(every new temporary, every accumulation at the site, every access of a vector loop, …), and what is neither is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from steptp.errors import LeirError
from steptp.ir.nodes import Buffer, If, Load, Loop, Op, Path, Stmt, Store
from steptp.ir.walk import free_vars
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, loop_at
from steptp.reason.rederive.cuts import CUTS
from steptp.reason.rederive.domain import unsaid_of_domain
from steptp.reason.rederive.figures import _below, _declared, _distinct, _moves
from steptp.reason.rederive.structure import _walk
from steptp.reason.rederive.supports import unsaid_supports
from steptp.reason.rederive.values import _stores

__all__ = ["OWED", "Due", "unsaid_of_strategy"]


@dataclass(frozen=True, slots=True)
class Due:
    """Kinds: those always said (``always``), groups of which one is said in full (``either``), and others that may be (``may``)."""

    always: frozenset[str]
    either: tuple[frozenset[str], ...]
    may: frozenset[str]
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def known(self) -> frozenset[str]:
        return self.always.union(self.may, *self.either)


def _due(always: str, may: str = "", either: Sequence[str] = (), **counts: int) -> Due:
    return Due(frozenset(always.split()), tuple(frozenset(e.split()) for e in either), frozenset(may.split()), tuple(sorted(counts.items())))


_ORDER = "order_kept order_changed order_free no_order_reversed"
_MEMORY = "buffer_added buffer_removed"
_ALGEBRA = _due("expression_becomes", "proven common_factor unchanged_in")
_FACTORED = _due("expression_becomes common_factor", "proven unchanged_in")
_TILES = ("divides", "tail_guard", "tail_peeled")

OWED: dict[str, Due] = {
    "loop_split": _due("loop_extent index_map", "tile_size order_kept", _TILES, index_map=1),
    "loop_tiling": _due("perfect_nest index_map", f"tile_size {_ORDER}", _TILES, index_map=2),
    "loop_fusion": _due("perfect_nest loops_collapsed index_map", "order_kept", index_map=2),
    "loop_reorder": _due("perfect_nest loop_moved", _ORDER),
    "loop_unrolling": _due("loop_extent loop_kind body_copies", "order_kept"),
    "loop_vectorization": _due("loop_extent loop_kind carries_no_dependence", "stride guard_in_vector order_kept"),
    "loop_parallelization": _due("loop_kind carries_no_dependence", "parallel_iterations order_kept"),
    "loop_binding": _due(
        "loop_kind",
        "stride blocks_independent limit_stated order_kept",
        ("loop_kind", "carries_no_dependence axis_fits launch parallel_iterations"),
    ),
    "loop_peeling": _due("same_operations", "guard_dropped reset_written renamed_copy", ("loop_extent peeled", "tile_peeled")),
    "loop_skewing": _due("perfect_nest skewed index_map same_operations", "wavefront order_kept", index_map=1),
    "operator_fusion": _due("perfect_nest same_header no_order_reversed", "order_kept"),
    "operator_fission": _due("cut no_order_reversed", "expanded order_kept"),
    "compute_inline": _due("written_once reads_replaced", f"unchanged_between {_MEMORY}"),
    "compute_at": _due("nest_moved reads_under region_computed same_operations", f"inputs_kept bounds_guard runs {_MEMORY} order_kept"),
    "reverse_compute_at": _due("nest_moved final_in_iteration region_computed no_order_reversed same_operations", "bounds_guard runs order_kept"),
    "epilogue_fusion": _due("nest_moved final_in_iteration region_computed no_order_reversed same_operations pointwise", "bounds_guard runs order_kept"),
    "cache_read_write": _due("buffer_added", "", ("region_copied not_written_under", "accumulates_in written_back")),
    "cache_write": _due("buffer_added initialised_first held_in written_back same_operations"),
    "dead_code_elimination": _due("never_read stores_removed", _MEMORY),
    "expression_reorder": _due("independent"),
    "common_subexpression_elimination": _due("", "", ("named occurs buffer_added", "same_value reads_renamed")),
    "expression_splitting": _due("named buffer_added", "not_written_in"),
    "loop_invariant_code_motion": _due("named invariant_over buffer_added", "evaluated"),
    "precompute_indices": _due("pure_index named buffer_added index_inside table_reused"),
    "layout_transformation": _due("dimensions accesses_rewritten", "buffer_added"),
    "set_storage_layout": _due("dimensions accesses_rewritten", "tile_size", ("dimension_split", "dimension_split tile_contiguous", "dimensions_fused")),
    "set_storage_scope": _due("storage_scope", "", ("storage_scope", "scope_bytes one_holder")),
    "reduction_factorization": _due("buffer_added order_changed", "partial_accumulators order_free tile_size divides"),
    "tensor_split_to_decouple_operators": _due(
        "axis_cut",
        f"tile_size {_MEMORY}",
        ("reset_written same_operations", "same_operations", "tensor_cut same_operations", "partial_results order_changed", "partial_results order_free"),
    ),
    "tensor_concat_to_fuse_operators": _due("axis_joined same_operations", _MEMORY, ("axis_joined", "same_computation tensors_joined")),
    "padding": _due("guard_padded padded", _MEMORY, ("zero_terms", "same_operations")),
    "partially_equivalent_then_correct": _due("interior boundary_corrected", "order_kept"),
    "online_softmax": _due("running_maximum rescaled"),
    "normal_loop_max_to_prefix_max": _due("prefix_maximum buffer_added"),
    "normal_loop_summation_on_exp_to_prefix_summation_on_exp": _due("sum_of_exponentials prefix_sum rescaled", f"prefix_maximum {_MEMORY}"),
    "normal_matmul_to_prefix_matmul_based_on_online_softmax": _due("weighted_by_softmax rescaled divided_once buffer_added", "prefix_maximum row_not_empty"),
    "flashattention_wo_tiling": _due("running_maximum weighted_by_softmax rescaled divided_once passes_over buffer_added", "row_not_empty buffer_removed"),
    "im2col": _due("named unfolded flattened order_kept buffer_added"),
    "contraction_reassociation": _due(
        "distributive buffer_added", "operand_finite contraction_cost buffer_removed", ("contracted_first", "named")
    ),
    "linear_distribution": _due("distributive", f"operand_finite {_MEMORY}", ("summed_apart", "summed_together")),
    "constant_folding": _due("", "", ("expression_becomes", "literal_at_size")),
    "batch_norm_folding": _due("scale_folded distributive buffer_added", "named operand_finite row_not_empty scales_whole"),
    "factorization": _FACTORED,
    "expand_factorization": _ALGEBRA,
    "collect": _FACTORED,
}  # fmt: skip
_OF_ALGEBRA = """
additive_split apart cancellation expand_cancellation expand_collect expand_log expand_powsimp exponential_split logsimp multiplicative_split powsimp together
"""
OWED |= dict.fromkeys(_OF_ALGEBRA.split(), _ALGEBRA)


def unsaid_of_strategy(claims: Sequence[Claim], ctx: CheckContext) -> list[str]:
    """What a step of this strategy owes and does not say, and what it says beside the point; nothing for a strategy without a row."""
    due = OWED.get(ctx.strategy)
    if due is None:
        return []
    said = Counter(c.kind for c in claims)
    out = [f"nothing is said of {kind}" for kind in sorted(due.always - set(said))]
    if due.either and not any(group <= set(said) for group in due.either):
        out.append("nothing is said of " + ", or of ".join(" and ".join(sorted(g)) for g in due.either))
    out += [f"{kind} is due {count} times" for kind, count in due.counts if said[kind] != count]
    out += [f"{kind} says nothing of a {ctx.strategy}" for kind in sorted(set(said) - due.known)]
    try:
        return out + [f"nothing is said of {thing}" for rule in _RULES for thing in rule(claims, ctx, due)]
    except (LeirError, KeyError, ValueError, IndexError) as err:
        return [*out, f"what is due cannot be worked out ({type(err).__name__})"]


_Rule = Callable[[Sequence[Claim], CheckContext, Due], Iterator[str]]


def _said_of(claims: Sequence[Claim], kinds: str, slot: str) -> set[str]:
    return {c[slot] for c in claims if c.kind in kinds.split()}


def _buffers(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """Each new temporary and each that goes, by the kind of the strategy, or by any claim that names it."""
    if ctx.strategy == "online_softmax":  # its scalars are left to the edit script
        return
    old, new = ({b.name for b in _declared(p)} for p in (ctx.parent, ctx.child))
    mentioned = {part for c in claims for v in c.values.values() for part in v.split(", ")}
    for kind, names in (("buffer_added", new - old), ("buffer_removed", old - new)):
        told = _said_of(claims, kind, "name") if kind in due.known else mentioned
        yield from (f"the temporary {name}" for name in sorted(names - told))


def _orders(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """The order of each accumulation at the site, unless the child no longer has its target or gives that more dimensions."""
    if not due.known & {"order_kept"} or ctx.params.get("axis") == "none":
        return
    before, after = ({b.name: len(b.shape) for b in _declared(p)} for p in (ctx.parent, ctx.child))
    kept = {name for name, rank in before.items() if after.get(name) == rank}
    told = _said_of(claims, "order_kept order_changed", "buffer")
    for path, store, _ in _walk(ctx.parent):
        if isinstance(store, Store) and store.reduce is not None and _at_site(path, ctx) and store.buffer in kept and store.buffer not in told:
            yield f"the order of accumulation into {store.buffer}"
            told.add(store.buffer)


def _at_site(path: Path, ctx: CheckContext) -> bool:
    """At the site, or, where that takes in its right neighbour, there."""
    beside = (*ctx.path[:-1], ctx.path[-1] + 1) if ctx.path and ctx.strategy == "operator_fusion" else ctx.path
    return bool(ctx.path) and (path[: len(ctx.path)] == ctx.path or path[: len(beside)] == beside)


def _strides(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """Each access of a loop that becomes a vector, or the innermost thread axis; each guard of a vector that depends on it."""
    loop, after = loop_at(ctx.parent, ctx.path), loop_at(ctx.child, ctx.path)
    if "stride" not in due.known or loop is None or after is None or after.kind.value not in ("vec", "tx"):
        return
    told = _said_of(claims, "stride", "access")
    guards = _said_of(claims, "guard_in_vector", "loop")
    for path, stmt, _ in _walk(ctx.parent):
        if path[: len(ctx.path)] == ctx.path and isinstance(stmt, Store):
            due_here = {text: access for text, access in _distinct(stmt).items() if text not in told}
            yield from (
                f"the stride of {text}" for text, access in due_here.items() if _steady(access, loop.var) and _moves(access, loop, ctx.parent) is not None
            )
        if after.kind.value == "vec" and path[: len(ctx.path)] == ctx.path and isinstance(stmt, If) and loop.var in free_vars(stmt.cond) and not guards:
            yield f"the guards that depend on {loop.var}"


def _steady(access: Load, var: str) -> bool:
    """Whether the access moves alike from every iteration of a loop to the next."""
    parts = [e for i in access.indices for e in _below(i) if var in free_vars(e)]
    return all(e.name in ("+", "-", "*", "neg") for e in parts if isinstance(e, Op))


def _tails(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """How each of the two loops of a tile ends."""
    told = sum(c.kind in _TILES for c in claims)
    if ctx.strategy == "loop_tiling" and told != 2:
        yield f"the ends of two loops ({told} are)"


def _sources(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """What a value that moves is made of must stay: of a nest, of an inlined expression, of a new array."""
    kinds = {c.kind for c in claims}
    if "inputs_kept" in due.known - kinds and any(_reads(s) for p, s, _ in _walk(ctx.parent) if p[: len(ctx.path)] == ctx.path):
        yield "the inputs of the nest"
    if "unchanged_between" in due.known - kinds and any(_reads(s) for c in claims if c.kind == "written_once" for _, s in _stores(ctx.parent, c["buffer"])):
        yield "what the expression reads"
    if "not_written_in" in due.known - kinds and any(b.shape for b in _new(ctx)):
        yield "what the new array is filled from"


def _reads(stmt: Stmt) -> set[str]:
    return {e.buffer for e in _below(stmt.value) if isinstance(e, Load)} if isinstance(stmt, Store) else set()


def _new(ctx: CheckContext) -> list[Buffer]:
    old = {b.name for b in _declared(ctx.parent)}
    return [b for b in _declared(ctx.child) if b.name not in old]


def _bindings(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """A loop that runs in parallel or on an axis; storage of a thread or a block."""
    kinds = {c.kind for c in claims}
    after = loop_at(ctx.child, ctx.path)
    if ctx.strategy == "loop_binding" and after is not None and after.kind.is_bound:
        yield from sorted({"carries_no_dependence", "axis_fits", "launch", "parallel_iterations"} - kinds)
        if "blocks_independent" not in kinds and any(c.kind == "launch" and c.number("blocks") > 1 for c in claims):
            yield "blocks_independent"
    if ctx.strategy == "loop_parallelization" and after is not None and not free_vars(after.extent):
        yield from sorted({"parallel_iterations"} - kinds)
    if any(c.kind == "storage_scope" and c["new"] in ("local", "shared") for c in claims):
        yield from sorted({"scope_bytes", "one_holder"} - kinds)


def _parts(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """The counts that follow where all extents are fixed; the resets, prefixes and scalings that a step of several parts writes."""
    kinds = {c.kind for c in claims}
    loops = [s.extent for p, s, _ in _walk(ctx.parent) if isinstance(s, Loop) and ctx.near(p)]
    if not any(free_vars(e) for e in loops):
        yield from sorted({"evaluated", "partial_accumulators"} & due.known - kinds)
    if "reset_written" in due.known and "partial_results" not in kinds:
        told = _said_of(claims, "reset_written", "buffer")
        reduced = {
            s.buffer for p, s, _ in _walk(ctx.parent) if isinstance(s, Store) and s.reduce is not None and not s.carry and p[: len(ctx.path)] == ctx.path
        }
        written = (b for b in sorted(reduced - told) if CUTS["reset_written"](Claim("reset_written", {"buffer": b}, ""), ctx) is None)
        yield from (f"the reset of {b}" for b in written)
    if "prefix_maximum" in due.known:
        told = _said_of(claims, "prefix_maximum", "buffer")
        for name in sorted({b.name for b in _new(ctx) if b.shape} - told):
            if any(isinstance(s.value, Op) and s.value.name == "max" and name in _reads(s) for _, s in _stores(ctx.child, name)):
                yield f"the maxima in {name}"
    if "rescaled" in due.known:
        sums = _said_of(claims, "running_maximum", "sum") | _said_of(claims, "divided_once", "buffer")
        yield from (f"how {name} is scaled" for name in sorted(sums - _said_of(claims, "rescaled", "sum")))


def _contents(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """What each new buffer holds: the value of its one plain store, two tensors, or a padded one; each index that a new table serves."""
    new = _new(ctx)
    names = {b.name for b in new}
    if "named" in due.always:
        told = _said_of(claims, "named", "name")
        yield from (f"what {n} holds" for n in sorted(names - told) if [s.reduce for _, s in _stores(ctx.child, n)] == [None])
    if ctx.strategy == "tensor_concat_to_fuse_operators":
        yield from (f"what {n} joins" for n in sorted(names - _said_of(claims, "tensors_joined", "into")))
        if names and not any(c.kind == "same_computation" for c in claims):
            yield "same_computation"
    if ctx.strategy == "padding":
        old = {b.name: b.shape for b in _declared(ctx.parent)}
        grown = {b.name for b in _declared(ctx.child) if old.get(b.name) != b.shape}
        yield from (f"the length of {n}" for n in sorted(grown - _said_of(claims, "padded", "into")))
    if ctx.strategy == "precompute_indices":
        served = {(c["buffer"], c.number("dim")) for c in claims if c.kind == "index_inside"}
        for _, store, _ in _walk(ctx.child):
            for access in _distinct(store).values() if isinstance(store, Store) else ():
                for dim, index in enumerate(access.indices):
                    if isinstance(index, Load) and index.buffer in names and access.buffer not in names and (access.buffer, dim) not in served:
                        yield f"index {dim} of {access.buffer}"


def _domains(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    """Conditions, common factors and invariants of an algebra step."""
    if "expression_becomes" in due.always:
        yield from unsaid_of_domain(claims, ctx)


def _supports(claims: Sequence[Claim], ctx: CheckContext, due: Due) -> Iterator[str]:
    yield from unsaid_supports(claims, ctx, due.known)


_RULES: tuple[_Rule, ...] = (_buffers, _orders, _strides, _tails, _sources, _bindings, _parts, _contents, _domains, _supports)
