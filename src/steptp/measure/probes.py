"""Small programs that a host's own noise is measured with: the kinds of kernel that a dataset's steps are made of.

Each runs for roughly 50 to 500 µs on a present-day core. ``rows`` scales the outer loop, and with it the work, in
proportion: a planted slow-down of known size.
"""

from __future__ import annotations

import numpy as np

from steptp.ir import Program, eval_size, parse, rebind
from steptp.ir.seeds import derive_seed
from steptp.ir.types import DType

__all__ = ["PROBES", "probe", "probe_inputs"]

PROBES: dict[str, str] = {
    "matmul": "size N=160 K=128 L=128\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N k:K j:L C[i,j] += A[i,k]*B[k,j]\n",
    "matvec": "size N=192 K=512\nin A f32[N,K] x[K]\nout y f32[N]\nfor i:N k:K y[i] += A[i,k]*x[k]\n",
    "axpy": "size N=1024 M=256\nin X f32[N,M] Z[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[i,j]*2+Z[i,j]\n",
    "transpose": "size N=64 K=40 M=40\nin X f32[N,K,M]\nout Y f32[N,M,K]\nfor i:N j:K k:M Y[i,k,j] = X[i,j,k]\n",
    "expsum": "size N=128 M=256\nin X f32[N,M]\nout Y f32[N]\nfor i:N j:M Y[i] += exp(X[i,j])\n",
    "stencil": "size N=640 M=512 W=M+2\nin X f32[N,W]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[i,j]+X[i,j+1]*0.5+X[i,j+2]\n",
}


def probe(name: str, rows: float = 1.0) -> Program:
    """A probe program with its outer loop scaled by ``rows``; raises ``KeyError`` for an unknown name."""
    program = parse(PROBES[name], f"<probe {name}>")
    return rebind(program, {"N": round(program.size_env["N"] * rows)}) if rows != 1.0 else program


def probe_inputs(program: Program, seed: int) -> dict[str, np.ndarray]:
    """Normal f32 inputs for a probe program."""
    found: dict[str, np.ndarray] = {}
    for buffer in program.inputs:
        if buffer.dtype is not DType.F32:
            raise ValueError(f"probe input {buffer.name} is {buffer.dtype}")
        shape = tuple(eval_size(s, program) for s in buffer.shape)
        found[buffer.name] = np.random.default_rng(derive_seed("probe", seed, buffer.name)).standard_normal(shape).astype(np.float32)
    return found
