"""Compiled programs against the NumPy evaluator, over every construct of LEIR."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.interp import evaluate
from steptp.ir import parse
from steptp.ir.nodes import Program
from steptp.ir.sizes import eval_index, shape_of
from steptp.ir.types import DType
from steptp.lower import BuildOptions, build
from steptp.lower.build import from_storage, to_storage

PROGRAMS = {
    "matmul": "size N=5 K=7 L=6\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n",
    "reduce outer": "size N=5 K=7 L=6\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor k:K i:N j:L C[i,j] += A[i,k]*B[k,j]\n",
    "guarded tail": "size N=37 T=8\nin X f32[N]\nout Y f32[N]\nfor o:(N+T-1)//T par i:T if o*T+i<N: Y[o*T+i] = X[o*T+i]*2\n",
    "vector tail": "size N=37\nin X f32[N]\nout Y f32[N]\nvec i:N Y[i] = X[i]*2+1\n",
    "vector guard": "size N=37 T=16\nin X f32[N]\nout Y f32[N]\nfor o:(N+T-1)//T vec i:T if o*T+i<N: Y[o*T+i] = X[o*T+i]*2\n",
    "vector guard unprovable": "size N=37 T=16\nin X f32[N] M bool[N]\nout Y f32[N]\nvec i:N Y[i] = 0\nvec i:N if M[i]: Y[i] = X[i]\n",
    "padded convolution": "size N=21 R=5\nin X f32[N] W[R]\nout Y f32[N]\n"
    "for r:R vec i:N Y[i] += select(0<=i+r-2 and i+r-2<N, X[i+r-2], 0)*W[r]\n",
    "padding serial": "size N=9\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = select(i>=2, X[i-2], 5)\n",
    "lazy no-side": "size N=19\nin X f32[N]\nout Y f32[N]\nvec i:N Y[i] = select(i<3, 7, X[i-3])\n",
    "gather": "size N=6 V=9 D=20\nin T i64[N] 0..V E f32[V,D]\nout Y f32[N,D]\nfor n:N vec d:D Y[n,d] = E[T[n],d]\n",
    "gather by lane": "size N=40 V=9\nin T i32[N] 0..V E f32[V]\nout Y f32[N]\nvec n:N Y[n] = E[i64(T[n])]\n",
    "histogram": "size N=30 V=5\nin T i64[N] 0..V\nout H f32[V]\nfor v:V H[v] = 0\nfor n:N carry H[T[n]] += 1\n",
    "argmax": "size N=7 K=9\nin X f32[N,K]\nout A i64[N]\ntmp M f32[N]\nfor i:N\n  M[i] = -inf\n  A[i] = 0\n"
    "  for k:K if X[i,k]>M[i]:\n    A[i] = k\n    M[i] = X[i,k]\n",
    "scan": "size N=6 K=17\nin X f32[N,K]\nout Y f32[N,K]\nfor i:N\n  Y[i,0] = X[i,0]\n  for k:K-1 Y[i,k+1] = Y[i,k]+X[i,k+1]\n",
    "online softmax": "size N=4 K=33\nin X f32[N,K]\nout Y f32[N,K]\npar i:N\n  tmp m f32[] s[] p[]\n  m[] = -inf\n  s[] = 0\n  for k:K\n    p[] = m[]\n"
    "    m[] = max(m[],X[i,k])\n    s[] = s[]*select(p[]==m[],1,exp(p[]-m[]))+select(X[i,k]==m[],1,exp(X[i,k]-m[]))\n"
    "  for k:K Y[i,k] = exp(X[i,k]-m[])/s[]\n",
    "lane temporaries": "size N=40\nin X f32[N]\nout Y f32[N]\nvec i:N\n  tmp t f32[2] s[]\n  t[0] = X[i]*X[i]\n  t[1] = X[i]/3\n  s[] = t[0]-t[1]\n"
    "  if s[]>i-20: Y[i] = s[]\n  if not s[]>i-20: Y[i] = t[1]\n".replace("i-20", "f32(i-20)"),
    "register tile": "size N=16 K=9 L=32 TI=4\nin A f32[N,K] B[K,L]\nout C f32[N,L]\npar io:N//TI\n  tmp R f32[TI,L] local\n"
    "  for k:K unroll i:TI vec j:L R[i,j] += A[io*TI+i,k]*B[k,j]\n  unroll i:TI vec j:L C[io*TI+i,j] = R[i,j]\n",
    "parallel in serial": "size N=6 M=7\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N par j:M\n  tmp t f32[M]\n  for k:M t[k] = X[i,k]*X[i,k]\n  Y[i,j] = t[j]\n",
    "vector without store index": "size N=6\nin X f32[N]\nout S f32[] Y f32[N]\nS[] = 0\nvec i:N if i==3: carry S[] += X[i]\nvec i:N Y[i] = X[i]\n",
    "bound as serial": "size N=6 M=16\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N tx j:M Y[i,j] = X[i,j]-1\n",
    "triangle": "size N=9\nin X f32[N,N]\nout S f32[N]\nfor i:N j:i+1 S[i] += X[i,j]\n",
    "zero trips": "size N=4 K=0\nin X f32[N,K]\nout S f32[N]\nfor i:N k:K S[i] += X[i,k]\n",
    "empty output": "size N=0\nin X f32[N]\nout Y f32[N] Z f32[]\npar i:N Y[i] = X[i]\nZ[] = 3\n",
    "strides and negatives": "size N=24\nin X f32[N]\nout Y f32[N]\nvec i:N Y[i] = X[N-1-i]+X[(i*5+3)%N]+X[i//3]\n",
    "integers": "size N=29\nin X i32[N] -50..50 Y i32[N] 1..9 Z i8[N] -20..20\nout A i32[N] B[N] C[N] D i8[N] E i64[N]\n"
    "vec i:N A[i] = X[i]//Y[i]\nvec i:N B[i] = X[i]%(-Y[i])\nfor i:N C[i] = max(abs(X[i]),Y[i])-min(X[i],3)\nvec i:N D[i] = Z[i]*3//2\n"
    "for i:N E[i] = i64(X[i])*i+i\n",
    "bools": "size N=29\nin P bool[N] Q[N] X f32[N]\nout A bool[N] B[N] C[N] D bool[] E bool[]\nvec i:N A[i] = P[i] and not Q[i]\nfor i:N B[i] = P[i] or X[i]>0\n"
    "vec i:N C[i] = P[i]==Q[i]\nfor i:N D[] or= P[i] and Q[i]\nfor i:N E[] and= P[i] or Q[i]\n",
    "index values": "size N=29\nin X f32[N]\nout Y f32[N] Z i64[N]\nvec i:N Y[i] = X[i]*f32(i*3+N)/f32(N)\nvec i:N Z[i] = select(i%2==0,i,-i)\n",
    "reducers": "size N=4 K=9\nin X f32[N,K] I i32[N,K] -9..9\nout P f32[N] H[N] L[N] J i32[N] M[N]\nfor i:N k:K P[i] *= X[i,k]\nfor k:K vec i:N H[i] max= X[i,k]\n"
    "for i:N k:K L[i] min= X[i,k]\nfor i:N k:K J[i] max= I[i,k]\nfor i:N k:K M[i] += I[i,k]\n",
    "f16": "size N=37 K=11\nin A f16[N,K] B f16[K]\nout Y f16[N] Z f32[N]\nfor k:K vec i:N Y[i] += A[i,k]*B[k]\nfor i:N k:K Z[i] += f32(A[i,k])*f32(B[k])\n",
    "bf16": "size N=37 K=11\nin A bf16[N,K] B bf16[K]\nout Y bf16[N] Z f32[N]\ntmp T bf16[N]\nfor i:N k:K T[i] += A[i,k]*B[k]\nvec i:N Y[i] = T[i]/3+1\n"
    "vec i:N Z[i] = f32(bf16(f32(T[i])*0.7))\n",
    "f64": "size N=37\nin A f64[N]\nout Y f64[N] Z f16[N] W bf16[N]\nvec i:N Y[i] = sqrt(abs(A[i]))-A[i]/3\nfor i:N Z[i] = f16(A[i])\nvec i:N W[i] = bf16(A[i]*1e-40)\n",
    "long index": "size N=20\nin X f32[N]\nout Y i64[N]\nfor i:N Y[i] = (i+3)*3000000000\n",
    "carried split": "size N=9 K=12 T=5\nin X f32[N,K]\nout S f32[N]\nfor i:N S[i] = 0\n"
    "for ko:(K+T-1)//T k:T vec i:N if ko*T+k<K: carry S[i] += X[i,ko*T+k]\n",
}  # fmt: skip


def inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for buffer in program.inputs:
        shape = shape_of(buffer.shape, program)
        if buffer.dtype is DType.BOOL:
            out[buffer.name] = rng.random(shape) < 0.5
        elif buffer.dtype.is_int:
            low, high = (eval_index(e, program.size_env) for e in buffer.range or ())
            out[buffer.name] = rng.integers(low, high, shape).astype(str(buffer.dtype).replace("i", "int"))
        else:
            values = rng.standard_normal(shape) * 3
            kind = {DType.F16: np.float16, DType.F64: np.float64}.get(buffer.dtype, np.float32)
            out[buffer.name] = from_storage(to_storage(values.astype(kind), buffer.dtype), buffer.dtype)
    return out


def same(got: np.ndarray, want: np.ndarray) -> bool:
    if got.dtype.kind != "f":
        return bool(np.array_equal(got, want))
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.dtype.itemsize]
    equal = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(want.astype(got.dtype)).view(bits)
    return bool(np.all(equal | (np.isnan(got) & np.isnan(want))))


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits_as_the_evaluator(name: str) -> None:
    program = parse(PROGRAMS[name])
    given = inputs(program)
    want = evaluate(program, given)
    for options in (BuildOptions(fma=False, opt_level=1), BuildOptions(fma=False, threads=1, opt_level=3)):
        got = build(program, options).run(given)
        for output, value in want.items():
            if "exp(" in PROGRAMS[name]:
                np.testing.assert_allclose(got[output], value, rtol=1e-6)
            else:
                assert same(got[output], value), f"{output} with {options}: {got[output]} instead of {value}"
