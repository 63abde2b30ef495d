"""The policy over HTTP: what servers do well and badly, on a real one on loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Reply, chat_server
from policy_states import state_of

from steptp.errors import UsageError
from steptp.policy import endpoint, policy
from steptp.policy.openai_compatible import OpenAICompatible
from steptp.search.moves import Action, Answer, Edit, Failed, Proposal

MATMUL = "in A f32[N=24,K=16] B[K,L=20]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"
STATE = state_of(MATMUL)


def _listing(request: dict[str, Any]) -> dict[str, str]:
    """The ids of a question's candidates, and their sites."""
    return {name: site for site, name in re.findall(r"^(\S+) \[([A-Z]{2})\]$", request["messages"][-1]["content"], re.MULTILINE)}


def _ids(request: dict[str, Any]) -> list[str]:
    return list(_listing(request))


def _first(request: dict[str, Any], number: int) -> Reply:
    return Reply([*_ids(request), "nothing"][:1] * request.get("n", 1))


def _ask(answer: Callable[[dict[str, Any], int], Reply], k: int = 1, **settings: Any) -> tuple[list[Answer], ChatServer]:
    with chat_server(answer) as server:
        made = OpenAICompatible("toy", server.url, **{"timeout": 5.0, "deadline": 10.0, **settings})
        return list(made.propose(STATE, k)), server


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_FIRST_WAIT", 0.01)


def _codes(answers: list[Answer]) -> list[str]:
    return [a.code if isinstance(a, Failed) else "ok" for a in answers]


def test_one_request_brings_all_samples_where_the_server_takes_n() -> None:
    def each(request: dict[str, Any], number: int) -> Reply:
        return Reply(_ids(request)[: request["n"]])

    answers, server = _ask(each, 4)
    assert _codes(answers) == ["ok"] * 4
    assert len({a.move for a in answers if isinstance(a, Proposal)}) == 4
    assert [a.tokens for a in answers] == [15, 5, 5, 5]
    assert len(server.seen) == 1
    asked = server.seen[0]
    assert (asked["model"], asked["temperature"], asked["max_tokens"], asked["n"]) == ("toy", 0.8, 1024, 4)
    assert asked["response_format"]["json_schema"]["schema"]["properties"]["id"]["enum"] == sorted(_ids(asked))
    assert [m["role"] for m in asked["messages"]] == ["system", "user"]


@pytest.mark.parametrize("how", ["refused", "ignored"])
def test_parallel_requests_are_bounded_where_n_is_not_taken(how: str) -> None:
    def single(request: dict[str, Any], number: int) -> Reply:
        if request.get("n", 1) > 1 and how == "refused":
            return Reply(status=400, message="n must be 1")
        return Reply([_ids(request)[0]], delay=0.05)

    with chat_server(single) as server:
        made = OpenAICompatible("toy", server.url, parallel=2)
        answers = list(made.propose(STATE, 5))
        assert _codes(answers) == ["ok"] * 5
        assert server.most == 2
        assert len(server.seen) == (6 if how == "refused" else 5)
        assert all("response_format" in r for r in server.seen)
        made.propose(state_of(MATMUL, seed=1), 2)
        assert not any("n" in r for r in server.seen[-2:])
        assert len({r["seed"] for r in server.seen[-2:]}) == 2


def test_429_waits_as_long_as_the_server_says() -> None:
    def busy(request: dict[str, Any], number: int) -> Reply:
        return Reply(status=429, message="slow down", headers={"Retry-After": "0.3"}) if number == 0 else _first(request, number)

    answers, server = _ask(busy)
    assert _codes(answers) == ["ok"]
    assert server.times[1] - server.times[0] >= 0.3


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    answers, server = _ask(lambda request, number: Reply(status=429, message="quota", headers={"Retry-After": "60"}), 2)
    assert _codes(answers) == ["policy-rate"] * 2
    assert "quota" in str(answers[0])
    assert len(server.seen) == 1


@pytest.mark.parametrize("bad", [Reply(status=500, message="boom"), Reply(status=503), Reply(["QX"], cut=0), Reply(["QX"], cut=40), Reply([])])
def test_what_may_pass_is_tried_again(bad: Reply) -> None:
    answers, server = _ask(lambda request, number: bad if number < 2 else _first(request, number), tries=3)
    assert _codes(answers) == ["ok"]
    assert len(server.seen) == 3
    answers, server = _ask(lambda request, number: bad, tries=2)
    assert _codes(answers)[0] in ("policy-server", "policy-connection")
    assert answers[0].tokens == 0
    assert len(server.seen) == 2


