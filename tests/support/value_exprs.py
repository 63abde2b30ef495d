"""Random float expressions as text, over x[i] and y[i]."""

from __future__ import annotations

import random

_ATOMS = ("x[i]", "y[i]", "2", "-1.5", "0.25")
_ONE = (
    "exp({})",
    "abs({})",
    "-({})",
    "tanh({})",
    "sigmoid({})",
    "sqrt(abs({}))",
    "log1p(abs({}))",
    "rsqrt(1+abs({}))",
    "expm1({})",
    "erf({})",
    "log({})",
    "floor({})",
)
_TWO = ("({})+({})", "({})-({})", "({})*({})", "({})/({})", "max({},{})", "min({},{})", "select(x[i]>0,{},{})", "select(x[i]<y[i],{},{})", "({})*({})+1")


def value_text(rng: random.Random, depth: int) -> str:
    """An expression of at most this depth."""
    if depth == 0:
        return rng.choice(_ATOMS)
    if rng.random() < 0.4:
        return rng.choice(_ONE).format(value_text(rng, depth - 1))
    return rng.choice(_TWO).format(value_text(rng, depth - 1), value_text(rng, rng.randrange(depth)))
