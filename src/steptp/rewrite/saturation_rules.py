"""What equality saturation knows: the identities of the algebra strategies as rules of egglog, one group a strategy.

A condition of a rule is the precondition that the strategy proves at a site. Commutation and free association are no steps, so they are no
rules: where a strategy finds a factor on either side, there is a rule for each side.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

__all__ = ["COMMON", "RULES"]


def _rewrite(before: str, after: str, *conditions: str) -> str:
    when = f" :when ({' '.join(f'({c})' for c in conditions)})" if conditions else ""
    return f"(rewrite {before} {after}{when})"


def _finite(*names: str) -> tuple[str, ...]:
    return tuple(f"finite {name}" for name in names)


def _nonzero(*names: str) -> tuple[str, ...]:
    return tuple(f"nonzero {name}" for name in names)


def _sided(factor: str, rest: str) -> tuple[str, str]:
    return f"(Mul {rest} {factor})", f"(Mul {factor} {rest})"


def _with_factor(factor: str, rest: str, more: str) -> Iterator[tuple[str, str, int, tuple[str, ...]]]:
    """Products in which a strategy finds the factor: the product, what is left, on which side the factor goes, and the names in it."""
    for n, whole in enumerate(_sided(factor, rest)):
        yield whole, rest, n, (rest, factor)
        for outer, left in zip(_sided(more, whole), _sided(more, rest), strict=True):
            yield outer, left, n, (rest, factor, more)


def _factorization() -> Iterator[str]:
    for sign in ("Add", "Sub"):
        for (left, a, n, some), (right, b, _, others) in product(_with_factor("x", "a", "c"), _with_factor("x", "b", "d")):
            yield _rewrite(f"({sign} {left} {right})", _sided("x", f"({sign} {a} {b})")[n], *_finite(*sorted({*some, *others})))
        for left, a, n, some in _with_factor("x", "a", "c"):
            yield _rewrite(f"({sign} {left} x)", _sided("x", f"({sign} {a} (One))")[n], *_finite(*some))
            yield _rewrite(f"({sign} x {left})", _sided("x", f"({sign} (One) {a})")[n], *_finite(*some))
        yield _rewrite(f"(Mul ({sign} a b) x)", f"({sign} (Mul a x) (Mul b x))", *_finite("a", "b", "x"))
        yield _rewrite(f"(Mul x ({sign} a b))", f"({sign} (Mul x a) (Mul x b))", *_finite("a", "b", "x"))
    for n, m in product((0, 1), repeat=2):
        yield _rewrite(f"(Select c {_sided('x', 'a')[n]} {_sided('x', 'b')[m]})", _sided("x", "(Select c a b)")[n])


def _collect() -> Iterator[str]:
    for one, two in product(("Add", "Sub"), repeat=2):
        for (first, a, n, some), (last, b, _, others) in product(_with_factor("x", "a", "c"), _with_factor("x", "b", "d")):
            needs = _finite(*sorted({*some, *others}))
            inner = f"(Add {a} {b})" if one == two else f"(Sub {a} {b})"
            yield _rewrite(f"({two} ({one} {first} t) {last})", f"({one} {_sided('x', f'({two} {a} {b})')[n]} t)", *needs)
            yield _rewrite(f"({two} ({one} t {first}) {last})", f"({one} t {_sided('x', inner)[n]})", *needs)


def _sums() -> Iterator[str]:
    yield _rewrite("(Sub (Sub a b) c)", "(Sub a (Add b c))")
    yield _rewrite("(Sub a (Add b c))", "(Sub (Sub a b) c)")
    yield _rewrite("(Add a (Add b c))", "(Add (Add a b) c)")
    yield _rewrite("(Add a (Sub b c))", "(Sub (Add a b) c)")


def _fractions() -> Iterator[str]:
    for sign in ("Add", "Sub"):
        yield _rewrite(f"(Div ({sign} a b) c)", f"({sign} (Div a c) (Div b c))", *_nonzero("c"))
        yield _rewrite(f"({sign} (Div a c) (Div b c))", f"(Div ({sign} a b) c)", *_nonzero("c"))
        yield _rewrite(f"({sign} (Div a b) (Div c d))", f"(Div ({sign} (Mul a d) (Mul c b)) (Mul b d))", *_nonzero("b", "d"))
        yield _rewrite(f"({sign} (Div a b) c)", f"(Div ({sign} a (Mul c b)) b)", *_nonzero("b"))
        yield _rewrite(f"({sign} c (Div a b))", f"(Div ({sign} (Mul c b) a) b)", *_nonzero("b"))
    yield _rewrite("(Div a b)", "(Mul a (Div (One) b))")
    yield _rewrite("(Mul (Div a b) c)", "(Div (Mul a c) b)")
    yield _rewrite("(Mul c (Div a b))", "(Div (Mul c a) b)")
    yield _rewrite("(Mul (Div a b) (Div c d))", "(Div (Mul a c) (Mul b d))", *_nonzero("b", "d"))
    yield _rewrite("(Div (Div a b) c)", "(Div a (Mul b c))", *_nonzero("b", "c"))
    yield _rewrite("(Div a (Div b c))", "(Div (Mul a c) b)", *_nonzero("b", "c"))
    yield _rewrite("(Mul (One) a)", "a")
    yield _rewrite("(Mul a (One))", "a")
    yield _rewrite("(Div a (One))", "a")


def _cancellation() -> Iterator[str]:
    yield _rewrite("(Div a a)", "(One)", *_nonzero("a"))
    for whole in _sided("b", "a"):
        yield _rewrite(f"(Div {whole} b)", "a", *_nonzero("b"))
        for outer, rest in zip(_sided("c", whole), _sided("c", "a"), strict=True):
            yield _rewrite(f"(Div {outer} b)", rest, *_nonzero("b"))
    yield _rewrite("(Mul (Div a b) b)", "a", *_nonzero("b"))
    yield _rewrite("(Mul b (Div a b))", "a", *_nonzero("b"))
    yield _rewrite("(Sub (Add a b) b)", "a", *_finite("b"))
    yield _rewrite("(Sub (Add b a) b)", "a", *_finite("b"))
    yield _rewrite("(Add (Sub a b) b)", "a", *_finite("b"))


def _powers() -> Iterator[str]:
    yield _rewrite("(Mul (Exp a) (Exp b))", "(Exp (Add a b))")
    yield _rewrite("(Div (Exp a) (Exp b))", "(Exp (Sub a b))")
    yield _rewrite("(Div a (Exp b))", "(Mul a (Exp (Neg b)))")
    yield _rewrite("(Neg (Neg a))", "a")
    yield _rewrite("(Add a (Neg b))", "(Sub a b)")
    yield _rewrite("(Mul (Sqrt a) (Sqrt a))", "a", "nonnegative a")
    yield _rewrite("(Div (Sqrt a) (Sqrt a))", "(One)", "positive a")
    yield _rewrite("(Mul (Sqrt a) (Sqrt b))", "(Sqrt (Mul a b))", "nonnegative a", "nonnegative b")
    yield _rewrite("(Mul (Sqrt a) (Sqrt b))", "(Sqrt (Mul a b))", "positive a")
    yield _rewrite("(Mul (Sqrt a) (Sqrt b))", "(Sqrt (Mul a b))", "positive b")
    yield _rewrite("(Div (Sqrt a) (Sqrt b))", "(Sqrt (Div a b))", "positive b")
    yield _rewrite("(Div a (Sqrt b))", "(Mul a (Rsqrt b))")
    yield _rewrite("(Sqrt (Mul a a))", "(Abs a)")


def _logarithms() -> Iterator[str]:
    for a, b in (("a", "b"), ("b", "a")):
        yield _rewrite("(Add (Log a) (Log b))", "(Log (Mul a b))", f"positive {a}")
        yield _rewrite("(Log (Mul a b))", "(Add (Log a) (Log b))", f"positive {b}")
    yield _rewrite("(Sub (Log a) (Log b))", "(Log (Div a b))", "positive b")
    yield _rewrite("(Log (Div a b))", "(Sub (Log a) (Log b))", "positive b")
    yield _rewrite("(Log (Exp a))", "a")
    yield _rewrite("(Log (Div (One) b))", "(Neg (Log b))", *_finite("b"))
    yield _rewrite("(Add a (Log1p (Exp (Neg a))))", "(Log1p (Exp a))", *_finite("a"))


def _consequences() -> Iterator[str]:
    """What preconditions say of larger expressions, as :mod:`steptp.analysis.valuemath` has it."""
    for made, facts, given in (
        ("(One)", "positive finite", ()),
        ("(Neg a)", "finite", ("finite a",)),
        ("(Neg a)", "nonzero", ("nonzero a",)),
        ("(Exp a)", "positive finite", ("finite a",)),
        ("(Sqrt a)", "nonnegative", ("nonnegative a",)),
        ("(Sqrt a)", "positive finite", ("positive a", "finite a")),
        ("(Rsqrt a)", "positive finite", ("positive a", "finite a")),
        ("(Log a)", "finite", ("positive a", "finite a")),
        ("(Add a b)", "finite", ("finite a", "finite b")),
        ("(Sub a b)", "finite", ("finite a", "finite b")),
        ("(Mul a b)", "finite", ("finite a", "finite b")),
        ("(Add a b)", "nonnegative", ("nonnegative a", "nonnegative b")),
        ("(Add a b)", "positive", ("positive a", "nonnegative b")),
        ("(Add a b)", "positive", ("nonnegative a", "positive b")),
        ("(Mul a a)", "nonnegative", ("finite a",)),
        ("(Mul a b)", "nonnegative", ("nonnegative a", "nonnegative b")),
        ("(Mul a b)", "positive", ("positive a", "positive b", "finite a", "finite b")),
        ("(Mul a b)", "nonzero", ("nonzero a", "nonzero b", "finite a", "finite b")),
        ("(Div a b)", "finite", ("finite a", "finite b", "nonzero b")),
        ("(Div a b)", "nonnegative", ("nonnegative a", "positive b")),
        ("(Div a b)", "positive", ("positive a", "positive b", "finite a", "finite b")),
        ("(Div a b)", "nonzero", ("nonzero a", "nonzero b", "finite a", "finite b")),
    ):
        body = " ".join(f"({g})" for g in given)
        yield f"(rule ((= e {made}) {body}) ({' '.join(f'({name} e)' for name in facts.split())}))"
    yield "(rule ((positive e)) ((nonnegative e) (nonzero e)))"


COMMON = (*_factorization(), *_collect())
"""Rules that need something that occurs twice: a common factor."""

RULES = (*_sums(), *_fractions(), *_cancellation(), *_powers(), *_logarithms(), *_consequences())
