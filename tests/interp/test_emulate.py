"""Bound loops run as threads and blocks: the bits of serial order where a program is right, an error where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.analysis import safety_problems
from steptp.interp import EvalError, evaluate
from steptp.interp.emulate import emulate
from steptp.ir import parse

REVERSED = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp t f32[M] {scope}\n tx j:M t[j] = X[i,j]\n tx j:M Y[i,j] = t[M-1-j]\n"
RIGHT = {
    "shared": REVERSED.format(scope="shared"),
    "without_a_scope": REVERSED.format(scope=""),
    "steps": "size T=3 N=4\nin X f32[N]\nout Y f32[T+1,N]\nfor i:N Y[0,i] = X[i]\nfor t:T bx i:N Y[t+1,i] = Y[t,(i+1)%N]\n",
    "ping_pong": "size R=2 T=3 N=4\nin X f32[R,N]\nout Y f32[R,N]\nbx r:R\n tmp a f32[N] shared b f32[N] shared\n tx i:N a[i] = X[r,i]\n for t:T\n  tx i:N b[i] = a[(i+1)%N]\n  tx i:N a[i] = b[i]*2\n tx i:N Y[r,i] = a[i]\n",
    "idle_axes": "size N=2 M=3 K=2\nin X f32[N,M]\nout Y f32[N] Z f32[N,M,K]\nbx i:N\n Y[i] = 1\n for j:M carry Y[i] += X[i,j]\n tx j:M ty k:K Z[i,j,k] = X[i,j]*Y[i]\n",
    "own_copies": "size N=2 M=3\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp p f32[] local\n p[] = 0\n for j:M carry p[] += X[i,j]\n Y[i,0] = p[]\n tx j:M-1 Y[i,j+1] = X[i,j]\n",
    "guard_outside": "size N=3\nin X f32[N] f i32[1] 0..2\nout Y f32[N]\nfor i:N Y[i] = 1\nif f[0]<1: tx i:N Y[i] = X[i]\n",
    "integers": "size N=3 M=4\nin X i32[N,M] -9..9\nout Y i32[N]\nbx i:N for j:M Y[i] += X[i,j]\n",
}
WRONG = {
    "no_order_between_threads": ("size N=3 M=4\nin X f32[N,M]\nout Y f32[N]\nfor i:N Y[i] = 0\nbx i:N tx j:M carry Y[i] += X[i,j]\n", "eval-race"),
    "no_order_between_blocks": ("size N=3 M=4\nin X f32[N,M]\nout Y f32[M]\nfor j:M Y[j] = 0\nbx i:N tx j:M carry Y[j] += X[i,j]\n", "eval-race"),
    "two_grids": ("size N=2 M=4\nin X f32[N,M]\nout Y f32[N,M] Z f32[N,M]\nbx i:N\n by j:M Y[i,j] = X[i,j]\n by j:M Z[i,j] = Y[i,M-1-j]\n", None),
    "own_memory": ("size N=2 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntx i:N\n tmp t f32[M]\n ty j:M t[j] = X[i,j]\n for j:M Y[i,j] = t[j]\n", "eval-undefined"),
    "not_all_come": (
        "size N=2 M=4 S=2\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp B f32[S,M] shared\n tx j:M Y[i,j] = 0\n ty k:S\n  if k<1:\n   tx j:M B[k,j] = X[i,j]\n   tx j:M Y[i,j] = B[k,M-1-j]\n",
        "eval-divergent",
    ),
}


def _inputs(text: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    from steptp.ir import shape_of

    program = parse(text)
    return {
        b.name: rng.integers(0, 2, shape_of(b.shape, program)) if b.dtype.is_int else rng.standard_normal(shape_of(b.shape, program)).astype(np.float32)
        for b in program.inputs
    }


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_give_the_bits_of_serial_order(name: str) -> None:
    program, inputs = parse(RIGHT[name]), _inputs(RIGHT[name])
    assert not list(safety_problems(program))
    want = evaluate(program, inputs)
    for seed in range(4):
        assert all(np.array_equal(v, want[k]) and v.dtype == want[k].dtype for k, v in emulate(program, inputs, seed=seed).items())


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_are_found(name: str) -> None:
    text, code = WRONG[name]
    codes = set()
    for seed in range(4):
        with pytest.raises(EvalError) as caught:
            emulate(parse(text), _inputs(text), seed=seed)
        codes.add(caught.value.code)
    assert codes <= ({code} if code else {"eval-race", "eval-undefined"})
    if code != "eval-divergent":
        assert any(p.code == "race" for p in safety_problems(parse(text)))


def test_a_missing_barrier_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator does not take the barriers on trust: without them, programs that need them race."""
    from steptp.ir.kernels import Lanes

    monkeypatch.setattr(Lanes, "before", lambda self, body: (False,) * len(body))
    for name in ("shared", "ping_pong", "idle_axes"):
        with pytest.raises(EvalError) as caught:
            _in_four_orders(RIGHT[name])
        assert caught.value.code in ("eval-race", "eval-undefined")


def _in_four_orders(text: str) -> None:
    for seed in range(4):
        emulate(parse(text), _inputs(text), seed=seed)


def test_unwritten_outputs_and_bad_inputs_are_named() -> None:
    text = "size N=3\nin X f32[N]\nout Y f32[N]\ntx i:N if i<2: Y[i] = X[i]\n"
    with pytest.raises(EvalError, match="never written"):
        emulate(parse(text), _inputs(text))
    with pytest.raises(EvalError, match="inputs are"):
        emulate(parse(text), {})