def test_one_broken_sample_does_not_spoil_the_others() -> None:
    broken: set[int] = set()

    def strict(request: dict[str, Any], number: int) -> Reply:
        if request.get("n", 1) > 1:
            broken.add(request["seed"])  # that of the first sample
        return Reply(status=500, message="not the expected format") if request["seed"] in broken else _first(request, number)

    with chat_server(strict) as server:
        made = OpenAICompatible("toy", server.url, tries=2)
        assert _codes(list(made.propose(STATE, 3))) == ["policy-server", "ok", "ok"]
        assert [r.get("n", 1) for r in server.seen[:2]] == [3, 3]
        made.propose(state_of(MATMUL, seed=1), 2)
        assert [r["n"] for r in server.seen if "n" in r] == [3, 3, 2, 2]  # the server takes n


def test_a_refused_key_is_not_tried_again() -> None:
    answers, server = _ask(lambda request, number: Reply(status=401, message="who are you"), 2)
    assert _codes(answers) == ["policy-key"] * 2
    assert len(server.seen) == 1


def test_surplus_choices_are_not_taken() -> None:
    answers, _ = _ask(lambda request, number: Reply([_ids(request)[0]] * 9), 2)
    assert len(answers) == 2
    assert sum(a.tokens for a in answers) == 55


def test_ctrl_c_ends_the_requests() -> None:
    def never(request: dict[str, Any], number: int) -> Reply:
        os.kill(os.getpid(), signal.SIGINT)
        return Reply(["QX"], delay=4.0)

    with chat_server(never) as server:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            OpenAICompatible("toy", server.url).propose(STATE, 2)
        assert time.monotonic() - began < 3.0  # the answer takes longer
        assert len(server.seen) == 1


def test_slow_answers_time_out_and_the_deadline_covers_all_tries() -> None:
    answers, server = _ask(lambda request, number: Reply(["QX"], delay=1.0), timeout=0.1, tries=2)
    assert _codes(answers) == ["policy-timeout"]
    assert len(server.seen) == 2
    answers, server = _ask(lambda request, number: Reply(["QX"], delay=1.0), 3, timeout=5.0, deadline=0.2)
    assert _codes(answers) == ["policy-timeout"] * 3
    assert len(server.seen) == 1


def test_fields_that_a_server_refuses_are_left_out_from_then_on() -> None:
    def old(request: dict[str, Any], number: int) -> Reply:
        for name in ("response_format", "seed"):
            if name in request:
                return Reply(status=400, message=f"unknown field {name}")
        return _first(request, number)

    with chat_server(old) as server:
        made = OpenAICompatible("toy", server.url)
        assert _codes(list(made.propose(STATE, 2))) == ["ok"] * 2
        assert len(server.seen) == 3
        made.propose(state_of(MATMUL, seed=1), 2)
        assert len(server.seen) == 4


def test_a_question_that_is_refused_whatever_is_left_out_changes_nothing_for_the_next() -> None:
    def strict(request: dict[str, Any], number: int) -> Reply:
        return Reply(status=400, message="the context is too long") if number < 3 else _first(request, number)

    with chat_server(strict) as server:
        made = OpenAICompatible("toy", server.url)
        assert _codes(list(made.propose(STATE, 1))) == ["policy-refused"]
        assert len(server.seen) == 3
        assert not {"response_format", "seed"} & set(server.seen[-1])
        assert _codes(list(made.propose(STATE, 1))) == ["ok"]
        assert "response_format" in server.seen[-1]
        assert "seed" in server.seen[-1]


def test_unreadable_answers_are_typed_failures_and_cost_their_tokens() -> None:
    def odd(request: dict[str, Any], number: int) -> Reply:
        return Reply(['{"id": "A1"}', '{"id": "' + _ids(request)[0], "no idea", ""])

    answers, _ = _ask(odd, 4)
    assert _codes(answers) == ["answer-unknown-id", "answer-truncated", "answer-unreadable", "answer-empty"]
    assert sum(a.tokens for a in answers) == 30
    answers, _ = _ask(lambda request, number: Reply(["well, the"], finish="length"))
    assert _codes(answers) == ["answer-truncated"]


