"""A trace: a root and the steps taken from it, enough to rebuild every program on the way.

Two written forms hold the same: JSON (:meth:`Trace.to_json`) and text (:meth:`Trace.to_text`). ``root`` is the root's text; a trace without it
names the root by hash only and is replayed onto a program that the caller brings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from steptp.errors import UsageError
from steptp.ir import parse, print_program, program_hash
from steptp.ir.nodes import Program
from steptp.rewrite import engine
from steptp.rewrite.base import NotApplicable, Site

__all__ = ["Step", "Trace", "Replay", "replay"]

_VERSION = 1
_HEAD = "# steptp trace"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the site's id and the hash of the program that it gives."""

    site: str
    child: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps from a root. ``root_hash`` is the hash of the root; ``root`` its canonical text, or empty."""

    root_hash: str
    steps: tuple[Step, ...] = ()
    root: str = ""

    @staticmethod
    def start(program: Program, *, with_text: bool = True) -> Trace:
        """The empty trace of a root."""
        return Trace(program_hash(program), (), print_program(program) if with_text else "")

    def then(self, site: Site | str, child: Program) -> Trace:
        """The trace with one more step."""
        step = Step(site.id if isinstance(site, Site) else site, program_hash(child))
        return Trace(self.root_hash, (*self.steps, step), self.root)

    @property
    def end(self) -> str:
        """Hash of the last program."""
        return self.steps[-1].child if self.steps else self.root_hash

    def to_json(self) -> str:
        """One JSON object; equal traces give equal text."""
        body = {"version": _VERSION, "root": self.root, "root_hash": self.root_hash, "steps": [[s.site, s.child] for s in self.steps]}
        return json.dumps(body, ensure_ascii=False, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Trace:
        """Read :meth:`to_json` back; raises :class:`UsageError` ``usage-trace``."""
        try:
            body = json.loads(text)
        except json.JSONDecodeError as err:
            raise _malformed(f"not JSON ({err.msg} in line {err.lineno})") from None
        if not isinstance(body, dict) or body.get("version") != _VERSION:
            raise _malformed(f"no object of version {_VERSION}")
        root, root_hash, steps = body.get("root", ""), body.get("root_hash"), body.get("steps")
        if not isinstance(root, str) or not isinstance(root_hash, str) or not isinstance(steps, list):
            raise _malformed("root and root_hash must be strings and steps a list")
        for n, item in enumerate(steps):
            if not (isinstance(item, list) and len(item) == 2 and all(isinstance(x, str) for x in item)):
                raise _malformed(f"step {n + 1} is not a pair of site id and hash")
        return Trace(root_hash, tuple(Step(*item) for item in steps), root)

    def to_text(self) -> str:
        """Lines: a head, the root's hash, one line a step, then the root's text if there is one."""
        lines = [f"{_HEAD} {_VERSION}", f"root {self.root_hash}", *(f"step {s.site} -> {s.child}" for s in self.steps)]
        return "\n".join(lines) + "\n" + (f"\n{self.root}" if self.root else "")

    @staticmethod
    def from_text(text: str) -> Trace:
        """Read :meth:`to_text` back; raises :class:`UsageError` ``usage-trace``."""
        head, _, root = text.partition("\n\n")
        lines = head.rstrip("\n").split("\n")
        if lines[0] != f"{_HEAD} {_VERSION}":
            raise _malformed(f"the first line is not '{_HEAD} {_VERSION}'")
        if len(lines) < 2 or not lines[1].startswith("root "):
            raise _malformed("the second line is not 'root <hash>'")
        steps = []
        for n, line in enumerate(lines[2:], 1):
            site, arrow, child = line.removeprefix("step ").partition(" -> ")
            if not line.startswith("step ") or not arrow:
                raise _malformed(f"step {n} is not 'step <site> -> <hash>': {line!r}")
            steps.append(Step(site, child))
        return Trace(lines[1].removeprefix("root ").strip(), tuple(steps), root)


@dataclass(frozen=True, slots=True)
class Replay:
    """The programs of a trace: the root, then one per step."""

    programs: tuple[Program, ...]

    @property
    def last(self) -> Program:
        return self.programs[-1]


def replay(trace: Trace, root: Program | None = None) -> Replay:
    """Take every step again and compare every hash.

    ``root`` is needed when the trace has no text. Raises :class:`UsageError`: ``usage-trace-root`` when the root is missing or another
    program, ``usage-trace-step`` when a step no longer applies, ``usage-trace-hash`` when it gives another program.
    """
    if root is None:
        if not trace.root:
            raise UsageError("usage-trace-root", f"the trace starts from {trace.root_hash} but does not hold its text", hint="pass the root program")
        root = parse(trace.root, "<trace>")
    if (found := program_hash(root)) != trace.root_hash:
        raise UsageError(
            "usage-trace-root",
            f"the root hashes to {found}, the trace starts from {trace.root_hash}",
            hint="this is another program, or another version of LEIR",
        )
    programs = [root]
    for n, step in enumerate(trace.steps, 1):
        outcome = engine.apply(programs[-1], step.site)
        if isinstance(outcome, NotApplicable):
            raise UsageError("usage-trace-step", f"step {n} ({step.site}) does not apply: {outcome.message}")
        if (got := program_hash(outcome.program)) != step.child:
            raise UsageError(
                "usage-trace-hash",
                f"step {n} ({step.site}) gives {got}, the trace says {step.child}",
                hint="the strategy has changed since the trace was written",
            )
        programs.append(outcome.program)
    return Replay(tuple(programs))


def _malformed(what: str) -> UsageError:
    return UsageError("usage-trace", f"not a trace: {what}")
