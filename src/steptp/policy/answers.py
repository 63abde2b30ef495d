"""From what a model wrote to a move. Reading is tolerant (chatter, fences, JSON or plain, smart quotes, CRLF); what it says is not guessed.

Every answer becomes a :class:`Proposal` or a :class:`Failed` with a code:

``answer-empty``
    nothing was written
``answer-truncated``
    the answer ended at its limit of tokens before the move was complete
``answer-unknown-id``
    an id that is not among the candidates
``answer-ambiguous``
    several candidates, and none marked as the answer; or a site with the id of another
``answer-lines``
    changed lines that the program has not
``answer-unreadable``
    no move in it
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import from_json

from steptp.ir.edits import EditLine, edit_line
from steptp.ir.lexer import KEYWORDS
from steptp.policy.prompting import Question
from steptp.search.moves import Action, Answer, Edit, Failed, Proposal, Rewrite

__all__ = ["answer_schema", "read_answer"]

_PLAIN = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "\u00a0": " ", "\u202f": " ", "\u2212": "-", "\u2013": "-", "\ufeff": None, "\u200b": None}
)
_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NEXT = re.compile(r"^[ \t#*]*next program[ \t*]*:[ \t*]*$\n?", re.MULTILINE | re.IGNORECASE)
_MARK = r"\b(?:step|answer|id|choice)\b[*`\"' \t]*(?::|=|is)[*`\"' \t(\[]*"
_MARKED = re.compile(_MARK + r"((?-i:[A-Z]{2}))\b", re.IGNORECASE)
_LISTED = re.compile(rf"(?:{_MARK})?(?:(?P<site>\w+@\S*?)[*`\"' \t]+)?\[(?P<id>(?-i:[A-Z]{{2}}))\][\W_]*$", re.IGNORECASE)
_EDIT = re.compile(r"^[ \t#*]*edit[ \t*]*:[ \t*]*$\n?", re.MULTILINE | re.IGNORECASE)
_NUMBERED = re.compile(r"^[ \t]*\d+\|[ ]?")
_HEADER = re.compile(r"^(?:\d+\|[ ]?)?(?:size|where|in|out)\b[^\n]*[\[=]", re.MULTILINE)


def answer_schema(question: Question) -> dict[str, Any]:
    """The JSON schema of answers to a question, the reason first."""
    move: dict[str, Any]
    if question.format == "action":
        move = {"id": {"type": "string", "enum": sorted(question.sites)}}
    elif question.format == "edit":
        move = {"lines": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[0-9]{1,6}([|+] .*|-)$"}}}
    else:
        move = {"program": {"type": "string"}}
    fields = {**({"reason": {"type": "string"}} if question.reasons else {}), **move}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def read_answer(question: Question, text: str, *, truncated: bool = False, tokens: int = 0) -> Answer:
    """The move of an answer; ``truncated``: the model was cut off by its limit."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    plain = text.translate(_PLAIN).strip()
    if not plain:
        return Failed("answer-empty", "the answer is empty" + (", its limit of tokens was used up before" if truncated else ""), tokens)
    data, whole = _json(text)  # as it was written: smart quotes may stand in a string
    if data is None or not whole:
        data, whole = _json(plain)
    if data is not None:
        found = {"action": _json_action, "edit": _json_edit, "rewrite": _json_rewrite}[question.format](question, data, whole)
    else:
        found = {"action": _action, "edit": _edit, "rewrite": _rewrite}[question.format](question, plain, not truncated)
    if isinstance(found, Proposal):
        return Proposal(found.move, found.reason, tokens)
    if truncated and found.code in ("answer-unreadable", "answer-ambiguous"):
        found = _cut_off()
    return Failed(found.code, found.message, tokens)


