"""LEIR texts with the NumPy formulas that they compute, for the evaluators and tier 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Formula = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]

MATMUL = """size N=6 K=5 L=4
in A f64[N,K] B[K,L]
out Y f64[N,L]
for i:N j:L k:K Y[i,j] += A[i,k]*B[k,j]
"""

MATMUL_TILED = """size N=6 K=5 L=4 T=4
in A f64[N,K] B[K,L]
out Y f64[N,L]
for i:(N+T-1)//T j:L i1:T k:K if i*T+i1<N: Y[i*T+i1,j] += A[i*T+i1,k]*B[k,j]
"""

SOFTMAX = """size N=4 L=5
in X f64[N,L]
out Y f64[N,L]
tmp m f64[N] s[N]
for i:N j:L m[i] max= X[i,j]
for i:N j:L s[i] += exp(X[i,j]-m[i])
for i:N j:L Y[i,j] = exp(X[i,j]-m[i])/s[i]
"""

ONLINE_SOFTMAX = """size N=4 L=5
in X f64[N,L]
out Y f64[N,L]
for i:N
 tmp m f64[] s[]
 m[] = -inf
 s[] = 0
 for j:L
  tmp n f64[]
  n[] = max(m[],X[i,j])
  s[] = s[]*select(m[]==n[],1,exp(m[]-n[]))+select(X[i,j]==n[],1,exp(X[i,j]-n[]))
  m[] = n[]
 for j:L Y[i,j] = exp(X[i,j]-m[])/s[]
"""

LAYERNORM = """size N=3 D=6
in X f64[N,D] G[D] B[D]
out Y f64[N,D]
tmp u f64[N] v[N]
for i:N j:D u[i] += X[i,j]/f64(D)
for i:N j:D v[i] += (X[i,j]-u[i])*(X[i,j]-u[i])/f64(D)
for i:N j:D Y[i,j] = (X[i,j]-u[i])*rsqrt(v[i]+1e-5)*G[j]+B[j]
"""

ARGMAX = """size N=4 L=5
in X f64[N,L]
out I i64[N]
tmp b f64[N]
for i:N b[i] = -inf
for i:N I[i] = 0
for i:N j:L if X[i,j]>b[i]:
 I[i] = j
 b[i] = X[i,j]
"""

CONV = """size C=2 O=3 H=5 W=4 R=3
in X f64[C,H,W] F[O,C,R,R]
out Y f64[O,H,W]
for o:O h:H w:W c:C r:R s:R Y[o,h,w] += select(h+r>=1 and h+r<H+1 and w+s>=1 and w+s<W+1,X[c,h+r-1,w+s-1],0)*F[o,c,r,s]
"""

CUMSUM = """size N=3 T=6
in X f64[N,T]
out Y f64[N,T]
for i:N
 tmp c f64[]
 c[] = 0
 for t:T
  carry c[] += X[i,t]
  Y[i,t] = c[]
"""

TRIANGLE = """size N=5
in A f64[N,N] X[N]
out Y f64[N]
for i:N j:i+1 Y[i] += A[i,j]*X[j]
"""

IMPERFECT = """size N=4 K=3 L=5
in A f64[N,K] B[K,L]
out Y f64[N,L]
for i:N
 tmp r f64[L] t[]
 for j:L k:K r[j] += A[i,k]*B[k,j]
 for j:L t[] max= r[j]
 for j:L if j<=i: Y[i,j] = r[j]-t[]
 for j:L if j>i: Y[i,j] = t[]
"""

LOOKUP = """size N=5 V=7 D=3
in T i64[N] 0..V E f64[V,D]
out Y f64[N,D]
for i:N d:D Y[i,d] = E[T[i],d]
"""

HISTOGRAM = """size N=9 V=4
in T i64[N] 0..V
out H i64[V]
for v:V H[v] = 0
for i:N carry H[T[i]] += 1
"""

PEELED = """size N=7 T=3
in X f64[N]
out Y f64[N] s[]
for i:N//T j:T Y[i*T+j] = X[i*T+j]*2
for j:N%T Y[N//T*T+j] = X[N//T*T+j]*2
for i:N//T*T s[] += X[i]
for j:N%T carry s[] += X[N//T*T+j]
"""


def _softmax(x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore"):
        e = np.exp(x["X"] - x["X"].max(1, keepdims=True))
    return {"Y": e / e.sum(1, keepdims=True)}


def _layernorm(x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    data = x["X"]
    return {"Y": (data - data.mean(1, keepdims=True)) / np.sqrt(data.var(1, keepdims=True) + 1e-5) * x["G"] + x["B"]}


def _conv(x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    padded = np.pad(x["X"], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return {"Y": np.einsum("chwrs,ocrs->ohw", windows, x["F"])}


def _imperfect(x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    product = x["A"] @ x["B"]
    top = product.max(1, keepdims=True)
    lower = np.arange(product.shape[1])[None, :] <= np.arange(product.shape[0])[:, None]
    return {"Y": np.where(lower, product - top, top)}


PROGRAMS: dict[str, tuple[str, Formula]] = {
    "matmul": (MATMUL, lambda x: {"Y": x["A"] @ x["B"]}),
    "matmul_tiled": (MATMUL_TILED, lambda x: {"Y": x["A"] @ x["B"]}),
    "softmax": (SOFTMAX, _softmax),
    "online_softmax": (ONLINE_SOFTMAX, _softmax),
    "layernorm": (LAYERNORM, _layernorm),
    "argmax": (ARGMAX, lambda x: {"I": x["X"].argmax(1)}),
    "conv": (CONV, _conv),
    "cumsum": (CUMSUM, lambda x: {"Y": np.cumsum(x["X"], axis=1)}),
    "triangle": (TRIANGLE, lambda x: {"Y": np.tril(x["A"]) @ x["X"]}),
    "imperfect": (IMPERFECT, _imperfect),
    "lookup": (LOOKUP, lambda x: {"Y": x["E"][x["T"]]}),
    "histogram": (HISTOGRAM, lambda x: {"H": np.bincount(x["T"], minlength=4)}),
    "peeled": (PEELED, lambda x: {"Y": x["X"] * 2, "s": x["X"].sum()}),
}
"""Name → text and formula (inputs by name → outputs by name)."""
