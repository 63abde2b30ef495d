"""Claims of algebra steps: what is false, missing or out of place is noticed."""

from __future__ import annotations

import random

import pytest

from steptp.analysis.host import HostInfo
from steptp.ir import Program, parse
from steptp.ir.walk import replace_at
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.reason.corrupt import corrupt_text
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site

HOST = HostInfo.detect()
HEADER = "size N=4 K=3\nin x f32[N] y f32[N] z f32[N] w f32[N,K]\nout Y f32[N]\ntmp s f32[N]\nfor i:N k:K s[i] += exp(w[i,k])\n"


def _program(value: str) -> Program:
    return parse(f"{HEADER}for i:N k:K Y[i] max= {value}\n")


def _explained(value: str, site: str) -> tuple[Program, Applied, str]:
    program = _program(value)
    step = engine.applied_or_raise(program, site)
    return program, step, explain(program, step, Site.parse(site), host=HOST, seed=3).text


def _problems(text: str, program: Program, child: Program, site: str) -> tuple[str, ...]:
    return check_text(text, program, child, site, host=HOST.to_dict())


NEEDED = {
    "divisor": ("select(z[i]>0,x[i]*z[i]/z[i],y[i])", "cancellation@1.0.0:at=1.1,first=0.1,second=1", "nonzero"),
    "roots": ("sqrt(x[i]*x[i])*sqrt(select(z[i]>0,z[i],0))", "powsimp@1.0.0:at=1,by=root", "nonnegative"),
    "sum_over": ("(x[i]+y[i])/select(z[i]>0,z[i],1)", "apart@1.0.0:at=1,by=sum", "nonzero"),
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_condition_that_is_needed_must_be_stated(name: str) -> None:
    value, site, condition = NEEDED[name]
    program, step, text = _explained(value, site)
    assert _problems(text, program, step.program, site) == ()
    lines = text.splitlines()
    without = "\n".join(line for line in lines if f" is {condition} " not in line) + "\n"
    assert without != text
    found = _problems(without, program, step.program, site)
    if name == "divisor":
        assert any("at a random point" in p for p in found)
    stronger = text.replace(f" is {condition} ", " is positive ")
    if condition == "nonnegative":
        assert any("not known to be positive" in p for p in _problems(stronger, program, step.program, site))


def test_another_child_is_noticed() -> None:
    site = "expand_factorization@1.0.0:at=1,over=0"
    program, step, text = _explained("(x[i]+y[i])*s[i]", site)
    assert _problems(text, program, step.program, site) == ()
    wrong = parse(f"{HEADER}for i:N k:K Y[i] max= x[i]*s[i]+x[i]*s[i]\n")
    said = text.replace("x[i]*s[i]+y[i]*s[i]", "x[i]*s[i]+x[i]*s[i]")
    assert any("at a random point" in p for p in _problems(said, program, wrong, site))
    more = replace_at(step.program, (0, 0, 0), parse(HEADER.replace("exp", "abs") + "for i:N k:K Y[i] max= x[i]\n").body[0].body[0].body[0])  # type: ignore[union-attr]
    assert any("more than that changes" in p for p in _problems(text, program, more, site))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("2 terms have the factor `s[i]`", "3 terms have the factor `s[i]`", "multiplies 2 terms"),
        ("the factor `s[i]`", "the factor `x[i]`", "multiplies 1 terms"),
        ("its accumulation", "its definition", "known by its accumulation"),
        ("`s[i]` is finite", "`w[i,k]` is finite", "not in what the step rewrites"),
    ],
)
def test_false_claims(old: str, new: str, reason: str) -> None:
    site = "expand_factorization@1.0.0:at=1,over=0"
    program = _program("(x[i]+y[i])*s[i]")
    step = engine.applied_or_raise(program, site)
    text = next(t for seed in range(200) if old in (t := explain(program, step, Site.parse(site), host=HOST, seed=seed).text))
    assert any(reason in p for p in _problems(text.replace(old, new), program, step.program, site))


def test_a_loop_that_changes_the_expression() -> None:
    site = "apart@1.0.0:at=1,by=reciprocal"
    program, step, text = _explained("w[i,k]/s[i]", site)
    assert "1/s[i]" in text
    said = text.replace("`1/s[i]` stays", "`w[i,k]` stays").replace("not change `1/s[i]`", "not change `w[i,k]`")
    assert any("it changes there" in p for p in _problems(said, program, step.program, site))


def test_corrupted_texts_are_rejected() -> None:
    made = [(*_explained(value, site), site) for value, site, _ in NEEDED.values()]
    made.append((*_explained("(x[i]+y[i])*s[i]", "expand_factorization@1.0.0:at=1,over=0"), "expand_factorization@1.0.0:at=1,over=0"))
    rng, tried = random.Random(4), 0
    while tried < 120:
        program, step, text, site = rng.choice(made)
        changed = corrupt_text(text, rng, rng.choice(made)[2])
        if changed is not None:
            tried += 1
            assert _problems(changed[1], program, step.program, site), changed


@pytest.mark.parametrize(
    ("value", "site"),
    [
        ("rsqrt(s[i])*w[i,k]", "expand_powsimp@1.0.0:at=1.0,by=reciprocal"),  # the root stays in loop k, and so does all that is new
        ("w[i,k]*rsqrt(s[i])", "expand_powsimp@1.0.0:at=1,by=quotient"),
        ("1/sqrt(s[i])*w[i,k]", "powsimp@1.0.0:at=1.0,by=reciprocal"),
        ("select(w[i,k]<20,log1p(exp(w[i,k])),w[i,k])", "expand_log@1.0.0:at=1.1"),  # an input, but it is a condition that speaks of it
        ("select(w[i,k]<20,w[i,k]+log1p(exp(-w[i,k])),w[i,k])", "logsimp@1.0.0:at=1.1,by=product"),
        ("w[i,k]*(w[i,k]-s[i])-s[i]*(w[i,k]-s[i])", "expand_collect@1.0.0:at=1,term=0,sum=1"),  # the term that stays has s as a factor, too
        ("w[i,k]*(w[i,k]-s[i])-s[i]*(w[i,k]-s[i])", "expand_collect@1.0.0:at=1,term=1,sum=1"),
        ("(w[i,k]-x[i])/sqrt(abs(y[i])+1)*z[i]", "together@1.0.0:at=1"),  # no sum moves beneath the divisor
    ],
)
def test_all_that_an_algebra_step_rests_on_is_owed_and_no_more(value: str, site: str) -> None:
    program, step, text = _explained(value, site)
    assert _problems(text, program, step.program, site) == ()
    for sentence in text.split("Legal:\n")[1].split("Effect:\n")[0].splitlines():
        assert any("Legal" in p for p in _problems(text.replace(sentence + "\n", "", 1), program, step.program, site)), sentence