def _json(text: str) -> tuple[dict[str, Any] | None, bool]:
    """The answer as a JSON object, in a fence or among chatter, and whether it is complete: of one that was cut off, what had been finished."""
    for body in (*reversed(_FENCE.findall(text)), text):
        start = body.find("{")
        if start < 0 or (body[:start].strip() and not re.match(r"\{\s*\"", body[start:])):
            continue
        try:
            data, _ = json.JSONDecoder(strict=False).raw_decode(body, start)
            return (data, True) if isinstance(data, dict) else (None, True)
        except ValueError:
            pass
        for closing, whole in (("}", True), ("", False)):
            try:
                data = from_json(body[start:].rstrip() + closing, allow_partial=not whole)
            except ValueError:
                continue
            if isinstance(data, dict):
                return data, whole
    return None, True


def _unreadable(what: str) -> Failed:
    return Failed("answer-unreadable", f"the answer holds {what}")


def _said(data: dict[str, Any]) -> str:
    reason = data.get("reason", "")
    return reason.strip() if isinstance(reason, str) else ""


def _json_action(question: Question, data: dict[str, Any], whole: bool) -> Proposal | Failed:
    named = next((data[key] for key in ("id", "step", "answer", "choice", "site") if isinstance(data.get(key), str)), None)
    if named is None:
        return _unreadable("JSON without an id") if whole else _cut_off()
    line = _LISTED.search(named)
    return _chosen(question, named.strip(), _said(data)) if line is None else _from_list(question, line, _said(data))


def _json_edit(question: Question, data: dict[str, Any], whole: bool) -> Proposal | Failed:
    if not whole:
        return _cut_off()
    lines = data.get("lines")
    if isinstance(lines, str):
        lines = lines.splitlines()
    if not isinstance(lines, list) or not lines or not all(isinstance(line, str) for line in lines):
        return _unreadable("JSON without changed lines")
    found = [edit_line(part) for line in lines for part in line.splitlines()]
    known = [line for line in found if line is not None]
    return _edited(question, known, _said(data)) if len(known) == len(found) else _unreadable("a line without a number")


def _json_rewrite(question: Question, data: dict[str, Any], whole: bool) -> Proposal | Failed:
    if not whole:
        return _cut_off()
    program = data.get("program", data.get("next_program"))
    if not isinstance(program, str) or not program.strip():
        return _unreadable("JSON without a program")
    return Proposal(Rewrite(_unnumbered(_bare(program)) + "\n"), _said(data))


def _cut_off() -> Failed:
    return Failed("answer-truncated", "the answer ends before the move is complete")


def _action(question: Question, text: str, whole: bool) -> Proposal | Failed:
    alone = text.strip("`*_\"'.:()[]{}<> \n\t")
    if re.fullmatch(r"[A-Za-z]{2}", alone) or alone in question.sites.values():
        return _chosen(question, alone, "")
    if line := _LISTED.search(text):
        return _from_list(question, line, text[: line.start()].strip())
    if marked := list(_MARKED.finditer(text)):
        return _chosen(question, marked[-1][1], text[: marked[-1].start()].strip())
    last = text.splitlines()[-1].strip("`*_\"'.:()[]{}<> \t")
    if last in question.sites:
        return _chosen(question, last, "\n".join(text.splitlines()[:-1]).strip())
    if not whole:
        return _cut_off()
    words = dict.fromkeys(w for w in re.findall(r"(?<![\w@])[A-Z]{2}(?![\w@])", text) if w in question.sites)
    by_site = {site: name for name, site in question.sites.items()}
    words |= dict.fromkeys(by_site[w] for w in (t.strip("`*\"'.,;()") for t in text.split()) if w in by_site)
    if len(words) > 1:
        return Failed("answer-ambiguous", f"the answer names {', '.join(words)} and marks none as the step")
    return _chosen(question, next(iter(words)), text) if words else _unreadable("no id of a candidate")


def _from_list(question: Question, line: re.Match[str], reason: str) -> Proposal | Failed:
    """The step of a line as it is listed, whose site and id must be of one candidate."""
    site, name = line["site"], line["id"]
    if site in question.sites.values() and question.sites.get(name) not in (None, site):
        return Failed("answer-ambiguous", f"the answer names {site[:60]} and [{name}], which is another candidate")
    return _chosen(question, name, reason)


def _chosen(question: Question, named: str, reason: str) -> Proposal | Failed:
    site = question.sites.get(named) or question.sites.get(named.upper())
    if site is None and named in question.sites.values():
        site = named
    if site is None:
        return Failed("answer-unknown-id", f"there is no candidate {named[:60]!r}")
    return Proposal(Action(site), reason)


