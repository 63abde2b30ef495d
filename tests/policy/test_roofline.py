"""The roofline model: rows, threads, vectors, register blocks, packed operands; more loops are not more speed."""

from __future__ import annotations

import pytest
from policy_states import state_of

from steptp.ir import parse
from steptp.policy.roofline import predicted_cycles, registers, statement_cycles

BIG = "in A f32[N=256,K=256] B[K,L=256]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"
HEAD = "size T=4 U=16\nin A f32[N=256,K=256] B[K,L=256]\nout C[N,L]\nwhere N%T==0, L%U==0\n"
BODY = "for j0:L//U i0:N//T\n tmp c[T,U] local\n for k{rows} i1{columns} j1 c[i1,j1]+=A[i0*T+i1,k]*B[k,j0*U+j1]\n for i1 j1 C[i0*T+i1,j0*U+j1]=c[i1,j1]\n"
HOST = state_of(BIG).host


def cycles(text: str, threads: int = 1) -> float:
    return predicted_cycles(parse(text), HOST, threads)


def test_rows_and_threads() -> None:
    rows = BIG.replace("for i j k", "for i k j")
    assert cycles(BIG, 2) > 3 * cycles(rows, 2)
    shared = rows.replace("for i k j", "par i for k j")
    assert cycles(rows, 2) > 1.5 * cycles(shared, 2)
    assert cycles(shared, 1) == pytest.approx(cycles(rows, 1))


def test_a_register_block_beats_scalar_loops() -> None:
    plain = cycles(HEAD + BODY.format(rows="", columns=""))
    block = cycles(HEAD + BODY.format(rows=" unroll", columns=" vec"))
    assert block < plain / 2


def test_too_large_a_block_spills() -> None:
    fits = HEAD + BODY.format(rows=" unroll", columns=" vec")
    spills = fits.replace("T=4", "T=16")
    assert 4 * 16 // HOST.lanes(4) < registers(HOST) < 16 * 16 // HOST.lanes(4)
    assert cycles(spills) > cycles(fits)


def test_an_uneven_share_of_a_loop_is_as_slow_as_its_larger_part() -> None:
    text = "in X f32[N=3,M=100000]\nout Y[N,M]\npar i for j Y[i,j]=X[i,j]*2\n"
    assert cycles(text, 2) > 0.6 * cycles(text, 1)


def test_every_statement_has_its_part() -> None:
    program = parse(BIG)
    rows = statement_cycles(program, HOST, 2)
    assert sum(c for _, c in rows) == pytest.approx(predicted_cycles(program, HOST, 2))
    assert {st.is_reset for st, _ in rows} == {False, True}
