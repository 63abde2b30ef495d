"""Random sequences of steps: what must hold after each step and of the whole, shrinking, and stored regressions."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from site_checks import Case, check_case

from steptp.dataset.robust import holds_up
from steptp.errors import LeirError
from steptp.interp import evaluate
from steptp.interp.emulate import emulate
from steptp.ir import Program, parse, print_program, problems, program_hash, rebind
from steptp.ir.kernels import kernels
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import free_size_names
from steptp.rewrite import engine, registry
from steptp.rewrite.base import Applied, Exactness, Site
from steptp.rewrite.trace import Trace
from steptp.rewrite.trace import replay as replay_trace
from steptp.verify.tier4_inputs import make_inputs

__all__ = ["REGRESSIONS", "Run", "Wrong", "draw", "follow", "replay", "shrunk", "store"]

REGRESSIONS = Path(__file__).parents[1] / "rewrite" / "regressions"
MOST_LINES = 60  # a program that has grown beyond this is not taken further
_ORDER = (Exactness.BITWISE, Exactness.REASSOCIATED, Exactness.ALGEBRAIC)
_NEAR = {1: 0.0, 2: 0.05, 4: 2e-3, 8: 1e-8}  # distance over the largest value, by bytes of the dtype: gross errors only, tier 3 compares over the reals


@dataclass(frozen=True)
class Wrong:
    """What a sequence showed: the sites up to and including the one that failed, and every problem as text."""

    root: str
    sites: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'; '.join(self.problems)}\nafter {' '.join(self.sites)} on\n{self.root}"


@dataclass
class Run:
    """A sequence so far: the programs (the root first), the sites taken, and what went wrong last."""

    programs: list[Program]
    sites: list[Site]
    weakest: Exactness = Exactness.BITWISE
    wrong: Wrong | None = None
    ended: str = ""  # why it went no further, when nothing is wrong

    @staticmethod
    def of(root: Program) -> Run:
        return Run([root], [])

    @property
    def last(self) -> Program:
        return self.programs[-1]

    def fail(self, site: Site, *found: str) -> None:
        self.wrong = Wrong(print_program(self.programs[0]), (*(s.id for s in self.sites), site.id), found)

    def take(self, site: Site, *, compiled: bool = False) -> bool:
        """Take one step and check it; false when the sequence ends here."""
        parent = self.last
        seed = derive_seed("sequence", print_program(parent), site.id)
        checked = check_case(Case(parent, site, (), compiled))
        applied = checked.applied
        found = list(checked.problems)
        if applied is not None:
            found += _step_problems(parent, site, applied, random.Random(seed))
        if found:
            self.fail(site, *found)
            return False
        assert applied is not None
        assert checked.verdict is not None
        weakest = max(self.weakest, applied.exactness, key=_ORDER.index)
        if not checked.verdict.ok or (applied.exactness is Exactness.ALGEBRAIC and not holds_up(parent, applied.program)):
            self.ended = f"{site.id} is {checked.verdict.kind}"
            return False
        if applied.exactness is Exactness.ALGEBRAIC and not holds_up(self.programs[0], applied.program):
            self.ended = f"{site.id} has moved too far from the root"
            return False
        if wrong := _meaning_problem(self.programs[0], applied.program, weakest):
            self.fail(site, wrong)
            return False
        self.weakest = weakest
        self.programs.append(applied.program)
        self.sites.append(site)
        if print_program(applied.program).count("\n") > MOST_LINES:
            self.ended = "the program has grown large"
        return not self.ended

    def close(self) -> None:
        """The whole sequence as a trace comes to the same program when it is replayed from its text."""
        trace = Trace.start(self.programs[0])
        for site, program in zip(self.sites, self.programs[1:], strict=True):
            trace = trace.then(site, program)
        if self.sites and program_hash(replay_trace(Trace.from_json(trace.to_json())).last) != program_hash(self.last):
            self.fail(self.sites[-1], "the replayed trace ends at another program")


def draw(program: Program, strategies: int, site: int, names: Sequence[str] = ()) -> Site | None:
    """A site, evenly over strategies first: the strategies (``names``, default all) in the order that the first number shuffles them into, the site by the second."""
    order = sorted(names or registry.names())
    random.Random(strategies).shuffle(order)
    for name in order:
        if listed := engine.sites(program, [name], limit=40).sites:
            return listed[site % len(listed)]
    return None


def follow(root: Program, choices: Sequence[tuple[int, int]], *, first: Sequence[str] = (), compiled: bool = False) -> Run:
    """The sequence that the choices pick (see :func:`draw`), after the sites or strategies in ``first``; ``compiled`` asks for machine code at its last step."""
    run = Run.of(root)
    start = choices[0] if choices else (0, 0)
    planned = [*((name, start) for name in first), *(("", choice) for choice in choices)]
    for number, (name, choice) in enumerate(planned):
        site = Site.parse(name) if "@" in name else draw(run.last, *choice, names=[name] if name else ())
        if site is None or not run.take(site, compiled=compiled and number == len(planned) - 1):
            break
    if run.wrong is None:
        run.close()
    return run


def replay(root: str, sites: Sequence[str]) -> Wrong | None:
    """The steps again, as far as their sites are still listed. A site that is refused by now ends them; its refusal must not be a bug."""
    run = Run.of(parse(root))
    for text in sites:
        site = Site.parse(text)
        if site not in engine.sites(run.last, [site.strategy], limit=None).sites or not run.take(site, compiled=text == sites[-1]):
            break
    return run.wrong


def shrunk(wrong: Wrong) -> Wrong:
    """The same kind of failure from fewer steps: the root at any program on the way, then steps left out one by one."""
    run = Run.of(parse(wrong.root))
    for text in wrong.sites[:-1]:
        if not run.take(Site.parse(text)):
            return wrong
    best = wrong
    for start in range(len(wrong.sites) - 1, 0, -1):
        shorter = replay(print_program(run.programs[start]), wrong.sites[start:])
        if shorter is not None and shorter.sites[-1] == wrong.sites[-1]:
            best = shorter
            break
    position = 0
    while position < len(best.sites) - 1:
        shorter = replay(best.root, best.sites[:position] + best.sites[position + 1 :])
        if shorter is not None and _strategy(shorter) == _strategy(best):
            best = shorter
        else:
            position += 1
    return best


def _strategy(wrong: Wrong) -> str:
    return Site.parse(wrong.sites[-1]).strategy


def store(wrong: Wrong, folder: Path = REGRESSIONS) -> Path:
    """Write a failure down, one file for each strategy that fails: a shrinking search overwrites it, and its last word is the smallest.

    The file is replayed by the tests from then on; once mended it stays, under a name of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"found_{_strategy(wrong)}.json"
    file.write_text(json.dumps({"root": wrong.root, "sites": list(wrong.sites), "problems": list(wrong.problems)}, indent=1) + "\n")
    return file


