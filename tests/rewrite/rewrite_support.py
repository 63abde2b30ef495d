"""What the tests of strategies share: small programs, goldens, and the checks that every site must pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from steptp.interp import evaluate
from steptp.ir import parse, print_program, problems, program_hash
from steptp.ir.facts import Fact
from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType
from steptp.ir.walk import get, stores
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Exactness, NotApplicable, Outcome, Site
from steptp.rewrite.fact_kinds import fact_problems

GOLDENS = Path(__file__).parent / "goldens"

MATMUL = """
size N=6 K=8 L=5
in A f32[N,K] B[K,L]
out C f32[N,L]
for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]
"""
SOFTMAX = """
size N=3 L=8
in X f32[N,L]
out Y f32[N,L]
tmp m f32[N] s[N]
for i:N j:L m[i] max= X[i,j]
for i:N j:L s[i] += exp(X[i,j]-m[i])
for i:N j:L Y[i,j] = exp(X[i,j]-m[i])/s[i]
"""
IMPERFECT = """
size N=4 K=6
in A f32[N,K] b f32[N]
out Y f32[N] Z f32[N,K]
for i:N
 Y[i] = b[i]
 for k:K
  carry Y[i] += A[i,k]
  Z[i,k] = A[i,k]*2
"""
TMPS = """
size N=4 M=6
in X f32[N,M]
out Y f32[N,M]
for i:N
 tmp t f32[M] s[]
 for j:M t[j] = X[i,j]*X[i,j]
 for j:M s[] += t[j]
 for j:M Y[i,j] = t[j]/s[]
