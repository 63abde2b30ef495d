"""Tiny bindings satisfy both programs, cover tile shapes, and stay small."""

from __future__ import annotations

import pytest
from eval_programs import CONV, MATMUL, MATMUL_TILED, PEELED

from steptp.interp.cost import count_instances
from steptp.ir import Program, parse, print_program
from steptp.ir.sizes import constraint_holds
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site
from steptp.verify.bindings import Bindings, apply_binding, factor_pairs, tiny_bindings


def _bind(*texts: str, **limits: int) -> Bindings:
    programs = [parse(t) for t in texts]
    found = tiny_bindings(*programs, **limits)
    for binding in found.found:
        total = 0
        for program in programs:
            bound = apply_binding(program, binding.values)  # raises when a constraint fails
            assert constraint_holds(bound, bound.size_env)
            assert all(v >= 1 for v in bound.size_env.values())
            total += count_instances(bound, bound.size_env)
        assert total == binding.instances
    return found


def test_pairs_come_from_divisions_by_sizes_and_numbers() -> None:
    assert factor_pairs(parse(MATMUL_TILED)) == {("N", "T")}
    assert factor_pairs(parse(PEELED)) == {("N", "T")}
    assert factor_pairs(parse(MATMUL)) == set()
    text = "size N=8\nin A f32[N]\nout Y f32[N]\nfor i:N Y[i] = A[i//4*4+i%4]\n"
    assert factor_pairs(parse(text)) == {("N", 4)}


def test_tiles_are_covered_in_every_shape() -> None:
    found = _bind(MATMUL, MATMUL_TILED)
    assert found.note == "all tile shapes covered"
    assert {c for b in found.found for c in b.covers} == {"full", "tail", "short"}
    assert [b.instances for b in found.found] == sorted(b.instances for b in found.found)


def test_distinct_sizes_get_distinct_values_without_tiles() -> None:
    found = _bind(MATMUL, MATMUL)
    assert len(found.found) == 1
    values = found.found[0].values
    assert len(set(values.values())) == len(values) == 3


@pytest.mark.parametrize(
    ("where", "checks"),
    [
        ("where N%T==0", lambda v: v["N"] % v["T"] == 0),
        ("where N%T==0, T%4==0", lambda v: v["T"] % 4 == 0),
        ("where N==64", lambda v: v["N"] == 64),
        ("where N>=3*T", lambda v: v["N"] >= 3 * v["T"]),
        ("where N*K==64", lambda v: v["N"] * v["K"] == 64),
        ("where N==L", lambda v: v["N"] == v["L"]),
    ],
)
def test_constraints_hold(where: str, checks: object) -> None:
    header = "size N=64 K=1 L=64 T=4"
    text = MATMUL_TILED.replace("size N=6 K=5 L=4 T=4", f"{header}\n{where}")
    found = _bind(MATMUL.replace("N=6 K=5 L=4", "N=64 K=1 L=64"), text)
    assert found.found
    assert all(checks(b.values) for b in found.found)  # type: ignore[operator]


def test_divisibility_leaves_full_tiles_and_the_note_says_so() -> None:
    found = _bind(MATMUL_TILED.replace("T=4\n", "T=2\nwhere N%T==0\n"))
    assert any("full" in b.covers for b in found.found)
    assert found.note == "not covered: tail, short"


def test_nested_tiles() -> None:
    text = """size N=64 T=16 U=4
where N%T==0, T%U==0
in A f64[N]
out Y f64[N]
for i:N//T j:T//U k:U Y[i*T+j*U+k] = A[i*T+j*U+k]
"""
    found = _bind(text)
    best = [b.values for b in found.found if b.values["N"] >= 2 * b.values["T"] and b.values["T"] >= 2 * b.values["U"]]
    assert best
    assert min(v["N"] for v in best) <= 16


def test_windows_keep_derived_sizes_positive_and_the_cost_low() -> None:
    text = """size N=8 C=64 O=64 H=56 W=56 R=3 OH=H-R+1 OW=W-R+1
in X f32[N,C,H,W] F[O,C,R,R]
out Y f32[N,O,OH,OW]
for n:N o:O h:OH w:OW c:C r:R s:R Y[n,o,h,w] += X[n,c,h+r,w+s]*F[o,c,r,s]
"""
    found = _bind(text, text)
    assert found.found
    assert found.found[0].instances <= 1200
    assert found.found[0].values["R"] >= 2
    assert _bind(CONV, CONV).found


def test_pinned_sizes_fall_back_to_the_limit_or_to_nothing() -> None:
    pinned = MATMUL.replace("size N=6 K=5 L=4", "size N=20 K=20 L=20\nwhere N==20, K==20, L==20")
    found = _bind(pinned)
    assert found.found[0].values == {"N": 20, "K": 20, "L": 20}
    found = _bind(pinned, limit=5000)
    assert found.found == ()
    assert "5000" in found.note


def test_sizes_under_a_root_are_squares() -> None:
    text = "size N=6 D=64\nin X f64[N,D]\nout Y f64[N,D]\nfor i:N d:D Y[i,d] = X[i,d]/sqrt(f64(D))\n"
    assert _bind(text).found[0].values["D"] in (1, 4, 9)


def test_programs_without_sizes_have_one_binding() -> None:
    text = "in A f64[3]\nout Y f64[3]\nfor i:3 Y[i] = A[i]\n"
    found = _bind(text, text)
    assert [b.sizes for b in found.found] == [()]


