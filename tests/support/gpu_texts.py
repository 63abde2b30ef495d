"""Texts of GPU programs that several tests share."""

from __future__ import annotations

__all__ = ["tiled"]

_TILED = """in A f32[N,K] B[K,L]
out C f32[N,L]
by io:N//T bx jo:L//T
  tmp SA f32[T,T] shared SB[T,T] shared acc[T,T] shared
  ty i:T tx j:T acc[i,j] = 0
  for ko:K//T
    ty i:T tx j:T
      SA[i,j] = A[io*T+i,ko*T+j]
      SB[i,j] = B[ko*T+i,jo*T+j]
    ty i:T tx j:T for k:T carry acc[i,j] += SA[i,k]*SB[k,j]
  ty i:T tx j:T C[io*T+i,jo*T+j] = acc[i,j]
"""


def tiled(sizes: str) -> str:
    """A matrix product in shared-memory tiles of T by T, at sizes like ``N=8 K=6 L=4 T=2``."""
    return f"size {sizes}\n{_TILED}"
