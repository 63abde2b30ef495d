"""Canonical forms and hashes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from steptp.ir import alpha_equal, canonical, parse, print_program, problems, program_hash, rebind, shape_hash

BASE = """size N=64 K=128 L=32
in A f32[N,K] B[K,L]
out Y f32[N,L]
tmp C f32[N,L] m[N] s[N]
for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]
for i:N j:L m[i] max= C[i,j]
for i:N j:L s[i] += exp(C[i,j]-m[i])
for i:N j:L Y[i,j] = exp(C[i,j]-m[i])/s[i]
"""

RENAMED = """size Wide=32 Deep=128 Rows=64
in A f32[Rows,Deep] B[Deep,Wide]
out Y f32[Rows,Wide]
tmp total f32[Rows] top[Rows] P[Rows,Wide]
for a:Rows b:Wide c:Deep P[a,b] += A[a,c]*B[c,b]
for a:Rows k:Wide top[a] max= P[a,k]
for x:Rows y:Wide total[x] += exp(P[x,y]-top[x])
for q:Rows r:Wide Y[q,r] = exp(P[q,r]-top[q])/total[q]
"""


def test_canonical_text() -> None:
    assert print_program(canonical(parse(RENAMED))) == (
        "in A f32[s0=64,s1=128] B[s1,s2=32]\nout Y[s0,s2]\ntmp t0[s0,s2] t1 t2[s0]\n"
        "for v0 v1 v2 t0[v0,v1]+=A[v0,v2]*B[v2,v1]\nfor v3 v4 t1[v3] max=t0[v3,v4]\n"
        "for v5 v6 t2[v5]+=exp(t0[v5,v6]-t1[v5])\nfor v7 v8 Y[v7,v8]=exp(t0[v7,v8]-t1[v7])/t2[v7]\n"
    )


def test_names_and_declaration_orders_do_not_matter() -> None:
    a, b = parse(BASE), parse(RENAMED)
    assert alpha_equal(a, b)
    assert program_hash(a) == program_hash(b)
    assert shape_hash(a) == shape_hash(b)
    assert len(program_hash(a)) == len(shape_hash(a)) == 16


DIFFERENT = [
    BASE.replace("A", "Q"),  # an interface tensor has another name
    BASE.replace("in A f32[N,K] B[K,L]", "in B f32[K,L] A[N,K]"),  # order of the interface
    BASE.replace("for i:N j:L m[i]", "for j:L i:N m[i]"),  # loop order
    BASE.replace("for i:N j:L k:K", "par i:N for j:L k:K"),  # loop kind
    BASE.replace("A[i,k]*B[k,j]", "B[k,j]*A[i,k]"),  # order of operands
    BASE.replace("L=32", "L=64"),  # two sizes happen to be equal
    BASE.replace("size N=64 K=128 L=32", "size N=64 K=128 L=32\nwhere N%2==0"),  # a constraint
    BASE.replace("K=128", "K=N*2"),  # a derived size
    BASE.replace("s[N]", "s[N] local"),  # a scope
    BASE.replace("f32", "f64"),
]


@pytest.mark.parametrize("text", DIFFERENT)
def test_what_matters_changes_the_hash(text: str) -> None:
    a, b = parse(BASE), parse(text)
    assert not alpha_equal(a, b)
    assert program_hash(a) != program_hash(b)
    assert (shape_hash(a) == shape_hash(b)) == ("L=64" in text)


def test_shape_hash_forgets_values_and_hash_does_not() -> None:
    a = parse(BASE)
    b = rebind(a, {"N": 3, "K": 5})
    assert shape_hash(a) == shape_hash(b)
    assert program_hash(a) != program_hash(b)


def test_indices_are_compared_in_canonical_form() -> None:
    a = parse("size N=8 T=2\nin A f32[N]\nout Y f32[N]\nfor i:N//T j:T Y[i*T+j] = A[j+T*i+1-1]*select(i*T+j<4,1,0)\n")
    b = parse("size N=8 T=2\nin A f32[N]\nout Y f32[N]\nfor i:N//T j:T Y[j+i*T] = A[T*i+j]*select(j+i*T<4,1,0)\n")
    assert alpha_equal(a, b)
    c = parse("size N=8 T=2\nin A f32[N]\nout Y f32[N]\nfor i:N//T j:T Y[(i*T+j)//T*T+j] = A[i*T+j]*select(i*T+j<4,1,0)\n")
    assert alpha_equal(a, c)


def test_generated_names_keep_clear_of_the_interface() -> None:
    program = parse("size s0=4\nin t0 f32[s0] v0[s0]\nout s1 f32[s0]\ntmp q f32[s0]\nfor i:s0 q[i] = t0[i]+v0[i]\nfor i:s0 s1[i] = q[i]\n")
    form = canonical(program)
    assert problems(form) == ()
    assert [b.name for b in form.tmps] == ["t1"]
    assert canonical(form) == form


def test_unused_sizes_are_dropped_and_derived_ones_follow_their_sources() -> None:
    program = parse("size Q=9 H=8 K=3 P=H-K+1 R=Q*2\nin A f32[P]\nout Y f32[H]\nfor i:P Y[i] = A[i]\nfor i:K-1 Y[P+i] = 0\n")
    assert print_program(canonical(program)).splitlines()[:2] == ["size s1=8 s2=3", "in A f32[s0=s1-s2+1]"]


def test_constraints_are_sorted() -> None:
    head, rest = "size N=4 T=2\nwhere {}\n", "out Y f32[N]\nfor i:N//T j:T Y[i*T+j] = 1\n"
    a = parse(head.format("N%T==0, T>1") + rest)
    b = parse(head.format("T>1, N%T==0") + rest)
    assert program_hash(a) == program_hash(b)


def test_hashes_are_the_same_in_another_process() -> None:
    code = f"from steptp.ir import *; p = parse({BASE!r}); print(program_hash(p), shape_hash(p))"
    path = ":".join(sys.path)
    runs = set()
    for seed in ("1", "2"):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONPATH": path, "PYTHONHASHSEED": seed})
        runs.add(done.stdout)
    program = parse(BASE)
    assert runs == {f"{program_hash(program)} {shape_hash(program)}\n"}