def test_the_search_is_deterministic_and_bounded() -> None:
    names = [f"S{n}" for n in range(9)]
    head = " ".join(f"{n}=64" for n in names)
    dims = ",".join(names)
    loops = " ".join(f"i{n}:{n}" for n in names)
    at = ",".join(f"i{n}" for n in names)
    text = f"size {head}\nwhere {names[0]}*{names[8]}==4096\nin A f64[{dims}]\nout Y f64[{dims}]\nfor {loops} Y[{at}] = A[{at}]\n"
    first, second = _bind(text), _bind(text)
    assert first == second


def test_tiles_of_a_derived_size_are_aimed_at_through_its_carrier() -> None:
    text = """size H=32 R=3 T=4 OH=H-R+1
in X f64[H] F[R]
out Y f64[OH]
for i:(OH+T-1)//T j:T r:R if i*T+j<OH: Y[i*T+j] += X[i*T+j+r]*F[r]
"""
    found = _bind(text)
    assert found.note == "all tile shapes covered"
    shapes = set()
    for binding in found.found:
        bound = apply_binding(parse(text), binding.values).size_env
        whole, rest = divmod(bound["OH"], bound["T"])
        shapes.add("short" if not whole else "tail" if rest else "full" if whole >= 2 else "single")
        assert bound["R"] >= 2
    assert shapes == {"full", "tail", "short"}


def test_sizes_at_which_an_access_would_leave_its_array_are_not_chosen() -> None:
    text = """size D=8 M=3 OD=D-M+1
in X f64[D] F[M]
out Y f64[]
tmp c f64[OD]
for k:OD q:M c[k] += X[k+q]*F[q]
for p:4 Y[] max= c[p]
"""
    found = _bind(text)
    assert found.found
    assert all(b.values["D"] - b.values["M"] + 1 >= 4 for b in found.found)


WIDE = "in A f32[16,256] B[256,N=32]\nout Y f32[16,N]\nfor i:16 j k:256 Y[i,j]+=A[i,k]*B[k,j]\n"
FLAT = "in A f32[N=32,256]\nout Y f32[N*256]\nfor f:N*256 Y[f]=A[f//256,f%256]\n"


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        (WIDE, "loop_tiling@0.0:outer=8,inner=32,tail=exact", "loop_split@0.0.0.0:factor=2,tail=exact"),
        (WIDE, "loop_tiling@0:outer=8,inner=16,tail=exact", "loop_tiling@0.0.0.0:outer=4,inner=32,tail=exact"),
        (WIDE, "loop_split@0.0:factor=8,tail=exact", "loop_tiling@0.0.0:outer=2,inner=16,tail=exact"),
        (FLAT, "loop_split@0:factor=8,tail=exact", "loop_tiling@0:outer=3,inner=3,tail=guard"),
        (FLAT, "loop_split@0:factor=3,tail=guard", "loop_tiling@0:outer=2,inner=2,tail=guard"),
    ],
)
def test_tiles_of_literal_extents_leave_a_binding_of_parent_and_child(text: str, first: str, second: str) -> None:
    parent = _step(parse(text), first)
    child = _step(parent, second)
    found = _bind(print_program(parent), print_program(child))
    assert found.found, found.note
    assert max(v for name, v in found.found[-1].sizes if name.startswith("T")) >= 2


def _step(program: Program, site: str) -> Program:
    outcome = engine.apply(program, Site.parse(site))
    assert isinstance(outcome, Applied), outcome
    return outcome.program


def test_a_search_without_room_grows_the_least_assignment() -> None:
    text = """size T3=3 T2=8 T1=8 T0=8
in A f32[16,256] B[256,N=32]
out Y[16,N]
where 256%T0==0, 16%T1==0, N%T2==0
for i0:16//T1 j2:(N//T2-1)//T3+1 j3:T3 if j2*T3+j3<N//T2: for i1:T1 j1:T2
 for k0:256//T0 k1:T0 Y[i0*T1+i1,j2*T2*T3+j3*T2+j1]+=A[i0*T1+i1,k0*T0+k1]*B[k0*T0+k1,j2*T2*T3+j3*T2+j1]
"""
    assert [b.values for b in _bind(text, limit=5000).found] == [{"T3": 1, "T2": 1, "T1": 4, "T0": 4, "N": 1}]
    assert _bind(text, limit=4000).found == ()


def test_accesses_that_need_room_are_reached_from_the_present_sizes() -> None:
    text = """size T1=3 T0=3
in x f32[D=6,H=6,W=6] kernel[N=2,M=3,K=3,L=3]
out Y[N]
tmp c[N,OD=D-M+1,OH=H-K+1,OW=W-L+1] s[OD,OH,OW] d[N,P=(D-M+1)//2,Q=(H-K+1)//2,R=(W-L+1)//2]
for i j k l q r u c[i,j,k,l]+=x[j+q,k+r,l+u]*kernel[i,q,r,u]
for i0:(OD-1)//T0+1 j0:(OH-1)//T1+1 i1:T0 j1:T1 if i0*T0+i1<OD and j0*T1+j1<OH: for k l s[i0*T0+i1,j0*T1+j1,k]+=exp(c[l,i0*T0+i1,j0*T1+j1,k])
for i j k l p:2 q:2 r:2 d[i,j,k,l] max=c[i,2*j+p,2*k+q,2*l+r]*s[2*j+p,2*k+q,2*l+r]
for i j:2 k:2 l:2 Y[i] max=d[i,j,k,l]
"""
    found = _bind(text, text).found
    assert found
    assert all(v["D"] - v["M"] + 1 >= 4 and v["H"] - v["K"] + 1 >= 4 for v in (b.values for b in found))
