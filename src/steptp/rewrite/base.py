"""What a strategy is: sites, application, refusal, and the proof object of a schedule step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, TypeAlias, Union

from steptp.errors import UsageError
from steptp.ir.facts import Fact
from steptp.ir.nodes import Expr, Path, Program

if TYPE_CHECKING:
    from steptp.rewrite.context import Context

__all__ = [
    "Exactness", "Family", "Site", "ParamValue", "Applied", "NotApplicable", "Outcome", "Forwarding",
    "InstanceEntry", "BufferMap", "InstanceMap", "Strategy",
]  # fmt: skip

ParamValue: TypeAlias = Union[int, str]


class Exactness(str, Enum):
    """How equal a step claims to be.

    ``bitwise``: the same IEEE operations per output element, each rounded, in the same order (compared on builds
    without FMA contraction). ``reassociated``: the same operations in another order. ``algebraic``: equal over the reals
    under a stated and proven precondition.
    """

    BITWISE = "bitwise"
    REASSOCIATED = "reassociated"
    ALGEBRAIC = "algebraic"

    def __str__(self) -> str:
        return self.value


class Family(str, Enum):
    """Families of strategies, as in the published table."""

    GRAPH = "graph"
    LOOP = "loop"
    MEMORY = "memory"
    GPU = "gpu"
    ALGEBRA = "algebra"
    ONLINE = "online"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One place and parameter choice of one strategy. ``id`` is stable, printable and has no spaces."""

    strategy: str
    path: Path
    params: tuple[tuple[str, ParamValue], ...] = ()

    @property
    def id(self) -> str:
        """``loop_split@0.1:factor=16,tail=guard`` (path ``()`` prints as ``@``)."""
        place = ".".join(map(str, self.path))
        params = ",".join(f"{k}={v}" for k, v in self.params)
        return f"{self.strategy}@{place}" + (f":{params}" if params else "")

    def param(self, name: str) -> ParamValue:
        """The value of one parameter; raises ``KeyError``."""
        return dict(self.params)[name]

    @staticmethod
    def of(strategy: str, path: Path, **params: ParamValue) -> Site:
        return Site(strategy, path, tuple(params.items()))

    @staticmethod
    def parse(text: str) -> Site:
        """Read an ``id`` back; raises :class:`UsageError` ``usage-site``."""
        name, sign, rest = text.partition("@")
        place, _, tail = rest.partition(":")
        try:
            path = tuple(int(p) for p in place.split(".")) if place else ()
            params: list[tuple[str, ParamValue]] = []
            for item in tail.split(",") if tail else ():
                key, equals, value = item.partition("=")
                if not equals or not key:
                    raise ValueError(item)
                params.append((key, int(value) if value.lstrip("-").isdigit() else value))
        except ValueError:
            sign = ""
        if not sign or not name:
            raise UsageError("usage-site", f"not a site id: {text!r}", hint="sites look like loop_split@0.1:factor=16 ('steptp sites X' lists them)")
        return Site(name, path, tuple(params))


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Why a strategy does not apply at a site: a stable ``code`` and a whole sentence. A value, never an exception."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class InstanceEntry:
    """Store ``child`` (path in the child program) executes instances of store ``parent`` (path in the parent).

    ``iters`` gives every loop variable around the parent's store as an expression over the child's loop
    variables around ``child`` and sizes.
    """

    child: Path
    parent: Path
    iters: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class BufferMap:
    """Parent buffer ``parent`` lives in ``child``; its element ``(d0, d1, …)`` is at ``indices`` (over ``Var('d0')`` …).

    ``indices`` may also name the parent's loop variables around the declaration, when a private temporary becomes a larger array.
    ``per_iteration``: ``child`` is private to the child's loops around its declaration and holds what one iteration uses; ``indices`` may
    name these loops too, with an ``@`` in front.
    """

    parent: str
    child: str
    indices: tuple[Expr, ...]
    per_iteration: bool = False


@dataclass(frozen=True, slots=True)
class InstanceMap:
    """The proof object of a step: child instances → parent instances. Tier 2 checks it, independent of ``apply``.

    Stores of temporaries that only one of the programs has need no entry when they are purely defined (inlined, named, copied), or when
    they are only copied out: an accumulation into a local temporary then stands for the parent's, and the copy has no entry. Dead
    stores of the parent may be left out too.
    """

    entries: tuple[InstanceEntry, ...]
    buffers: tuple[BufferMap, ...] = ()


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Where statements of the parent went. The longest listed prefix of a path decides; ``None`` means gone."""

    moves: tuple[tuple[Path, Path | None], ...] = ()

    def __call__(self, path: Path) -> Path | None:
        best: tuple[Path, Path | None] | None = None
        for source, target in self.moves:
            if path[: len(source)] == source and (best is None or len(source) > len(best[0])):
                best = (source, target)
        if best is None:
            return path
        return None if best[1] is None else best[1] + path[len(best[0]) :]


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a step. ``inverse`` undoes it (at most three named sites; empty where none is claimed)."""

    program: Program
    exactness: Exactness
    facts: tuple[Fact, ...]
    instances: InstanceMap | None = None
    forward: Forwarding = Forwarding()
    inverse: tuple[Site, ...] = ()


Outcome: TypeAlias = Union[Applied, NotApplicable]


class Strategy(ABC):
    """One atomic rewrite family. One file and one test file each; found by the registry through its module."""

    name: ClassVar[str]
    family: ClassVar[Family]
    classes: ClassVar[tuple[Exactness, ...]]
    summary: ClassVar[str]

    @abstractmethod
    def sites(self, ctx: Context) -> Iterator[Site]:
        """Every place and parameter choice, in serial order of the program then parameter order; each must apply."""

    @abstractmethod
    def apply(self, ctx: Context, site: Site) -> Outcome:
        """Apply at ``site`` (which may be any site id, also one that does not apply)."""
