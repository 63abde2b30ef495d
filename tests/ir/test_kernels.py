"""Kernels: what is launched, where temporaries live, who runs a store, where threads wait."""

from __future__ import annotations

import pytest

from steptp.ir import Loop, LoopKind, Program, Scope, Store, materialize, parse
from steptp.ir.kernels import Lanes, divergent_barrier, kernels, may_diverge, placement

HEAD = "size N=4 M=3 S=2\nin A f32[N,M] p i32[N] 0..2\nout Y f32[N,M]\n"


def _program(body: str, tmp: str = "") -> Program:
    return parse(HEAD + (f"tmp {tmp}\n" if tmp else "") + body + "\n")


def test_a_kernel_is_an_outermost_bound_loop_with_its_largest_extents() -> None:
    program = _program("for i:N bx j:M Y[i,j] = 0\nby i:N\n tx j:M Y[i,j] = 1\n tx j:S Y[i,j] = 2")
    first, second = kernels(program)
    assert (first.path, dict(first.extents), first.blocks, first.threads) == ((0, 0), {LoopKind.BLOCK_X: 3}, 3, 1)
    assert (second.path, second.blocks, second.threads) == ((1,), 4, 3)


@pytest.mark.parametrize(
    ("body", "tmp", "name", "place"),
    [
        ("for i:N t[i] = 1\nbx i:N for j:M Y[i,j] = t[i]", "t f32[N]", "t", Scope.GLOBAL),
        ("for i:N t[i] = 1\nfor i:N j:M Y[i,j] = t[i]", "t f32[N] local", "t", Scope.GLOBAL),
        ("for i:N\n tmp t f32[]\n t[] = 1\n tx j:M Y[i,j] = t[]", "", "t", Scope.GLOBAL),
        ("bx i:N\n tmp t f32[]\n t[] = 1\n tx j:M Y[i,j] = t[]", "", "t", Scope.SHARED),
        ("bx i:N\n tmp t f32[]\n t[] = 1\n for j:M Y[i,j] = t[]", "", "t", Scope.LOCAL),
        ("bx i:N\n tmp t f32[] local\n t[] = 1\n Y[i,0] = t[]\n tx j:M-1 Y[i,j+1] = 1", "", "t", Scope.LOCAL),
        ("bx i:N tx j:M\n tmp t f32[]\n t[] = 1\n Y[i,j] = t[]", "", "t", Scope.LOCAL),
        ("bx i:N\n tmp t f32[] shared\n t[] = 1\n for j:M Y[i,j] = t[]", "", "t", Scope.SHARED),
    ],
)
def test_temporaries_live_with_those_who_enter_their_loop(body: str, tmp: str, name: str, place: Scope) -> None:
    assert placement(_program(body, tmp))[name] is place


def _lanes(body: str) -> tuple[Lanes, Loop]:
    program = materialize(_program(body)).program
    (kernel,) = kernels(program)
    private = frozenset(n for n, s in placement(program).items() if s is Scope.LOCAL)
    return Lanes.of(kernel, private).enter(kernel.loop, program.size_env), kernel.loop


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("bx i:N\n tx j:M Y[i,j] = A[i,j]\n tx j:M Y[i,j] = Y[i,M-1-j]", (False, True)),
        ("bx i:N\n tx j:M Y[i,j] = A[i,j]\n Y[i,0] = 1", (False, True)),
        ("bx i:N\n Y[i,0] = 1\n Y[i,0] = 2\n tx j:M Y[i,j] = A[i,j]", (False, False, True)),  # one thread, twice, then all
        ("bx i:N\n for j:M Y[i,j] = A[i,j]\n Y[i,0] = 1", (False, False)),  # a block of one thread
        ("bx i:N tx j:M\n Y[i,j] = A[i,j]\n Y[i,j] = Y[i,j]+1", (False,)),
        ("bx i:N\n tx j:M Y[i,j] = A[i,j]\n tx j:M Y[i,j] = A[i,j]+1", (False, False)),  # each thread its own element
        ("bx i:N\n tx j:M Y[i,M-1-j] = A[i,j]\n tx j:M Y[i,M-1-j] = A[i,j]+1", (False, False)),
        ("bx i:N\n tx j:M Y[i,j] = A[i,j]\n tx j:S Y[i,j+1] = A[i,j]+1", (False, True)),
        ("bx i:N\n tx j:M ty k:S if k<1: Y[i,j] = A[i,j]\n tx j:M ty k:S if k<1: Y[i,j] = Y[i,j]+1", (False, True)),
        ("bx i:N\n tmp t f32[] local\n tx j:M Y[i,j] = A[i,j]\n t[] = Y[i,0]\n tx j:M if A[i,j]>1: Y[i,j] = A[i,j]\n t[] = 1", (False, True, True, False)),
    ],
)
def test_threads_wait_before_what_others_touched(body: str, waits: tuple[bool, ...]) -> None:
    lanes, loop = _lanes(body)
    assert lanes.before(loop.body) == waits


