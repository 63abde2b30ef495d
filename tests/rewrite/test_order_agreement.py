"""loop_reorder decides as the exact schedule analysis does, for every move in every perfect nest."""

from __future__ import annotations

import pytest
from rewrite_support import PROGRAMS, program

from steptp.analysis import can_reorder
from steptp.errors import LeirError
from steptp.ir import Loop
from steptp.ir.walk import free_vars
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, NotApplicable, Site
from steptp.rewrite.context import Context

MORE = {
    "skewed": "size N=6 M=6\nin X f32[N,M]\nout S f32[N,M]\nfor i:N j:M S[i,j] = X[i,j]\nfor i:N-1 j:M-1 S[i+1,j] = S[i,j+1]*X[i,j]\n",
    "partial": "size N=4 K=3 L=2\nin A f32[N,K,L]\nout C f32[N] D f32[N,K,L]\nfor i:N k:K l:L\n C[i] += A[i,k,l]\n D[i,k,l] = C[i]\n",
    "neighbour": "size N=4 K=3\nin A f32[N,K]\nout C f32[N+1] D f32[N,K]\nfor i:N+1 C[i] = 1\nfor i:N k:K\n C[i] += A[i,k]\n D[i,k] = C[i+1]\n",
    "lagging": "size N=4 K=3\nin A f32[N,K]\nout C f32[N] D f32[N,K]\nfor k:K i:N\n C[i] += A[i,k]\n D[i,k] = C[N-1-i]\n",
    "diagonal": "size N=5\nin X f32[N,N]\nout S f32[N,N]\nfor i:N j:N S[i,j] = X[i,j]\nfor i:N-1 j:N-1 S[i+1,j+1] = S[i,j]*X[i,j]\n",
    "transposed": "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = X[i,j]\nfor i:N j:N Y[i,j] = Y[j,i]\n",
    "outer_reset": "size R=3 N=4 M=4\nin A f32[R,N,M]\nout C f32[N,M] D f32[R,N,M]\nfor r:R i:N j:M\n C[i,j] += A[r,i,j]\n D[r,i,j] = C[i,j]*2\n",
    "two_stores": "size N=3 K=4\nin A f32[N,K]\nout C f32[N]\nfor i:N C[i] = 0\nfor i:N k:K\n carry C[i] += A[i,k]\n carry C[i] += A[i,k]*2\n",
    "tiled": "size N=8 T0=4\nwhere N%T0==0\nin X f32[N,N]\nout S f32[N]\nfor i0:N//T0 i1:T0 j:N S[i0*T0+i1] += X[i0*T0+i1,j]\n",
}


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_every_move(name: str) -> None:
    subject = program(MORE.get(name, name))
    ctx = Context(subject)
    checked = 0
    for chain in ctx.chains:
        loops = [loop for p in chain if isinstance(loop := ctx.loop(p), Loop)]
        if any(free_vars(loop.extent) & {o.var for o in loops} for loop in loops):
            continue
        for position in range(len(chain)):
            for target in range(len(chain)):
                if target == position:
                    continue
                order = [n for n in range(len(chain)) if n != position]
                order.insert(target, position)
                ours = engine.apply(subject, Site.of("loop_reorder", chain[position], to=target))
                try:
                    exact = can_reorder(subject, chain[0], order)
                except LeirError:
                    continue
                checked += 1
                if exact.broken:
                    assert isinstance(ours, NotApplicable), f"{chain[position]} to {target}: {exact.broken[0].explain()}"
                elif isinstance(ours, NotApplicable):
                    assert ours.code == "no-op", f"{chain[position]} to {target} would be legal, but: {ours.message}"
                else:
                    changed = any(f.kind == "order_changed" for f in ours.facts)
                    assert changed == bool(exact.reassociated)
    assert checked or not any(len(c) > 1 for c in ctx.chains)


def test_a_reset_that_does_not_move_may_be_shared() -> None:
    text = MORE["outer_reset"]
    assert isinstance(engine.apply(program(text), "loop_reorder@0.0:to=2"), Applied)
