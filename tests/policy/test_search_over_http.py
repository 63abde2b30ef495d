"""Whole searches over HTTP: rewrites of the toy space and actions through the engine, budgets, faults, and a second run from the cache."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Reply, chat_server
from search_toy import LETTERS, Toy, program_of, word_of, words

from steptp.errors import LeirError
from steptp.ir import Program, parse, print_program, program_hash
from steptp.policy import endpoint
from steptp.policy.openai_compatible import OpenAICompatible
from steptp.search.algorithms import algorithm
from steptp.search.budget import Limits
from steptp.search.checkpoint import Checkpoint
from steptp.search.evaluator import Made, make
from steptp.search.moves import Move, Rewrite
from steptp.search.session import Found, Search, run_search

START = parse("in A f32[N=24,K=16] B[K,L=20]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n")


class Written(Toy):
    """The toy space for rewrites."""

    def make(self, parent: str, moves: Sequence[Move], left: float | None) -> list[Made]:
        out = []
        for move in moves:
            assert isinstance(move, Rewrite)
            try:
                child = parse(move.text)
            except LeirError as err:
                out.append(Made(refused="malformed", message=err.message))
            else:
                out.append(Made(print_program(child), program_hash(child)))
        return out


class Engine(Toy):
    """Real sites of real programs; only verdicts and times are the toy's."""

    def make(self, parent: str, moves: Sequence[Move], left: float | None) -> list[Made]:
        return make((parent, tuple(moves)))

    def judge(self, parent: str, found: Sequence[Made], left: float | None, done: Callable[[int, dict[str, Any]], None]) -> None:
        for n, made in enumerate(found):
            self.judged.append(made.hash)
            done(n, {"kind": "ok", "tier": 4, "message": "", "evidence": [], "timing": {"ratio": 0.9 + int(made.hash[:2], 16) / 1000}, "seconds": {}})


def _rewriting(request: dict[str, Any], number: int) -> Reply:
    """Append a letter that follows from the seed."""
    text = re.findall(r"^Program:\n(.*?)\n\n", request["messages"][-1]["content"], re.MULTILINE | re.DOTALL)[-1]
    word = word_of(text + "\n") + LETTERS[request["seed"] % 3]
    return Reply([f"Because.\n\nNext program:\n{print_program(program_of(word))}"])


def _searched(answer: Callable[[dict[str, Any], int], Reply], toy: Toy, name: str, start: Program, limits: Limits, **settings: Any) -> tuple[Found, ChatServer]:
    with chat_server(answer) as server:
        made = OpenAICompatible("toy", server.url, **{"timeout": 2.0, "deadline": 5.0, "structured": False, **settings})
        return run_search(algorithm(name), Search(start, made, toy, limits=limits, clock=lambda: 0.0)), server


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_FIRST_WAIT", 0.01)


def _time(word: str) -> float:
    return 0.8 ** word.count("a") * 1.1 ** word.count("b")


@pytest.mark.parametrize("name", ["beam", "mcts", "chain"])
def test_a_search_finds_what_the_server_knows(name: str, tmp_path: Path) -> None:
    settings = {"form": "rewrite", "reasons": True, "cache": tmp_path / "cache.sqlite"}
    found, server = _searched(_rewriting, Written(_time), name, program_of(""), Limits(samples=24), **settings)
    assert "a" in word_of(found.best.text)
    assert found.best.speedup is not None
    assert found.best.speedup > 1.2
    assert found.best.reason == "Because."
    assert found.spent["samples"] == 24
    again, silent = _searched(_rewriting, Written(_time), name, program_of(""), Limits(samples=24), **settings)
    assert not silent.seen
    assert server.seen
    assert words(again.tree.nodes) == words(found.tree.nodes)
    assert again.spent == found.spent