"""
GUARDED = """
size N=6 M=4
in X f32[N,M] T i32[M] 0..N
out Y f32[N,M] P f32[N]
for i:N j:M if i+j<N: Y[i,j] = X[i+j,j]
for i:N j:M if i+j>=N: Y[i,j] = 0
for j:M i:N P[i] += X[i,j]
"""
RECURRENCE = """
size N=7 M=4
in X f32[N,M]
out S f32[N,M]
for j:M S[0,j] = X[0,j]
for i:N-1 j:M S[i+1,j] = S[i,j]*X[i+1,j]
"""
INTEGER = """
size N=4 K=6 L=4
in A i32[N,K,L]
out C i32[N] D i32[N]
for i:N k:K l:L C[i] += A[i,k,l]
for i:N k:K l:L D[i] max= A[i,k,l]
"""
TWO_REDUCTIONS = """
size N=4 K=6 L=4
in A f32[N,K,L]
out C f32[N]
for i:N k:K l:L C[i] += A[i,k,l]
"""
PROGRAMS = {
    "matmul": MATMUL, "softmax": SOFTMAX, "imperfect": IMPERFECT, "tmps": TMPS, "guarded": GUARDED,
    "recurrence": RECURRENCE, "integer": INTEGER, "two_reductions": TWO_REDUCTIONS,
}  # fmt: skip


def program(text: str) -> Program:
    """A program from its text or its name in :data:`PROGRAMS`."""
    return parse(PROGRAMS.get(text, text).lstrip("\n"))


def inputs_for(subject: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of the declared dtypes; integers inside of their declared range."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for buffer in subject.inputs:
        shape = shape_of(buffer.shape, subject)
        if buffer.dtype.is_int:
            low, high = shape_of(buffer.range, subject) if buffer.range else (-9, 10)
            out[buffer.name] = rng.integers(low, high, shape).astype({DType.I8: np.int8, DType.I32: np.int32, DType.I64: np.int64}[buffer.dtype])
        elif buffer.dtype is DType.BOOL:
            out[buffer.name] = rng.integers(0, 2, shape).astype(bool)
        else:
            out[buffer.name] = rng.standard_normal(shape).astype({DType.F16: np.float16, DType.F64: np.float64}.get(buffer.dtype, np.float32))
    return out


def assert_equal_meaning(parent: Program, child: Program, exactness: Exactness, seed: int = 0) -> None:
    """Both programs give the same outputs: the same bits for ``bitwise``, close values otherwise."""
    inputs = inputs_for(parent, seed)
    want, got = evaluate(parent, inputs), evaluate(child, inputs)
    assert want.keys() == got.keys()
    for name in want:
        if exactness is Exactness.BITWISE:
            assert want[name].tobytes() == got[name].tobytes(), f"{name} differs\n{print_program(parent)}\n{print_program(child)}"
        else:
            assert np.allclose(want[name], got[name], rtol=1e-4, atol=1e-5, equal_nan=True), f"{name} differs\n{print_program(parent)}\n{print_program(child)}"


def all_applied(strategy: str, subject: Program) -> Iterator[tuple[Site, Applied]]:
    """Every site of the strategy with its result; fails when a listed site does not apply or is listed twice."""
    listed = engine.sites(subject, [strategy], limit=None).sites
    assert len({s.id for s in listed}) == len(listed)
    assert all(Site.parse(s.id) == s for s in listed)
    for site in listed:
        outcome = engine.apply(subject, site)
        assert isinstance(outcome, Applied), f"{site.id}: {outcome}\n{print_program(subject)}"
        yield site, outcome


def check_step(subject: Program, site: Site, step: Applied, *, seed: int = 0) -> None:
    """What must hold of every step: valid, the same text after parsing, equal meaning, facts of the table, honest forwarding and inverse."""
    child = step.program
    assert not problems(child)
    assert parse(print_program(child)) == child, print_program(child)
    assert [(b.name, b.dtype, b.shape) for b in (*child.inputs, *child.outputs)] == [(b.name, b.dtype, b.shape) for b in (*subject.inputs, *subject.outputs)]
    assert_equal_meaning(subject, child, step.exactness, seed)
    assert step.facts
    assert all_facts_ok(step)
    for met in stores(subject):
        there = step.forward(met.path)
        if there is not None:
            get(child, there)
    if step.inverse:
        assert len(step.inverse) <= 3
        back = child
        for undo in step.inverse:
            outcome = engine.apply(back, undo)
            assert isinstance(outcome, Applied), f"inverse {undo.id} of {site.id}: {outcome}\n{print_program(back)}"
            back = outcome.program
        assert program_hash(back) == program_hash(subject), f"{site.id} is not undone\n{print_program(subject)}\n{print_program(child)}\n{print_program(back)}"
    if step.instances is not None:
        assert {e.child for e in step.instances.entries} <= {v.path for v in stores(child)}
        assert tier2_accepts(subject, child, step), site.id


def all_facts_ok(step: Applied) -> bool:
    """Every fact fits its row of the table."""
    return not [problem for one in step.facts for problem in fact_problems(one)]


def tier2_accepts(parent: Program, child: Program, step: Applied) -> bool:
    """Whether the independent schedule checker proves the step."""
    from steptp.verify.tier2 import tier2

    assert step.instances is not None
    report = tier2(parent, child, step.instances, step.exactness)
    assert str(report.kind) == "ok", f"{report.message}\n{print_program(parent)}\n{print_program(child)}"
    return True


def check_all(strategy: str, names: tuple[str, ...] = tuple(PROGRAMS)) -> int:
    """:func:`check_step` on every site of the strategy in the named programs; how many there were."""
    count = 0
    for name in names:
        subject = program(name)
        for site, step in all_applied(strategy, subject):
            assert_class(strategy, step)
            check_step(subject, site, step, seed=count)
            count += 1
    return count


def assert_class(strategy: str, step: Applied) -> None:
    from steptp.rewrite import registry

    assert step.exactness in registry.get(strategy).classes


def refusal(text: str, site: str) -> NotApplicable:
    """The refusal at ``site``; fails when the step is taken."""
    outcome = engine.apply(program(text), site)
    assert isinstance(outcome, NotApplicable), print_program(outcome.program)
    assert outcome.message[0] != " "
    assert outcome.code != "internal", outcome.message
    return outcome


# goldens


def _fact_line(one: Fact) -> str:
    return f"{one.kind} [{one.evidence}] " + " ".join(f"{k}={','.join(v) if isinstance(v, tuple) else v}" for k, v in one.values)


def golden_text(subject: Program, site: str, outcome: Outcome) -> str:
    """Before, site, and what came out."""
    lines = [print_program(subject).rstrip("\n"), "", f"@@ {site}", ""]
    if isinstance(outcome, NotApplicable):
        lines.append(f"not applicable [{outcome.code}]: {outcome.message}")
    else:
        lines += [print_program(outcome.program).rstrip("\n"), "", f"class {outcome.exactness}"]
        lines += [_fact_line(f) for f in outcome.facts]
        lines += [f"inverse {s.id}" for s in outcome.inverse]
    return "\n".join(lines) + "\n"


def check_golden(strategy: str, name: str, text: str, site: str, update: bool) -> None:
    """Compare the step with ``goldens/<strategy>/<name>.txt`` (``--update-goldens`` writes it)."""
    subject = program(text)
    got = golden_text(subject, site, engine.apply(subject, site))
    file = GOLDENS / strategy / f"{name}.txt"
    if update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(got)
    assert file.exists(), f"no golden {file.name}; run pytest with --update-goldens"
    assert file.read_text() == got


def check_no_orphans(strategy: str, names: object) -> None:
    """Every golden file of the strategy belongs to a case."""
    files = {f.stem for f in (GOLDENS / strategy).glob("*")}
    assert files == set(names), f"orphan or missing goldens: {sorted(files ^ set(names))}"  # type: ignore[call-overload]
