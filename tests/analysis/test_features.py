"""Features: counts against hand-computed values, and speed independent of sizes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptp.analysis import HostInfo, Model, features
from steptp.analysis.counting import footprint, instances, stride
from steptp.errors import UsageError
from steptp.ir.parser import parse
from steptp.ir.sizes import eval_index

MM = "in A f32[64,128] B[128,32]\nout C f32[64,32]\nfor i:64 j:32 k:128 C[i,j] += A[i,k]*B[k,j]\n"


def test_matmul_counts() -> None:
    f = features(parse(MM))
    assert f.flops == 2 * 64 * 32 * 128
    assert f.instances == 64 * 32 * 128 + 64 * 32
    assert f.compulsory_bytes == 4 * (64 * 128 + 128 * 32 + 64 * 32)
    assert f.intensity == round(f.flops / f.compulsory_bytes, 4)
    assert dict(f.footprints) == {"A": 64 * 128 * 4, "B": 128 * 32 * 4, "C": 64 * 32 * 4}
    assert f.bytes_read == 3 * 4 * 64 * 32 * 128
    assert f.bytes_written == 4 * 64 * 32 * 128 + 4 * 64 * 32
    assert [loop.carried for loop in f.loops] == ["none", "none", "reduction"]
    assert f.parallelism == 64 * 32
    assert [loop.working_set for loop in f.loops] == [f.compulsory_bytes, 4 * (128 + 128 * 32 + 32), 4 * (128 + 128 + 1)]
    assert (f.dominating, f.dominating_flops) == ((0,), 1.0)


def test_strides() -> None:
    p = parse(MM)
    update = features(p).statements[1]
    found = {a.buffer: dict(a.strides) for a in update.accesses}
    assert found == {"A": {"i": 128, "j": 0, "k": 1}, "B": {"i": 0, "j": 1, "k": 32}, "C": {"i": 32, "j": 1, "k": 0}}
    (a, b) = (x for x in Model.of(p).statements[1].reads if x.load is not None)
    assert stride(a, "k") == 1
    assert stride(b, "k") == 32
    assert footprint(b, frozenset({"j"})) == 32


def test_unit_stride_follows_the_innermost_loop() -> None:
    by_k = features(parse(MM))
    by_j = features(parse(MM.replace("i:64 j:32 k:128", "i:64 k:128 j:32")))
    assert by_j.unit_stride > by_k.unit_stride
    assert by_j.unit_stride == pytest.approx(2 / 3, abs=0.01)


def test_vector_and_register_tile() -> None:
    f = features(parse("in A f32[64,64]\nout Y f32[64,64]\nfor i0:16 j0:4 unroll i1:4 vec j1:16 Y[i0*4+i1,j0*16+j1] = A[i0*4+i1,j0*16+j1]*2\n"))
    assert f.vector_lanes == 16
    assert f.register_tile == (4, 16)
    assert f.parallelism == 64 * 64


def test_weights_of_operators() -> None:
    f = features(parse("in A f32[10]\nout Y f32[10]\nfor i:10 Y[i] = exp(A[i])/2+select(i<5, 1, 0)\n"))
    assert f.flops == 10 * (10 + 4 + 1 + 1)
    assert f.transcendentals == 10


def test_guards_are_counted_or_named_as_estimates() -> None:
    exact = features(parse("in A f32[100]\nout Y f32[100]\nfor i0:13 i1:8 if i0*8+i1<100: Y[i0*8+i1] = A[i0*8+i1]\n"))
    assert exact.instances == 100
    assert not any("upper bound" in e for e in exact.estimates)
    data = features(parse("in A f32[100]\nout Y f32[100]\nfor i:100 Y[i] = 0\nfor i:100 if A[i]>0: Y[i] = A[i]\n"))
    assert any("S1: an upper bound" in e for e in data.estimates)


_extent = st.sampled_from(["5", "i+1", "min(3,5-i)", "max(i-1,0)"])
_guard = st.sampled_from(["", "if i<3: ", "if i*5+j<11: ", "if i!=j: ", "if i>1 and j<2: "])


@settings(max_examples=40, deadline=None)
@given(_extent, _guard)
def test_instance_counts_are_exact_when_they_say_so(extent: str, guard: str) -> None:
    p = parse(f"in A f32[9]\nout Y f32[9,9]\nfor i:6 j:{extent} {guard}Y[i,j] = A[i]\n")
    (s,) = Model.of(p).statements
    real = 0
    for i in range(6):
        for j in range(eval_index(s.loops[1].extent, {"i": i})):
            real += all(eval_index(g, {"i": i, "j": j}) for g in s.guards)
    count, exact = instances(s)
    assert count == real if exact else count >= real
    if not guard:
        assert exact


def test_features_are_json_and_cached() -> None:
    p = parse(MM)
    assert features(p) is features(p)
    assert json.loads(json.dumps(features(p).to_dict()))["flops"] == features(p).flops


def test_lookups_have_no_stride() -> None:
    f = features(parse("in A f32[9,4] T i64[6] 0..9\nout Y f32[6,4]\nfor i:6 j:4 Y[i,j] = A[T[i],j]\n"))
    read = next(a for a in f.statements[0].accesses if a.buffer == "A")
    assert dict(read.strides) == {"i": None, "j": None}
    assert read.elements == 9 * 4


def test_host_round_trip_and_detection() -> None:
    host = HostInfo.detect()
    assert host.cores >= 1
    assert host.vector_bits in (128, 256, 512)
    assert HostInfo.from_dict(host.to_dict()) == host
    assert HostInfo("x", 1, 1, 1, 1, 64, 256).lanes(4) == 8
    with pytest.raises(UsageError):
        HostInfo.from_dict({"name": "x"})


def test_host_from_a_file_tree(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("host")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("processor : 0\nmodel name : Test CPU\nflags : sse2 avx2\n")
    for n, (level, kind, size) in enumerate((("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "30M"))):
        entry = root / f"sys/devices/system/cpu/cpu0/cache/index{n}"
        entry.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size), ("coherency_line_size", "64")):
            (entry / name).write_text(text + "\n")
    host = HostInfo.detect(str(root))
    assert (host.name, host.l1_bytes, host.l2_bytes, host.l3_bytes, host.vector_bits) == ("Test CPU", 48 << 10, 2 << 20, 30 << 20, 256)