def test_actions_go_through_the_engine_and_later_prompts_tell_what_happened() -> None:
    def choosing(request: dict[str, Any], number: int) -> Reply:
        listing = re.findall(r"^\S+ \[([A-Z]{2})\]$", request["messages"][-1]["content"], re.MULTILINE)
        return Reply([listing[(7 * number + n) % len(listing)] if n else "??" for n in range(request.get("n", 1))])

    found, server = _searched(choosing, Engine({}), "beam", START, Limits(samples=24), structured=True)
    assert len(found.tree.nodes) > 6
    assert {a.kind for n in found.tree.nodes for a in n.attempts} >= {"ok", "answer-unreadable"}
    later = server.seen[-1]["messages"][-1]["content"]
    node = next(n for n in found.tree.nodes if f"Program:\n{n.text.strip()}\n" in later and n.parent is not None)
    assert node.parent is not None
    assert f"The program before the last step:\n{node.parent.text.strip()}\n" in later
    assert f"({node.ratio:.2f}x the speed, {node.speedup:.2f}x of the start)" in later


def test_faults_cost_samples_and_never_end_a_search() -> None:
    def faulty(request: dict[str, Any], number: int) -> Reply:
        bad = [
            Reply(status=500, message="boom"),
            Reply(status=429, message="busy", headers={"Retry-After": "0.01"}),
            Reply(["x"], cut=0),
            Reply(["Next program:\nin X f3"]),
        ]
        if request.get("n", 1) > 1:
            return Reply(status=400, message="one at a time")
        if number % 11 == 3:
            return Reply(["late"], delay=0.4)
        return bad[number % 4] if number % 3 == 0 else _rewriting(request, number)

    found, _ = _searched(faulty, Written(_time), "beam", program_of(""), Limits(samples=30), form="rewrite", reasons=True, tries=1, timeout=0.2)
    kinds = {a.kind for n in found.tree.nodes for a in n.attempts}
    assert kinds >= {"ok", "policy-server", "policy-rate", "policy-connection", "policy-timeout", "answer-unreadable"}
    assert found.stopped == "samples"
    assert found.spent["samples"] == 30


def test_the_end_of_a_search_ends_the_question_under_way(tmp_path: Path) -> None:
    def dawdling(request: dict[str, Any], number: int) -> Reply:
        reply = _rewriting(request, number)
        return reply if number == 0 else Reply(reply.texts, delay=30.0)

    def searched(answer: Callable[[dict[str, Any], int], Reply], seconds: float) -> tuple[Found, ChatServer]:
        with chat_server(answer) as server:
            made = OpenAICompatible("toy", server.url, form="rewrite", reasons=True, structured=False, cache=tmp_path / "cache.sqlite")
            search = Search(program_of(""), made, Written(_time), limits=Limits(samples=4, seconds=seconds), store=store)
            return run_search(algorithm("bfs", k=4), search), server

    began = time.monotonic()
    with Checkpoint(tmp_path / "journal", {}, resume=False) as store:
        found, server = searched(dawdling, 1.5)
    assert time.monotonic() - began < 6.0
    assert found.stopped == "seconds"
    assert (found.spent["samples"], found.spent["tokens"]) == (0, 15)  # one answer of the four had come
    assert len(server.seen) == 4
    with Checkpoint(tmp_path / "journal", {}, resume=True) as store:
        again, server = searched(_rewriting, 60.0)
    assert (again.stopped, again.spent["samples"], again.spent["tokens"]) == ("samples", 4, 60)
    assert len(server.seen) == 3  # that one is not asked again
    assert {a.kind for a in again.tree.start.attempts} <= {"ok", "known"}


@pytest.mark.parametrize("tokens", [1500, 5000, 12_345])
def test_token_budgets_are_never_exceeded(tokens: int) -> None:
    def costly(request: dict[str, Any], number: int) -> Reply:
        reply = _rewriting(request, number)
        return Reply(reply.texts, usage=(len(str(request["messages"])) // 3, 100), delay=0.005)

    settings = {"form": "rewrite", "reasons": True, "max_tokens": 100, "parallel": 4}
    found, server = _searched(costly, Written(_time), "beam", program_of(""), Limits(samples=200, tokens=tokens), **settings)
    assert found.stopped == "tokens"
    assert 0 < found.spent["tokens"] <= tokens
    used = sum(len(str(r["messages"])) // 3 + 100 for r in server.seen)
    assert found.spent["tokens"] == used