def _step_problems(parent: Program, site: Site, step: Applied, rng: random.Random) -> Iterator[str]:
    child = step.program
    for name in ("inputs", "outputs"):
        if [(b.name, b.dtype, b.shape) for b in getattr(parent, name)] != [(b.name, b.dtype, b.shape) for b in getattr(child, name)]:
            yield f"the {name} have changed"
    yield from _inverse_problems(parent, step)
    yield from _other_sizes_problems(parent, child, rng)
    try:
        _lower(child, rng.randrange(100))
    except Exception as err:  # noqa: BLE001 - whatever lowering raises is a finding
        yield f"lowering raises {type(err).__name__}: {err}"


def _inverse_problems(parent: Program, step: Applied) -> Iterator[str]:
    back = step.program
    for undo in step.inverse:
        outcome = engine.apply(back, undo)
        if not isinstance(outcome, Applied):
            yield f"the inverse {undo.id} is refused: {outcome.message}"
            return
        back = outcome.program
    if step.inverse and program_hash(back) != program_hash(parent):
        yield f"the inverse {' '.join(s.id for s in step.inverse)} does not give the parent back"


def _other_sizes_problems(parent: Program, child: Program, rng: random.Random) -> Iterator[str]:
    """The child is valid at every re-binding that its header allows and at which the parent is valid."""
    mine, theirs = set(free_size_names(child)), set(free_size_names(parent))
    for _ in range(6):
        values = {name: rng.choice((1, 2, 3, 4, 5, 6, 8)) for name in mine | theirs}
        try:
            before, after = (rebind(p, {k: v for k, v in values.items() if k in own}) for p, own in ((parent, theirs), (child, mine)))
        except LeirError:
            continue
        if not problems(before) and (found := problems(after)):
            yield f"invalid at {' '.join(f'{k}={v}' for k, v in sorted(values.items()))}: {found[0].code}: {found[0].message}"
            return


def _lower(program: Program, seed: int) -> None:
    """TIR for the CPU; kernels for the GPU where loops are bound, run thread by thread in the emulator."""
    from steptp.lower.cuda import lower_to_cuda_tir
    from steptp.lower.tir import lower_to_tir

    lower_to_tir(program)
    if not kernels(program):
        return
    lower_to_cuda_tir(program)
    inputs = make_inputs(program, "normal", seed)
    want = evaluate(program, inputs)
    for name, value in emulate(program, inputs, seed=seed).items():
        if not np.array_equal(value, want[name], equal_nan=True):
            raise AssertionError(f"the kernels give another {name}")


def _meaning_problem(root: Program, child: Program, exactness: Exactness) -> str:
    """Whether the NumPy evaluator gives the root's outputs: the same bits after bitwise steps only, close values otherwise."""
    inputs = make_inputs(root, "normal", 3)
    try:
        want = evaluate(root, inputs)
        got = evaluate(child, inputs)
    except LeirError as err:
        return f"the evaluator raises {err.code}: {err.message}"
    for buffer in root.outputs:
        a, b = want[buffer.name], got[buffer.name]
        if exactness is Exactness.BITWISE or not buffer.dtype.is_float:
            same = np.array_equal(a, b, equal_nan=buffer.dtype.is_float)
        else:
            known = np.isfinite(a)
            with np.errstate(all="ignore"):
                away = np.abs(b.astype(np.float64) - a.astype(np.float64))[known]
                scale = np.abs(a.astype(np.float64))[known].max(initial=0.0)
            same = bool(np.array_equal(known, np.isfinite(b)) and (away <= _NEAR[buffer.dtype.itemsize] * scale + 1e-30).all())
        if not same:
            return f"{buffer.name} is not the root's any more after {exactness} steps"
    return ""
