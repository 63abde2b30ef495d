"""What the tests of strategies that move, cut and join nests share: programs after earlier steps, reasons, other sizes, safety."""

from __future__ import annotations

import random

from rewrite_support import all_applied, assert_class, assert_equal_meaning, check_step, program

from steptp.analysis import safety_problems
from steptp.analysis.host import HostInfo
from steptp.errors import LeirError
from steptp.ir import print_program, problems, rebind
from steptp.ir.nodes import Program
from steptp.ir.sizes import free_size_names
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site

__all__ = ["after", "check_everything", "at_other_sizes"]

_HOST = HostInfo.detect()

GEMM = "in a f32[N=6,K=3] b[K,M=8] c[M]\nout Y[N,M]\ntmp d[N,M]\nfor i j k d[i,j]+=a[i,k]*b[k,j]\nfor i j Y[i,j]=max(d[i,j]+c[j],0)\n"
MATMUL = "in a f32[N=7,K=5] b[K,M=8]\nout Y[N,M]\nfor i j k Y[i,j]+=a[i,k]*b[k,j]\n"


def after(text: str, *sites: str) -> str:
    """The text of the program that these steps lead to."""
    here = program(text)
    for site in sites:
        here = engine.applied_or_raise(here, site).program
    return print_program(here)


def check_everything(strategy: str, text: str) -> int:
    """Every site of the strategy: the usual checks, no new safety problem, every reason re-derived, the same meaning at another size."""
    subject, count = program(text), 0
    clean = not list(safety_problems(subject))
    for site, step in all_applied(strategy, subject):
        assert_class(strategy, step)
        check_step(subject, site, step, seed=count)
        assert not clean or not list(safety_problems(step.program)), print_program(step.program)
        _check_reasons(subject, site, step, seed=count)
        at_other_sizes(subject, step, seed=count)
        count += 1
    return count


def _check_reasons(subject: Program, site: Site, step: Applied, seed: int) -> None:
    why = explain(subject, step, site, candidates=[site], rule="balanced-random", host=_HOST, seed=seed)
    found = check_text(why.text, subject, step.program, site.id, candidates=[site.id], host=_HOST.to_dict())
    assert found == (), why.text


def at_other_sizes(parent: Program, step: Applied, *, seed: int = 0, tries: int = 25) -> bool:
    """Whether some other binding was found; parent and child mean the same there."""
    rng = random.Random(seed)
    names = free_size_names(step.program)
    for _ in range(tries):
        values = {name: rng.randint(1, 4 if name.startswith("T") else 9) for name in names}
        try:
            before, after_step = rebind(parent, {k: v for k, v in values.items() if k in free_size_names(parent)}), rebind(step.program, values)
        except LeirError:
            continue  # the header forbids these sizes
        if problems(before):
            continue
        assert not problems(after_step), print_program(after_step)
        assert_equal_meaning(before, after_step, step.exactness, seed)
        return True
    return False