def test_threads_wait_between_iterations_that_pass_values() -> None:
    lanes, loop = _lanes("bx i:N for s:S\n tx j:M Y[i,j] = A[i,j]\n tx j:M Y[i,M-1-j] = Y[i,j]")
    serial = loop.body[0]
    assert isinstance(serial, Loop)
    assert lanes.behind(serial)
    lanes, loop = _lanes("bx i:N for s:S tx j:M if s<1: Y[i,j] = A[i,j]\n")
    assert isinstance(loop.body[0], Loop)
    assert not lanes.behind(loop.body[0])  # the same thread writes in every iteration
    lanes, loop = _lanes("bx i:N for s:S tx j:M if s<1: Y[i,(j+s)%M] = A[i,j]\n")
    assert isinstance(loop.body[0], Loop)
    assert lanes.behind(loop.body[0])
    lanes, loop = _lanes("bx i:N tx j:M for s:S Y[i,j] = A[i,j]")
    threads = loop.body[0]
    assert isinstance(threads, Loop)
    serial = threads.body[0]
    assert isinstance(serial, Loop)
    assert not lanes.enter(threads, {"M": 3}).behind(serial)


def test_idle_axes_leave_a_store_to_their_first_thread_or_block() -> None:
    lanes, loop = _lanes("bx i:N\n tmp t f32[] local\n t[] = 1\n Y[i,0] = t[]\n by k:S tx j:M if k<1: Y[i,j] = A[i,j]")
    own, shared = loop.body[:2]
    assert isinstance(own, Store)
    assert isinstance(shared, Store)
    assert lanes.idle(own) == (LoopKind.BLOCK_Y,)
    assert set(lanes.idle(shared)) == {LoopKind.BLOCK_Y, LoopKind.THREAD_X}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("bx i:N\n tx j:M Y[i,j] = 0\n ty k:S\n  if k<1:\n   tx j:M Y[i,j] = A[i,j]\n   tx j:M Y[i,j] = Y[i,M-1-j]", (0, 1, 0, 1)),
        ("bx i:N\n tx j:M Y[i,j] = 0\n for k:S\n  if p[i]>0:\n   tx j:M Y[i,j] = A[i,j]\n   tx j:M Y[i,j] = Y[i,M-1-j]", (0, 1, 0, 1)),
        ("bx i:N ty k:S for s:k+1 tx j:M if s<1: Y[i,(j+s)%M] = A[i,j]", (0, 0, 0)),
        ("bx i:N\n for k:S\n  if k<1:\n   tx j:M Y[i,j] = A[i,j]\n   tx j:M Y[i,j] = Y[i,M-1-j]\n tx j:M Y[i,j] = 0", None),
        ("bx i:N\n tx j:S Y[i,j] = A[i,j]\n tx j:M if j>0: Y[i,j] = A[i,j]\n Y[i,0] = 1", None),
    ],
)
def test_a_barrier_under_control_that_threads_do_not_share_is_found(body: str, where: tuple[int, ...] | None) -> None:
    program = materialize(_program(body)).program
    assert divergent_barrier(program) == where
    assert where is None or may_diverge(program)
