"""The page of a search: well-formed, complete, self-contained, and safe whatever stands in programs and answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from search_toy import Toy, program_of, searched, words

from steptp.analysis.host import HostInfo
from steptp.errors import UsageError
from steptp.ir import print_program
from steptp.report.search_page import search_page, write_page
from steptp.search.algorithms import algorithm
from steptp.search.budget import Limits
from steptp.search.finish import Answer
from steptp.search.moves import Edit, Failed, move_json
from steptp.search.outcome import result_json
from steptp.search.session import Search

HOST = HostInfo("Toy CPU", 2, 32768, 262144, 0, 64, 256)
TIMING = {
    "ratio": 7.5, "ci_low": 7.1, "ci_high": 7.9, "label": "faster", "rounds": 9, "threads": 1, "clock": "thread", "exclusive": True, "host_margin": 0.05,
    "parent_us": 1234.5, "child_us": 164.6,
}  # fmt: skip
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror='y'> ]]> &lt; {{ 7*7 }} \x00\x1b[31m \u202e \" javascript:"


def result(**changes: Any) -> dict[str, Any]:
    """A search whose best program is ``ab``: ``a`` is twice as fast, ``c`` is wrong, ``b`` is known, one answer is unreadable."""
    script = {"": ["a", "c", "-", Failed("answer-unreadable", "no JSON in it")], "a": ["b", "=", "d"], "a > b": ["e"]}
    toy = Toy({"": 8.0, "a": 4.0, "ab": 1.0, "ad": 5.0, "abe": 2.0}, bad={"c": "not_equal"})
    found, policy = searched(algorithm("beam", width=1, k=4), script, toy, limits=Limits(samples=40))
    assert words([found.best]) == ["ab"]
    session = Search(program_of(""), policy, toy, limits=Limits(samples=40, seconds=60.0), host=HOST)
    final = {"kind": "ok", "tier": 4, "message": "", "evidence": [], "timing": TIMING, "seconds": {}}
    identity = {"policy": [policy.name, policy.settings], "search": ["beam", {"width": 1}], "seed": 0, "threads": 1, "start": found.tree.start.hash}
    made = result_json("toy", session, found, Answer(found.best, final, ((3, "not faster than the start when timed again"),)), identity)
    made["steps"][0]["judged"]["evidence"] = [{"tier": 3, "kind": "ok", "message": "all regimes agree", "evidence": {"samples": 12}}]
    made["steps"][0]["reason"] = "Effect: half the work."
    made["files"] = ["program.leir", "program.so", "program.h", "trace.json", "result.json"]
    return json.loads(json.dumps({**made, **changes}))  # type: ignore[no-any-return]


def tree_of(page: str) -> ElementTree.Element:
    """The page as XML: every element closed, every attribute quoted, every character allowed."""
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))


def text_of(element: ElementTree.Element) -> str:
    return re.sub(r"\s+", " ", "".join(element.itertext()))


def test_the_head_says_the_re_measured_figure_and_why_it_ended() -> None:
    text = text_of(tree_of(search_page(result())))
    assert "7.50x (7.10 to 7.90) the speed of the start, timed afresh: 1,234.5 µs before, 164.6 µs after" in text
    assert "Toy CPU, 2 cores" in text
    assert "8 of 40 samples" in text
    assert "of 60 seconds" in text
    assert "the algorithm had nothing more to try" in text
    assert "program 3: not faster than the start when timed again" in text


def test_the_tree_has_every_node_and_the_attempts_that_failed() -> None:
    made = result()
    page = tree_of(search_page(made))
    rows = {r.get("id"): text_of(r) for r in page.iter("li") if r.get("id")}
    assert sorted(rows) == [f"node-{n['number']}" for n in made["tree"]]
    assert "c not_equal at tier 4: not_equal" in rows["node-0"]
    assert "- refused: no such place" in rows["node-0"]
    assert "no move answer-unreadable: no JSON in it" in rows["node-0"]
    assert "= no_op" in rows["node-1"]
    assert "a ok at tier 4, 2.00x, 2.00x the start" in rows["node-1"]
    chosen = [r.get("id") for r in page.iter("li") if r.get("class") == "chosen"]
    assert chosen == ["node-0", *(f"node-{s['number']}" for s in made["steps"])]
    targets = {a.get("href") for a in page.iter("a")}
    assert targets <= {f"#{name}" for name in rows}


def test_the_chain_has_differences_reasons_and_evidence() -> None:
    page = tree_of(search_page(result()))
    first, second = [s for s in page.iter("section") if s.get("class") == "step"]
    lines = [(r.get("class"), text_of(r).strip()) for r in first.iter("tr") if r.get("class") in ("added", "removed")]
    assert [kind for kind, _ in lines] == ["removed", "added"]
    assert lines[1][1].endswith("Y[i]=X[i]*9*1")
    assert [m.text for m in first.iter("mark")] == ["*1"]
    assert "Effect: half the work." in text_of(first)
    assert "Tier 3: ok, all regimes agree samples12" in text_of(first)
    assert "4.00x the program before; 8.00x the start" in text_of(second)


def test_the_curve_has_a_point_for_every_new_best() -> None:
    made = result()
    page = tree_of(search_page(made))
    circles = [e for e in page.iter() if e.tag.endswith("circle")]
    assert len(circles) == len(made["curve"]) == 3
    heights = [float(c.attrib["cy"]) for c in circles]
    assert heights == sorted(heights, reverse=True)
    assert heights[1] - heights[2] == pytest.approx(2 * (heights[0] - heights[1]), abs=0.3)  # 1, 2, 8 on a logarithmic scale


def test_a_search_that_found_nothing() -> None:
    made = result(final=None, speedup=1.0, steps=[])
    made["programs"]["answer"] = made["programs"]["start"]
    text = text_of(tree_of(search_page(made)))
    assert "Nothing verified was faster than the start" in text
    assert "None: the answer is the start." in text


def test_edits_show_their_lines() -> None:
    made = result()
    made["tree"][1]["move"] = made["steps"][0]["move"] = move_json(Edit(("3| for i Y[i]=X[i]*9*1",)))
    text = text_of(tree_of(search_page(made)))
    assert "1. edit 3" in text
    assert "Its lines3| for i Y[i]=X[i]*9*1" in text


def test_it_is_safe_against_any_text() -> None:
    plain, made = search_page(result()), result(workload=HOSTILE)
    made["host"]["name"] = made["stopped"] = made["turned_down"][0][1] = HOSTILE
    made["identity"]["policy"] = [HOSTILE, {HOSTILE: HOSTILE}]
    step = made["steps"][0]
    step["reason"] = step["said"] = step["exactness"] = HOSTILE
    step["facts"] = [{"kind": HOSTILE, "evidence": HOSTILE, "values": {HOSTILE: HOSTILE}}]
    step["judged"]["evidence"] = [{"tier": 3, "kind": HOSTILE, "message": HOSTILE, "evidence": {HOSTILE: [HOSTILE]}}]
    made["tree"][0]["attempts"] += [
        {"move": {"text": HOSTILE}, "kind": HOSTILE, "message": HOSTILE, "tier": None, "node": None, "reason": HOSTILE},
        {"move": {"site": HOSTILE}, "kind": "refused", "message": HOSTILE, "tier": None, "node": None, "reason": HOSTILE},
    ]
    page = search_page(made)
    tree = tree_of(page)
    assert {e.tag for e in tree.iter()} == {e.tag for e in tree_of(plain).iter()} | {"pre"}
    allowed = {"lang", "charset", "name", "content", "http-equiv", "class", "style", "id", "href", "scope", "open", "viewBox", "role", "aria-labelledby"}
    allowed |= {"d", "cx", "cy", "r", "x", "y", "x1", "x2", "y1", "y2", "text-anchor"}
    assert {name for e in tree.iter() for name in e.attrib} <= allowed
    assert page.count("&lt;script&gt;") > 12
    assert not any(c in page for c in "\x00\x1b\u202e")
    assert "{{ 7*7 }}" in text_of(tree)


def test_it_loads_nothing_from_elsewhere() -> None:
    page = search_page(result())
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b|@import|url\(|\bsrc=", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_only_files_that_exist_are_explained() -> None:
    text = text_of(tree_of(search_page(result(files=["program.leir", "result.json"]))))
    assert "from steptp.ir import parse" in text
    assert "load_module" not in text


def test_a_folder_without_a_finished_search_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no search"):
        write_page(tmp_path)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "search.jsonl").touch()
    with pytest.raises(UsageError, match="has not finished"):
        write_page(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        write_page(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({k: v for k, v in result().items() if k != "programs"}))
    with pytest.raises(UsageError, match="has no programs"):
        write_page(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps(result()))
    assert print_program(program_of("ab")).splitlines()[-1].strip() in write_page(tmp_path).read_text()
