"""The words that a language model is asked in: one prompt file for each task, form of answer, and with or without reasons.

*named* gives strategy and site, *free* leaves them to the model, *action* asks for one of the listed sites. An *edit* answers with the numbered lines
that change, a *rewrite* with the whole next program, an *action* with a listed line: a site and its id.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Literal, TypeAlias, get_args

from steptp.analysis.host import HostInfo
from steptp.errors import LeirError
from steptp.ir import parse
from steptp.ir.nodes import Path, Program
from steptp.ir.printer import program_lines, statement_place
from steptp.ir.seeds import derive_seed, digest
from steptp.rewrite.base import Site

__all__ = [
    "FORMS", "TASKS", "Form", "Task", "candidate_line", "conversation", "describe_host", "forms_of", "list_candidates", "numbered", "prompt_file",
    "prompt_versions", "task_prompt", "with_opaque_ids",
]  # fmt: skip

Task: TypeAlias = Literal["named", "free", "action"]
Form: TypeAlias = Literal["action", "edit", "rewrite"]
TASKS: tuple[Task, ...] = get_args(Task)
FORMS: tuple[Form, ...] = get_args(Form)


def forms_of(task: Task) -> tuple[Form, ...]:
    """Forms of answers to a task."""
    return ("action",) if task == "action" else ("edit", "rewrite")


@cache
def prompt_file(name: str, package: str = "steptp.dataset") -> str:
    """The text of one prompt file of a package."""
    return resources.files(package).joinpath("prompts", f"{name}.txt").read_text().strip()


def _name(task: Task, form: Form, reasons: bool) -> str:
    return (task if task == "action" else f"{task}_{form}") + ("_why" if reasons else "")


def prompt_versions() -> dict[str, str]:
    """Prompt name → hash of its text."""
    names = [_name(task, form, reasons) for task in TASKS for form in forms_of(task) for reasons in (False, True)]
    return {name: digest(prompt_file(name)) for name in ("system", *names)}


def conversation(*turns: str) -> list[dict[str, str]]:
    """Chat messages: the system's words, then the user's and the assistant's in turn."""
    said = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)]
    return [{"role": "system", "content": prompt_file("system")}, *said]


def task_prompt(
    task: Task, form: Form, reasons: bool, program: str, *, strategy: str = "", site: str = "", host: str = "", candidates: Mapping[str, str] | None = None
) -> str:
    """The question about a program's text. *named* names ``strategy`` and ``site``, and where that is, if the text is of a program; *action* shows ``host``
    and ``candidates`` (opaque id → site)."""
    shown = numbered(program) if form == "edit" else program.strip()
    where = f"{site}{_place(program, site)}" if task == "named" else site
    return prompt_file(_name(task, form, reasons)).format(program=shown, strategy=strategy, site=where, host=host, candidates=list_candidates(candidates or {}))


def _place(text: str, site: str) -> str:
    """`` (line 7, loop i)``; empty where the site is no place in the text."""
    made = _lines(text)
    if made is None:
        return ""
    program, lines = made
    path = Site.parse(site).path
    return f" ({statement_place(program, path, lines)})" if not path or path in lines else ""


@lru_cache(maxsize=64)
def _lines(text: str) -> tuple[Program, dict[Path, int]] | None:
    try:
        program = parse(text)
    except LeirError:
        return None
    return program, program_lines(program)[1]


def numbered(text: str) -> str:
    """A program with the numbers of its lines."""
    return "\n".join(f"{n}| {line}" for n, line in enumerate(text.splitlines(), 1))


def list_candidates(candidates: Mapping[str, str]) -> str:
    """A line for each candidate: its site, then its id, whose tokens have read the site, so that a causal model finds the id where it judges the site."""
    return "\n".join(candidate_line(site, name) for name, site in candidates.items())


def candidate_line(site: str, name: str) -> str:
    """A candidate as it is listed, and as an *action* answers."""
    return f"{site} [{name}]"


def describe_host(host: HostInfo) -> str:
    """One line about the host, as prompts state it."""
    return ", ".join(f"{name} {value}" for name, value in host.to_dict().items() if value)


def with_opaque_ids(sites: Sequence[str], seed: int) -> dict[str, str]:
    """The sites in their order, under distinct two-letter ids that say nothing about content or order, one drawn by the same seed included. Up to 113 sites
    get ids of :data:`_ONE_TOKEN`."""
    pool = _ONE_TOKEN if len(sites) <= len(_ONE_TOKEN) else _pairs(string.ascii_uppercase)
    return dict(zip(random.Random(derive_seed("ids", seed)).sample(pool, len(sites)), sites, strict=True))


def _pairs(letters: str) -> list[str]:
    return [a + b for a in letters for b in letters]


_ONE_TOKEN = [pair for pair in _pairs("BCDFLMNPRST") if pair not in {"FB", "LB", "LF", "LN", "MF", "PB", "TD", "TN"}]
"""Pairs of frequent consonants, no words among them; each one token of SmolLM2, as of most vocabularies learned from English text and code."""
