"""Stored derivations: naive programs and the atomic steps that tune them for a host.

A derivation is a file ``<name>.txt``: one sentence, the root's LEIR, and one site a line, with a remark behind ``#``. Names in braces (``{rows}``) are tile
sizes, which :func:`tile_sizes` computes from a host's facts. :func:`derive` takes the steps and returns a replayable :class:`steptp.rewrite.trace.Trace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from steptp.analysis.host import HostInfo
from steptp.errors import UsageError
from steptp.ir import parse
from steptp.ir.nodes import Program
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, NotApplicable
from steptp.rewrite.trace import Trace

__all__ = ["Derivation", "Derived", "Move", "derive", "get", "names", "tile_sizes"]

_IN_FLIGHT = 4  # vector additions of a reduction; registers are left for operands


@dataclass(frozen=True, slots=True)
class Move:
    """One step: the site, with tile sizes in braces, and why it is there."""

    site: str
    why: str


@dataclass(frozen=True, slots=True)
class Derivation:
    """A root and the steps to its tuned form."""

    name: str
    about: str
    root: str
    moves: tuple[Move, ...]

    @property
    def program(self) -> Program:
        """The root, parsed."""
        return parse(self.root, f"<{self.name}>")


@dataclass(frozen=True, slots=True)
class Derived:
    """The steps as taken: ``programs`` holds the root and one program a step, ``steps`` what each strategy returned."""

    programs: tuple[Program, ...]
    steps: tuple[Applied, ...]
    trace: Trace

    @property
    def last(self) -> Program:
        return self.programs[-1]


@cache
def names() -> tuple[str, ...]:
    """The stored derivations by name."""
    return tuple(sorted(f.name.removesuffix(".txt") for f in files(__name__).iterdir() if f.name.endswith(".txt")))


@cache
def get(name: str) -> Derivation:
    """The derivation of this name; raises :class:`UsageError` ``usage-derivation`` (unknown name, malformed file)."""
    if name not in names():
        raise UsageError("usage-derivation", f"there is no derivation {name!r}", hint=f"known are {', '.join(names())}")
    return _read(name, files(__name__).joinpath(f"{name}.txt").read_text())


def _read(name: str, text: str) -> Derivation:
    about, marked, rest = text.partition("\nroot\n")
    root, also, steps = rest.partition("\nsteps\n")
    if not (marked and also):
        raise UsageError("usage-derivation", f"the derivation {name} needs the lines 'root' and 'steps'")
    moves = []
    for line in steps.strip().splitlines():
        site, _, why = line.partition("#")
        moves.append(Move(site.strip(), why.strip()))
    return Derivation(name, " ".join(about.split()), root.strip() + "\n", tuple(moves))


def tile_sizes(host: HostInfo, itemsize: int = 4) -> dict[str, int]:
    """Tile sizes for elements of ``itemsize`` bytes.

    ``lanes``: one vector register. ``columns``: two of them, the width of a register tile. ``rows``: its height, the largest power of two whose
    accumulators, with two vectors of one operand and a broadcast of the other, fit the registers (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
    2008). ``chunk``: as many lanes as the additions of a row reduction keep in flight. ``keys``: a tile of keys whose scores, with a tile of queries, stay in L1.
    """
    lanes = host.lanes(itemsize)
    registers = 32 if host.vector_bits >= 512 else 16
    rows = 1
    while 2 * (2 * rows) + 3 <= registers:
        rows *= 2
    return {"lanes": lanes, "columns": 2 * lanes, "rows": rows, "chunk": _IN_FLIGHT * lanes, "keys": 8 * lanes}


def derive(derivation: Derivation, *, root: Program | None = None, host: HostInfo | None = None, tiles: Mapping[str, int] | None = None) -> Derived:
    """Take the steps of a derivation from its root, or from another program of that form (``root``: other sizes).

    Tile sizes come from ``host`` (default: this machine) unless ``tiles`` gives them. Raises :class:`UsageError` ``usage-derivation`` when a step does not apply, as where a
    tile does not divide a size.
    """
    sizes = dict(tiles) if tiles is not None else tile_sizes(host or HostInfo.detect())
    here = derivation.program if root is None else root
    programs, steps, trace = [here], list[Applied](), Trace.start(here)
    for number, move in enumerate(derivation.moves, 1):
        try:
            site = move.site.format_map(sizes)
        except KeyError as err:
            raise UsageError("usage-derivation", f"step {number} of {derivation.name} needs the tile size {err}") from None
        outcome = engine.apply(here, site)
        if isinstance(outcome, NotApplicable):
            raise UsageError("usage-derivation", f"step {number} of {derivation.name} ({site}) does not apply: {outcome.message}")
        here = outcome.program
        programs.append(here)
        steps.append(outcome)
        trace = trace.then(site, here)
    return Derived(tuple(programs), tuple(steps), trace)