def _edit(question: Question, text: str, whole: bool) -> Proposal | Failed:
    marks = list(_EDIT.finditer(text))
    before, after = (text[: marks[-1].start()], text[marks[-1].end() :]) if marks else ("", text)
    fences = [fence for fence in _FENCE.finditer(after) if _runs(fence[1])]
    closed = False
    if fences:
        fence = fences[0] if marks else fences[-1]
        closed = fence[0].rstrip().endswith("```")
        before, after = before or after[: fence.start()], fence[1]
    runs = _runs(after)
    if not whole and not closed:
        return _cut_off()
    if not runs:
        return _unreadable("no numbered line")
    start, lines = runs[0] if marks or fences else runs[-1]
    return _edited(question, lines, _spoken(before or "\n".join(after.splitlines()[:start])))


def _runs(text: str) -> list[tuple[int, list[EditLine]]]:
    """The stretches of lines of an edit in a text, with nothing but empty lines in between, each with the number of its first line in the text, from 0."""
    runs: list[tuple[int, list[EditLine]]] = []
    joined = False
    for number, line in enumerate(text.splitlines()):
        read = edit_line(line)
        if read is None:
            joined = joined and not line.strip()
            continue
        if not joined:
            runs.append((number, []))
        runs[-1][1].append(read)
        joined = True
    return runs


def _edited(question: Question, lines: list[EditLine], reason: str) -> Proposal | Failed:
    for line in lines:
        if not line.fits(question.lines):
            return Failed("answer-lines", f"the program has lines 1 to {question.lines}, the answer changes line {line.number}")
    return Proposal(Edit(tuple(map(str, lines))), reason)


def _rewrite(question: Question, text: str, whole: bool) -> Proposal | Failed:
    marks = list(_NEXT.finditer(text))
    before, after = (text[: marks[-1].start()], text[marks[-1].end() :]) if marks else ("", text)
    fences = list(_FENCE.finditer(after))
    if fences:
        fence = fences[0] if marks else fences[-1]
        closed = fence[0].rstrip().endswith("```")
        body, before = fence[1], before or after[: fence.start()]
    else:
        closed, header = False, _HEADER.search(after)
        if header is None:
            return _unreadable("no program")
        before, body = before or after[: header.start()], _until_chatter(after[header.start() :])
    if not whole and not closed:
        return _cut_off()
    if not _HEADER.search(body := _unnumbered(body.strip("\n").rstrip())):
        return _unreadable("no program")
    return Proposal(Rewrite(body + "\n"), _spoken(before))


def _bare(program: str) -> str:
    """A program without the fence around it."""
    fence = _FENCE.search(program.strip())
    return (fence[1] if fence is not None else program).strip("\n").rstrip()


def _unnumbered(text: str) -> str:
    """Lines without the numbers of the prompt, if all bear them."""
    lines = text.splitlines()
    if lines and all(_NUMBERED.match(line) for line in lines if line.strip()):
        return "\n".join(_NUMBERED.sub("", line) for line in lines)
    return text


def _until_chatter(text: str) -> str:
    """Lines up to a paragraph of prose: one that begins with a capitalised word and has no operator of LEIR."""
    parts = re.split(r"\n[ \t]*\n", text)
    kept = [parts[0]]
    for part in parts[1:]:
        opening = part.strip().split("\n", 1)[0]
        if opening.split(" ", 1)[0] not in KEYWORDS and re.match(r"[A-Z*#][\w'*#]*[ ,:.!]", opening) and not re.search(r"\w\]?[ ]?[+*/-]?=", opening):
            break
        kept.append(part)
    return "\n".join(kept)


def _spoken(text: str) -> str:
    """The reason in what was written before the program: without the lines that name strategy and site."""
    kept = [line for line in text.splitlines() if not re.match(r"[ \t*#]*(?:strategy|site)[ \t*]*:", line, re.IGNORECASE)]
    return "\n".join(kept).strip().strip("*#").strip()
