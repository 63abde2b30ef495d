"""Stored derivations: every step is verified, the end means what the root means, and reference traces replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewrite_support import GOLDENS, assert_equal_meaning, check_no_orphans

from steptp.analysis.host import HostInfo
from steptp.errors import UsageError
from steptp.ir import Loop, LoopKind, rebind
from steptp.ir.walk import visit
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import derivations
from steptp.rewrite.base import Exactness, Site
from steptp.rewrite.trace import Trace, replay
from steptp.verify.ladder import verify_step

AVX2 = HostInfo("reference", 2, 32768, 524288, 0, 64, 256)
AVX512 = HostInfo("reference", 8, 49152, 2097152, 0, 64, 512)
SMALL = {"lanes": 2, "columns": 4, "rows": 2, "chunk": 4, "keys": 4}
TINY = {
    "attention": {"B": 2, "T": 4, "C": 3, "N": 8, "M": 8},
    "conv2d": {"C": 2, "H": 6, "W": 6, "P": 8},
    "flash_attention": {"B": 2, "T": 8, "C": 3, "N": 8, "M": 3},
    "gemm_bias_gelu": {"N": 4, "K": 3, "M": 8},
    "layer_norm": {"N": 3, "K": 8},
    "matmul": {"N": 4, "K": 3, "M": 8},
    "softmax": {"N": 3, "K": 8},
}


@pytest.mark.parametrize("name", derivations.names())
def test_every_step_is_verified(name: str) -> None:
    root = rebind(derivations.get(name).program, TINY[name])
    derived = derivations.derive(derivations.get(name), root=root, tiles=SMALL)
    for parent, step, taken in zip(derived.programs, derived.steps, derived.trace.steps, strict=False):
        verdict = verify_step(parent, step.program, applied=step, root=root, build_tiers=False)
        assert verdict.ok, f"{taken.site}: {verdict.message}"
    assert_equal_meaning(root, derived.last, Exactness.ALGEBRAIC)


@pytest.mark.parametrize("name", ["flash_attention", "gemm_bias_gelu", "softmax"])
def test_every_explanation_holds(name: str) -> None:
    root = rebind(derivations.get(name).program, TINY[name])
    derived = derivations.derive(derivations.get(name), root=root, tiles=SMALL)
    for parent, step, taken in zip(derived.programs, derived.steps, derived.trace.steps, strict=False):
        text = explain(parent, step, Site.parse(taken.site), host=AVX2).text
        assert not check_text(text, parent, step.program, taken.site, host=AVX2.to_dict()), taken.site


@pytest.mark.parametrize("name", derivations.names())
def test_the_compiled_end_is_within_the_roots_error_bound(name: str) -> None:
    root = rebind(derivations.get(name).program, TINY[name])
    derived = derivations.derive(derivations.get(name), root=root, tiles=SMALL)
    verdict = verify_step(root, derived.last, root=root, tiers=(4,), proven=True)
    assert verdict.ok, verdict.message
    assert verdict.tier == 4


@pytest.mark.parametrize("name", derivations.names())
def test_the_reference_trace_replays(name: str, update_goldens: bool) -> None:
    file: Path = GOLDENS / "derivations" / f"{name}.txt"
    trace = derivations.derive(derivations.get(name), host=AVX2).trace
    if update_goldens:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(trace.to_text())
    assert file.exists(), f"no golden {file.name}; run pytest with --update-goldens"
    stored = Trace.from_text(file.read_text())
    assert stored == trace
    assert len(replay(stored).programs) == len(trace.steps) + 1


def test_goldens_belong_to_derivations() -> None:
    check_no_orphans("derivations", derivations.names())


@pytest.mark.parametrize("name", derivations.names())
def test_the_end_is_one_parallel_nest_with_vectors_inside(name: str) -> None:
    end = derivations.derive(derivations.get(name), host=AVX512).last
    kinds = {v.stmt.kind for v in visit(end) if isinstance(v.stmt, Loop)}
    assert len(end.body) == 1
    assert isinstance(end.body[0], Loop)
    assert end.body[0].kind is LoopKind.PARALLEL
    assert LoopKind.VECTOR in kinds


def test_tile_sizes_follow_the_vectors_and_registers() -> None:
    assert derivations.tile_sizes(AVX2) == {"lanes": 8, "columns": 16, "rows": 4, "chunk": 32, "keys": 64}
    assert derivations.tile_sizes(AVX512) == {"lanes": 16, "columns": 32, "rows": 8, "chunk": 64, "keys": 128}


def test_refusals_name_the_step() -> None:
    matmul = derivations.get("matmul")
    with pytest.raises(UsageError, match=r"step 1 of matmul \(loop_tiling@0.*4 does not divide the 6 iterations of i"):
        derivations.derive(matmul, root=rebind(matmul.program, {"N": 6, "K": 3, "M": 16}), host=AVX2)
    with pytest.raises(UsageError, match="no derivation 'nothing'"):
        derivations.get("nothing")
    with pytest.raises(UsageError, match="needs the tile size 'rows'"):
        derivations.derive(matmul, tiles={})
