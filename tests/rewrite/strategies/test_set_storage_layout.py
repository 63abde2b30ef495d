"""set_storage_layout: blocked, split and fused dimensions of temporaries."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.analysis import safety_problems
from steptp.analysis.host import HostInfo
from steptp.ir import print_program
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site

STRATEGY = "set_storage_layout"
PACK = "size N=4 K=8\nin X f32[N,K] W[K]\nout Y f32[N,K] Z[N]\ntmp t f32[N,K]\nfor i:N j:K t[i,j] = X[i,j]*2\nfor i:N j:K Y[i,j] = t[i,K-1-j]\nfor i:N k:K Z[i] += t[i,k]*W[k]\n"
SUM = "size N=8 M=3 K=2\nin X f32[N,M,K]\nout Y f32[N,M]\ntmp t f32[N,M]\nfor i:N j:M k:K t[i,j] += X[i,j,k]\nfor i:N j:M Y[i,j] = 0\nfor i:N j:M if t[i,j]>=1: Y[i,j] = t[i,j]\n"
TILED = "size N=8 M=6 T0=4\nin X f32[N,M]\nout Y f32[M,N]\ntmp t f32[N,M]\nwhere N%T0==0\nfor i0:N//T0 i1:T0 j:M t[i0*T0+i1,j] = X[i0*T0+i1,j]\nfor j:M i0:N//T0 i1:T0 Y[j,i0*T0+i1] = t[i0*T0+i1,j]\n"
PRIVATE = (
    "size R=2 N=4 M=3\nin X f32[R,N,M]\nout Y f32[R,M,N]\nfor r:R\n tmp t f32[N,M] local\n for i:N j:M t[i,j] = X[r,i,j]\n for j:M i:N Y[r,j,i] = t[i,j]\n"
)
SHIFTED = "size N=7\nin X f32[N+1]\nout Y f32[N]\ntmp t f32[N+1]\nfor i:N t[i+1] = X[i]\nt[0] = 0\nfor i:N Y[i] = t[i]+t[i+1]\n"
TABLE = "size N=4 M=6\nin T i64[N] 0..M X f32[M]\nout Y f32[N]\ntmp t f32[M] u i64[N]\nfor m:M t[m] = X[m]\nfor i:N u[i] = T[i]\nfor i:N Y[i] = t[u[i]]\n"
STRIDED = "size N=4\nin X f32[N]\nout Y f32[2*N]\ntmp t f32[2*N]\nfor i:N t[2*i] = X[i]\nfor i:N t[2*i+1] = -X[i]\nfor i:2*N Y[i] = t[i]\n"
SCALAR = "size N=4\nin X f32[N]\nout Y f32[]\ntmp t f32[]\nfor i:N t[] += X[i]\nY[] = t[]\n"
CASES = {
    "packed": (PACK, "set_storage_layout@:buffer=t,op=block,dim=0,factor=2,to=last"),
    "panels": (PACK, "set_storage_layout@:buffer=t,op=block,dim=1,factor=4,to=first"),
    "split_by_the_tile": (TILED, "set_storage_layout@:buffer=t,op=split,dim=0,factor=T0"),
    "accumulator": (SUM, "set_storage_layout@:buffer=t,op=block,dim=0,factor=2,to=last"),
    "private": (PRIVATE, "set_storage_layout@0:buffer=t,op=block,dim=0,factor=2,to=last"),
    "fused": (PACK, "set_storage_layout@:buffer=t,op=fuse,dim=0"),
    "shifted": (SHIFTED, "set_storage_layout@:buffer=t,op=split,dim=0,factor=4"),
    "looked_up": (TABLE, "set_storage_layout@:buffer=t,op=split,dim=0,factor=3"),
    "strided": (STRIDED, "set_storage_layout@:buffer=t,op=split,dim=0,factor=2"),
    "refuse_output": ("matmul", "set_storage_layout@:buffer=C,op=fuse,dim=0"),
    "refuse_tail": (PACK, "set_storage_layout@:buffer=t,op=block,dim=0,factor=3,to=last"),
    "refuse_whole": (PACK, "set_storage_layout@:buffer=t,op=block,dim=0,factor=4,to=first"),
    "refuse_last": (PACK, "set_storage_layout@:buffer=t,op=block,dim=1,factor=4,to=last"),
    "refuse_first": (PACK, "set_storage_layout@:buffer=t,op=block,dim=0,factor=2,to=first"),
    "refuse_no_neighbour": (PACK, "set_storage_layout@:buffer=t,op=fuse,dim=1"),
    "refuse_dimension": (SCALAR, "set_storage_layout@:buffer=t,op=split,dim=0,factor=2"),
    "refuse_place": (PRIVATE, "set_storage_layout@:buffer=t,op=fuse,dim=0"),
    "refuse_params": (PACK, "set_storage_layout@:buffer=t,op=block,dim=0,factor=2"),
    "refuse_too_large": (PACK, "set_storage_layout@:buffer=t,op=split,dim=1,factor=8"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 1


@pytest.mark.parametrize("text", [PACK, SUM, TILED, PRIVATE, SHIFTED, TABLE, STRIDED])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    sites = dict(all_applied(STRATEGY, subject))
    hand = [Site.parse(s) for t, s in CASES.values() if t == text]
    for site in [*sites, *(s for s in hand if isinstance(engine.apply(subject, s), Applied) and s not in sites)]:
        step = engine.applied_or_raise(subject, site)
        check_step(subject, site, step)
        assert not list(safety_problems(step.program)), print_program(step.program)
        why = explain(subject, step, site, candidates=[site], rule="balanced-random", host=(host := HostInfo.detect()))
        assert check_text(why.text, subject, step.program, site.id, candidates=[site.id], host=host.to_dict()) == ()


def test_blocks_and_fusions_are_undone() -> None:
    undone = {site.id: step.inverse for site, step in all_applied(STRATEGY, program(SUM))}
    assert [s.strategy for s in undone["set_storage_layout@:buffer=t,op=block,dim=0,factor=2,to=last"]] == ["layout_transformation", STRATEGY]
    assert all(undone.values())
    tiled = {site.id: step.inverse for site, step in all_applied(STRATEGY, program(TILED))}
    assert [s.id for s in tiled["set_storage_layout@:buffer=t,op=split,dim=0,factor=T0"]] == ["set_storage_layout@:buffer=t,op=fuse,dim=0"]


def test_fusing_drops_the_tile_size() -> None:
    blocked = engine.applied_or_raise(program(SUM), "set_storage_layout@:buffer=t,op=split,dim=0,factor=2").program
    site = Site.parse("set_storage_layout@:buffer=t,op=fuse,dim=0")
    step = engine.applied_or_raise(blocked, site)
    check_step(blocked, site, step)
    assert [s.name for s in step.program.sizes] == ["N", "M", "K"]