def test_the_other_formats_and_reasons() -> None:
    answers, server = _ask(lambda request, number: Reply(['{"reason": "r", "lines": ["3| par i"]}']), form="edit", reasons=True)
    assert answers == [Proposal(Edit(("3| par i",)), "r", 15)]
    answers, server = _ask(lambda request, number: Reply(["Next program:\n" + MATMUL]), form="rewrite", structured=False)
    assert _codes(answers) == ["ok"]
    assert "response_format" not in server.seen[0]


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "answers" / "cache.sqlite"
    answers, server = _ask(_first, 3, cache=cache)
    again, silent = _ask(_first, 3, cache=cache)
    assert again == answers
    assert not silent.seen
    more, server = _ask(_first, 5, cache=cache)
    assert more[:3] == answers
    assert [r["n"] for r in server.seen] == [2]
    for other in ({"temperature": 0.1}, {"form": "edit"}, {"reasons": True}, {"max_tokens": 9}):
        _, server = _ask(_first, 1, cache=cache, **other)
        assert len(server.seen) == 1, other


def test_lost_answers_are_not_kept(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    _ask(lambda request, number: Reply(status=500), 2, cache=cache, tries=1)
    answers, server = _ask(_first, 2, cache=cache)
    assert _codes(answers) == ["ok"] * 2
    assert len(server.seen) == 1


def test_a_cache_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache.sqlite").write_text("no database at all, but some text " * 9)
    with pytest.raises(UsageError, match="usage-cache"):
        OpenAICompatible("toy", "http://127.0.0.1:9/v1", cache=tmp_path / "cache.sqlite")


def test_tokens_stay_below_the_bound_and_cannot_be_understated() -> None:
    with chat_server(lambda request, number: Reply([_ids(request)[0]] * request["n"], usage=None)) as server:
        made = OpenAICompatible("toy", server.url, max_tokens=20)
        bound = made.tokens_at_most(STATE, 3)
        assert made.tokens_at_most(STATE, 1) * 3 == bound
        assert sum(a.tokens for a in made.propose(STATE, 3)) == bound  # not counted: the bound is charged
        content = sum(len(m["content"].encode()) for m in server.seen[0]["messages"])
        assert bound >= 3 * (content + 20)
    answers, _ = _ask(lambda request, number: Reply([_ids(request)[0]] * 2, usage=(10, 100_000)), 2, max_tokens=20)
    assert _codes(answers) == ["policy-tokens"] * 2
    assert sum(a.tokens for a in answers) == bound * 2 // 3
    answers, _ = _ask(lambda request, number: Reply([_ids(request)[0]], usage=(-50, 5)))
    assert answers[0].tokens == 0


def test_settings_tell_searches_apart_but_not_servers() -> None:
    one, other = (OpenAICompatible("toy", url) for url in ("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"))
    assert one.settings == other.settings
    assert json.loads(json.dumps(one.settings)) == one.settings
    assert OpenAICompatible("other", "http://127.0.0.1:9/v1").settings != one.settings


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        OpenAICompatible("toy")
    monkeypatch.setenv("OTHER_KEY", "sk-1")
    OpenAICompatible("toy", key="OTHER_KEY")


def test_wrong_settings_are_errors() -> None:
    with pytest.raises(UsageError, match="needs a model"):
        policy("openai")
    with pytest.raises(UsageError, match="no answer format"):
        policy("openai", model="m", base_url="http://127.0.0.1:9/v1", form="poem")
    with pytest.raises(UsageError, match="no such settings"):
        policy("random", model="m")


def test_nothing_listens() -> None:
    made = OpenAICompatible("toy", "http://127.0.0.1:9/v1", tries=2)
    with pytest.raises(UsageError, match="usage-endpoint"):
        made.endpoint.check()
    assert _codes(list(made.propose(STATE, 2))) == ["policy-connection"] * 2
    with chat_server(_first) as server:
        OpenAICompatible("toy", server.url).endpoint.check()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError) as caught:
        OpenAICompatible("toy", "http://127.0.0.1:9/v1")
    assert "steptp[llm]" in caught.value.hint


def test_an_action_is_a_site_of_the_list() -> None:
    answers, server = _ask(_first)
    assert answers == [Proposal(Action(next(iter(_listing(server.seen[0]).values()))), "", 15)]
