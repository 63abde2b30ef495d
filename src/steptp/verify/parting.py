"""Where two computations of one element part: the deepest pair of subterms that correspond and differ.

Both terms are opened side by side. Sums, products, maxima and the like are compared as multisets over copies, nesting and
accumulations; a term belongs to the one that depends on the same input elements. What has equal values on both sides is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from flint import arb, fmpq

from steptp.interp.compare import Same, compare_exact
from steptp.interp.trace import Term

__all__ = ["Parting", "part", "apart", "core"]

_COMMUTES = frozenset({"+", "*", "max", "min"})
_IDENTITY = {"+": 0.0, "*": 1.0, "max": float("-inf"), "min": float("inf")}
_LEAVES = frozenset({"input", "const", "index"})
_STEPS, _TERMS = 200, 4000
_DIFFERENT = "the two compute different expressions here"


@dataclass(slots=True)
class Parting:
    """``how`` in words; the subterms that part; for accumulations the terms that only the parent or only the child has.

    ``trail`` holds the pairs that were opened on the way, outermost first.
    """

    how: str
    parent: Term
    child: Term
    missing: tuple[Term, ...] = ()
    extra: tuple[Term, ...] = ()
    trail: list[tuple[Term, Term]] = field(default_factory=list)


def apart(a: Any, b: Any) -> bool:
    """Whether two values are known to differ: numbers over the reals, bools and integers plainly."""
    if isinstance(a, (fmpq, arb, float)) and isinstance(b, (fmpq, arb, float)):
        return compare_exact(a, b) is Same.DIFFERENT
    return type(a) is not type(b) or bool(a != b)


def core(term: Term) -> Term:
    """The term behind reads of computed elements and casts from float to float."""
    for _ in range(_STEPS):
        if term.head == "read" or (term.head == "cast" and term.dtype.is_float and term.args[0].dtype.is_float):
            term = term.args[0]
    return term


def _plain(term: Term) -> Term:
    """:func:`core`, through accumulations of one term too."""
    term = core(term)
    while term.folded and len(term.args) == 1:
        term = core(term.args[0])
    return term


def _shown(term: Term) -> Term:
    """The term to name: an accumulation by the read of its result."""
    inner = core(term)
    return term if inner.folded else inner


def part(parent: Term, child: Term, common: Collection[str] = ()) -> Parting:
    """Open two terms with different values until they part; ``common`` are the temporaries that both programs have."""
    trail: list[tuple[Term, Term]] = []
    for _ in range(_STEPS):
        trail.append((parent, child))
        found = _other_read(parent, child, common) or _step(parent, child)
        if isinstance(found, Parting):
            found.trail = trail
            loose = found.how == _DIFFERENT or bool(found.missing and found.extra)
            if loose and (shared := _shared_read(found, common)) is not None:
                parent, child = shared
                continue
            return _mistaken(found, common) if found.how == _DIFFERENT else found
        parent, child = found
    return Parting("the difference lies deeper than an explanation follows", parent, child, trail=trail)


def _other_read(parent: Term, child: Term, common: Collection[str]) -> Parting | None:
    """Reads that are wrong, and not what was written there: of an element before its update, or of another one, which depends on other inputs."""
    if not (parent.head == child.head == "read") or parent.element is None or child.element is None:
        return None
    if parent.element == child.element:
        before = [t for a in core(parent).args for t in (a, *a.args) if t.element == child.element and not apart(t.value, child.value)]
        return Parting(f"the child reads {child.text} before the update, the parent after it", parent.args[0], child) if before else None
    (ours, _), (theirs, _) = parent.element, child.element
    if ours != theirs or ours not in common or parent.key is None or parent.key == child.key:
        return None
    return Parting(f"the child reads {child.text} where the parent reads {parent.text}", parent, child)


def _shared_read(found: Parting, common: Collection[str]) -> tuple[Term, Term] | None:
    """Below expressions of another shape: the first element that both read and that differs already."""
    ours = {t.element: t for t in _reads(found.parent)}
    for theirs in _reads(found.child):
        mine = ours.get(theirs.element)
        if mine is not None and theirs.element is not None and theirs.element[0] in common and apart(mine.value, theirs.value):
            return mine, theirs
    return None


def _reads(term: Term) -> Iterator[Term]:
    """The computed elements that an expression, or the terms of an accumulation, read."""
    pending = [core(term)]
    for _ in range(_TERMS):
        if not pending:
            return
        here = pending.pop()
        if here.head == "read":
            yield here
        else:
            pending += here.args[::-1]


def _mistaken(found: Parting, common: Collection[str]) -> Parting:
    """Where expressions have nothing in common, the last reads of two temporaries before them, if the child has both."""
    for number in range(len(found.trail) - 1, 0, -1):
        p, c = found.trail[number]
        if p.head == c.head == "read" and p.element is not None and c.element is not None and p.element[0] != c.element[0] and p.element[0] in common:
            return Parting(f"the child reads {c.text} where the parent reads {p.text}", p, c, trail=found.trail[: number + 1])
    return found


def _step(parent: Term, child: Term) -> Parting | tuple[Term, Term]:
    folds = core(parent), core(child)
    p, c = _plain(parent), _plain(child)
    if p.folded and c.folded and p.head != c.head:
        return Parting(f"the child accumulates with {c.head} where the parent accumulates with {p.head}", *folds)
    both = folds[0].folded and folds[1].folded
    if both and folds[0].head == folds[1].head:
        if len(folds[0].args) == len(folds[1].args) == 1:
            return folds[0].args[0], folds[1].args[0]
        if len(folds[0].args) != len(folds[1].args):
            return _multisets(*folds, folds[0].head)
    if p.head == c.head and p.head in _LEAVES:
        return _leaf(p, c)
    head = next((t.head for t in (p, c) if t.head in _COMMUTES), None)
    if head is not None and (p.head == c.head or _shares(p, c, head)):
        return _multisets(*folds, head)
    if p.head == c.head and len(p.args) == len(c.args):
        return _arguments(p, c)
    if isinstance(p.value, bool) and isinstance(c.value, bool):
        return Parting(f"the parent's condition is {str(p.value).lower()}, the child's {str(c.value).lower()}", p, c)
    ours, theirs = (p, c) if both else (_shown(parent), _shown(child))
    for one, other, who in ((c, p, "child"), (p, c, "parent")):
        if one.head == "select" and other.head != "select":
            side = "holds" if one.args[0].value else "does not hold"
            return Parting(
                f"the {who} selects a side that the {'parent' if who == 'child' else 'child'} does not compute: {one.args[0].text} {side}", ours, theirs
            )
    if _pairs_equal(p.args, c.args) and not {p.head, c.head} & _LEAVES:
        return Parting(f"the child computes {_named(c)} where the parent computes {_named(p)}", ours, theirs)
    if any(_alike(a, c) for a in p.args):
        return Parting(f"the child leaves out {_named(p)}", ours, theirs)
    if any(_alike(p, a) for a in c.args):
        return Parting(f"the child applies {_named(c)}, which the parent does not", ours, theirs)
    if any(_alike(p, b) for a in c.args for b in a.args):
        return Parting("the child applies operators that the parent does not", ours, theirs)
    if c.head == "const":
        return Parting(f"the child has the constant {c.text}", ours, theirs)
    return Parting(_DIFFERENT, ours, theirs)


def _alike(a: Term, b: Term) -> bool:
    return _plain(a).head == _plain(b).head and not apart(a.value, b.value)


def _named(term: Term) -> str:
    if term.head == "cast":
        return f"a cast to {term.dtype}"
    return "an accumulation" if term.folded else "a plain value" if term.head in _LEAVES else term.head


def _leaf(p: Term, c: Term) -> Parting | tuple[Term, Term]:
    if p.head == "input":
        lookups = [(a, b) for a, b in zip(p.args, c.args, strict=False) if apart(a.value, b.value)]
        if lookups and p.element is not None and c.element is not None and p.element[0] == c.element[0]:
            return lookups[0]
        return Parting(f"the child reads {c.text} where the parent reads {p.text}", p, c)
    return Parting(f"the child has {c.text} where the parent has {p.text}", p, c)


def _pairs_equal(ours: Sequence[Term], theirs: Sequence[Term]) -> bool:
    return len(ours) == len(theirs) > 0 and all(not apart(a.value, b.value) for a, b in zip(ours, theirs, strict=True))


def _arguments(p: Term, c: Term) -> Parting | tuple[Term, Term]:
    differing = [(a, b) for a, b in zip(p.args, c.args, strict=True) if apart(a.value, b.value)]
    if len(differing) == 2 and len(p.args) == 2 and _pairs_equal(p.args, c.args[::-1]):
        return Parting(f"the operands of {p.head} are swapped", p, c)
    if differing:
        return differing[0]
    return Parting("equal operands, and another result", p, c)


# operators whose operands are a multiset


def _flat(term: Term, head: str) -> Iterator[Term]:
    """Operands through nested operators and accumulations of one kind, without identities."""
    pending, count = [term], 0
    while pending:
        outer = pending.pop()
        here = _plain(outer)
        count += 1
        if here.head == head and count < _TERMS:
            pending += here.args[::-1]
        elif not (here.head == "const" and not apart(here.value, _identity(head, here))):
            yield outer


def _identity(head: str, like: Term) -> Any:
    value = _IDENTITY[head]
    if isinstance(like.value, fmpq):
        return fmpq(int(value)) if value in (0.0, 1.0) else value
    return value if isinstance(like.value, (float, arb)) else int(value) if abs(value) < 2 else None


def _shares(p: Term, c: Term, head: str) -> bool:
    """Whether one side is an operand of the other, by value."""
    ours, theirs = list(_flat(p, head)), list(_flat(c, head))
    return any(not apart(a.value, b.value) for a in ours for b in theirs[:8]) if len(ours) < 64 else True


def _multisets(p: Term, c: Term, head: str) -> Parting | tuple[Term, Term]:
    """As the expressions stand first; where that leaves operands without a counterpart, through nested operators."""
    ordered = not (p.folded or c.folded)
    direct = _plain(p), _plain(c)
    if direct[0].head == direct[1].head == head and len(direct[0].args) == len(direct[1].args):
        pairs, missing, extra = _matched([*direct[0].args], [*direct[1].args], ordered)
        if pairs and not missing and not extra:
            return pairs[0]
    ours, theirs = list(_flat(p, head)), list(_flat(c, head))
    pairs, missing, extra = _matched(ours, theirs, ordered)
    if not missing and not extra:
        return pairs[0] if pairs else Parting("equal operands, and another result", p, c)
    if len(ours) == len(theirs):
        if pairs:
            return pairs[0]
        if len(missing) == len(extra) and (len(missing) < len(ours) or _plain(missing[0]).head == _plain(extra[0]).head):
            return missing[0], extra[0]
    noun = {"+": "term", "*": "factor"}.get(head, f"operand of {head}")
    if not extra:
        return Parting(f"the child lacks {_some(len(missing), len(ours), noun)} of the parent's", p, c, tuple(missing))
    if not missing:
        again = all(any(e.key == t.key and not apart(e.value, t.value) for t in ours) for e in extra)
        what = "counts {} twice" if again else "has {} that the parent does not have"
        return Parting("the child " + what.format(_some(len(extra), len(theirs), noun)), p, c, (), tuple(extra))
    how = f"{_some(len(missing), len(ours), noun)} of the parent's and {_some(len(extra), len(theirs), noun)} of the child's have no counterpart"
    return Parting(how, p, c, tuple(missing), tuple(extra))


def _some(count: int, total: int, noun: str) -> str:
    head, _, tail = noun.partition(" ")
    many = f"{head}s {tail}".rstrip()
    if count == total:
        return f"the only {noun}" if total == 1 else f"all {total} {many}"
    return f"{'one' if count == 1 else count} of {total} {many}"


def _matched(ours: list[Term], theirs: list[Term], ordered: bool) -> tuple[list[tuple[Term, Term]], list[Term], list[Term]]:
    """Pairs that correspond and differ, and what is left over on either side: equal terms first, then by inputs, then by value alone.

    ``ordered``: operands of one expression, of which those with one operator at one position belong together before that.
    """
    left, right = list(range(len(ours))), list(range(len(theirs)))
    pairs: list[tuple[Term, Term]] = []

    def take(agree: Any, keep: bool) -> None:
        buckets: dict[Any, list[int]] = {}
        for n in left:
            buckets.setdefault(ours[n].key, []).append(n)
        for m in list(right):
            for n in buckets.get(theirs[m].key, ()):
                if n in gone_left or not agree(ours[n], theirs[m]):
                    continue
                gone_left.add(n)
                right.remove(m)
                if keep:
                    pairs.append((ours[n], theirs[m]))
                break
        left[:] = [n for n in left if n not in gone_left]

    gone_left: set[int] = set()
    take(lambda a, b: a.head == b.head and not apart(a.value, b.value), False)
    take(lambda a, b: not apart(a.value, b.value), False)
    if len(left) == len(right) == 1:  # what is left must correspond
        return [(ours[left[0]], theirs[right[0]])], [], []
    if ordered and len(ours) == len(theirs):
        for n in [n for n in left if n in right and _plain(ours[n]).head == _plain(theirs[n]).head]:
            left.remove(n)
            right.remove(n)
            if apart(ours[n].value, theirs[n].value):
                pairs.append((ours[n], theirs[n]))
    take(lambda a, b: bool(a.key), True)
    for m in list(right):
        same = next((n for n in left if not apart(ours[n].value, theirs[m].value)), None)
        if same is not None:
            left.remove(same)
            right.remove(m)
    return pairs, [ours[n] for n in left], [theirs[m] for m in right]
