"""Going back in an answer: to which token, what is barred there, and what a model writes instead."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tiny_model import tiny_model

from steptp.ir.edits import apply_edit
from steptp.ir.parser import parse
from steptp.policy.faults import Fault, faults_of
from steptp.policy.models import LocalModel, LocalRequest
from steptp.policy.prompting import Question
from steptp.policy.rewinding import Rewinding
from steptp.policy.written import Written

ASK = [{"role": "user", "content": "Program:\nfor i Y[i]=A[i]"}]
END = 0


def _text(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))


def _tokens(text: str) -> list[int]:
    return [ord(c) for c in text]


def _word(bad: str) -> Rewinding:
    """A word that may not stand in an answer, and an answer needs three lines."""

    def faults(text: str, whole: bool) -> Fault | None:
        if (at := text.find(bad)) >= 0:
            return Fault(at, at + len(bad), "a bad word")
        return Fault(len(text), len(text), "too short") if whole and text.count("\n") < 2 else None

    return Rewinding(faults, 10, _text)


def _tell(rewinding: Rewinding, text: str, sure: Sequence[float], ended: bool = False) -> tuple[str, int] | None:
    tokens = _tokens(text) + [END] * ended
    rewinding.sure = list(sure)
    back = rewinding.back_to(tokens, ended)
    return None if back is None else (text[:back], len(rewinding.sure))


def test_back_to_what_the_model_was_least_sure_of() -> None:
    made = _word("bad")
    assert _tell(made, "good\n", [1.0] * 5) is None
    assert made.left == 10
    assert _tell(made, "a bad\n", [0.1, 0.1, 0.9, 0.5, 0.9, 0.1]) == ("a b", 3)
    assert made.left == 9
    assert made.barred(_tokens("a b")) == {ord("a")}
    assert not made.barred(_tokens("a "))


def test_after_four_tries_an_earlier_token_is_doubted() -> None:
    made = Rewinding(lambda text, whole: Fault(4, 5, "no"), 20, _text)
    for n, c in enumerate("abcd"):
        assert _tell(made, f"x\nyz{c}\n", [1.0, 1.0, 0.6, 0.7, 0.1, 1.0]) == ("x\nyz", 4)
        assert len(made.barred(_tokens("x\nyz"))) == n + 1
    assert _tell(made, "x\nyze\n", [0.1, 0.1, 0.6, 0.7, 0.1, 1.0]) == ("x\n", 2)  # of its line
    assert made.barred(_tokens("x\n")) == {ord("y")}


def test_an_answer_that_ends_too_early_goes_on() -> None:
    made = _word("bad")
    assert _tell(made, "one", [0.1, 0.1, 0.1, 0.9], ended=True) == ("one", 3)
    assert made.barred(_tokens("one")) == {END}
    assert _tell(made, "", [0.9], ended=True) == ("", 0)


def test_it_gives_up_after_its_number_of_times() -> None:
    made = _word("b")
    made.left = 2
    for c in "xy":
        assert _tell(made, f"b{c}\n", [0.5, 0.5, 0.5]) is not None
    assert _tell(made, "bz\n", [0.5, 0.5, 0.5]) is None


@pytest.fixture(scope="module", params=[False, True], ids=["attention", "convolutions"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    return LocalModel(str(tiny_model(tmp_path_factory.mktemp("model"), convolutions=request.param)), dtype="float32")


def _letters(text: str, whole: bool) -> Fault | None:
    """Lines hold no "e" and are no longer than 8."""
    text = text if whole else text[: text.rfind("\n") + 1]
    at = text.find("e")
    if at >= 0:
        return Fault(at, at + 1, "an e")
    begin = 0
    for line in text.split("\n"):
        if len(line) > 8:
            return Fault(begin + 8, begin + len(line), "too long")
        begin += len(line) + 1
    return None


GRAMMAR = "start: LINE NL LINE NL LINE NL\nLINE: /[a-h ]{1,12}/\nNL: /\\n/\n"


def _written(model: LocalModel, requests: Sequence[LocalRequest], batch: int = 8) -> list[Written]:
    found = [a for answers in model.generate(requests, batch=batch) for a in answers]
    assert all(isinstance(a, Written) for a in found)
    return [a for a in found if isinstance(a, Written)]


def test_answers_come_out_without_faults_and_the_same_in_any_company(model: LocalModel) -> None:
    pytest.importorskip("llguidance")
    plain = _written(model, [LocalRequest(ASK, tuple(range(8)), max_tokens=200, grammar=GRAMMAR)])
    request = LocalRequest(ASK, tuple(range(8)), max_tokens=600, grammar=GRAMMAR, faults=_letters, rewinds=10_000)
    made = _written(model, [request])
    whole = [a for a in made if not a.truncated]
    assert sum("e" in a.text for a in plain) > 3
    assert len(whole) > 3
    assert [a for a in whole if _letters(a.text, True) is not None] == []
    assert all(a.tokens is not None and a.tokens <= 600 for a in made)
    assert any(a.tokens is not None and a.tokens > len(model.tokenizer(a.text).input_ids) + 5 for a in whole)  # what was taken back is counted
    other = LocalRequest([{"role": "user", "content": "for i j " * 30}], (1, 2), max_tokens=50)
    assert _written(model, [other, request], batch=3)[2:] == made


def test_forgetting_is_as_good_as_reading_anew(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llguidance")
    requests = [
        LocalRequest(ASK, tuple(range(6)), temperature=t, max_tokens=400, grammar=g, faults=_letters, rewinds=60) for t in (0.0, 1.0) for g in (None, GRAMMAR)
    ]
    kept = _written(model, requests)
    assert model._can_forget == (model._model.config.model_type == "llama")
    monkeypatch.setattr(model, "_can_forget", False)
    assert _written(model, requests) == kept


def test_without_faults_nothing_changes(model: LocalModel) -> None:
    plain = LocalRequest(ASK, (0, 1, 2), max_tokens=60)
    watched = LocalRequest(ASK, (0, 1, 2), max_tokens=60, faults=lambda text, whole: None, rewinds=5)
    assert _written(model, [plain]) == _written(model, [watched])


def test_edits_that_come_through_are_programs(model: LocalModel) -> None:
    pytest.importorskip("llguidance")
    program = "in A f32[N=8,M=6]\nout Y f32[N]\nfor i Y[i]=0\nfor i j\n Y[i]+=A[i,j]*2\n"
    asked = Question("edit", False, "", program=program)
    seeds = tuple(range(24))
    first = ["3| for i Y[i]=1", "3| par j Y[j]=0", "4| for i k", "4-", "5+ for l Y[l]=2", "6-"]
    second = ["3| for i Y[i]=1", "5| Y[i]+=A[i,j]*2", "5|  Y[i]+=A[i,k]*4", "5|  Y[i]+=A[i,j]*3", "5|  Y[i]+=A[i]"]
    text = f'start: FIRST "\\n" SECOND\nFIRST: {" | ".join(map(json.dumps, first))}\nSECOND: {" | ".join(map(json.dumps, second))}\n'
    made = _written(model, [LocalRequest(ASK, seeds, max_tokens=900, grammar=text)], batch=24)
    find = faults_of(asked)
    assert find is not None
    by_chance = sum(find(a.text, True) is None for a in made)
    request = LocalRequest(ASK, seeds, max_tokens=900, grammar=text, faults=find, rewinds=1000)
    whole = [a.text for a in _written(model, [request], batch=24) if not a.truncated]
    assert len(whole) > by_chance + 6
    for text in whole:
        assert parse(apply_edit(program, text.split("\n"))) is not None
