"""Shortcut probes: what can be guessed without understanding the program?

A model that has learnt nothing but list positions, lengths or word counts must not look good. Each probe is trained on one half of the
walks and tested on the other; ``uniform`` is the score of choosing evenly among the listed candidates.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steptp.ir.seeds import derive_seed

__all__ = ["Probe", "run_probes", "NUISANCE_MARGIN"]

NUISANCE_MARGIN = 0.03
Row = Mapping[str, Any]
Probe = dict[str, float]


def run_probes(steps: Sequence[Row], texts: Mapping[str, str], seed: int = 0) -> dict[str, Probe]:
    """Probe name → ``{"score", "uniform", "n", "error"}`` (error: one standard error of the score)."""
    walks = [s for s in steps if s["role"] == "walk" and s["verdict"] == "ok" and s["site"] in s["candidates"]]
    train = [s for s in walks if derive_seed(seed, s["trajectory"]) % 2]
    test = [s for s in walks if not derive_seed(seed, s["trajectory"]) % 2]
    out = {
        "nuisance: list position": _choice(train, test, lambda step, n: (n,)),
        "nuisance: position and list size": _choice(train, test, lambda step, n: (n, len(step["candidates"]))),
        "nuisance: parent length and position": _choice(train, test, lambda step, n: (len(texts[step["parent"]]) // 100, n)),
    }
    for name in ("loop_unrolling", "loop_parallelization"):
        out[f"baseline: always {name}"] = _always(test, name)
    out["baseline: strategy prior"] = _prior(train, test)
    out["baseline: bag of tokens"] = _bag_of_tokens(train, test, texts)
    out["baseline: nearest neighbour"] = _nearest(train, test, texts)
    out["baseline: copy the parent"] = _copy(test)
    return out


def _score(hits: Sequence[float], uniform: Sequence[float]) -> Probe:
    n = max(len(hits), 1)
    mean = sum(hits) / n
    return {"score": mean, "uniform": sum(uniform) / n, "n": float(len(hits)), "error": math.sqrt(max(mean * (1 - mean), 1e-9) / n)}


def _uniform(step: Row) -> float:
    return 1.0 / max(len(step["candidates"]), 1)


def _choice(train: Sequence[Row], test: Sequence[Row], feature: Callable[[Row, int], tuple[int, ...]]) -> Probe:
    """Guess the candidate whose nuisance feature was chosen most often (per time seen) in training."""
    seen: Counter[tuple[int, ...]] = Counter()
    chosen: Counter[tuple[int, ...]] = Counter()
    for step in train:
        for n, site in enumerate(step["candidates"]):
            key = feature(step, n)
            seen[key] += 1
            chosen[key] += site == step["site"]
    hits = []
    for step in test:
        rates = [(chosen[k] + 1) / (seen[k] + 20) if (k := feature(step, n)) in seen else 1 / 20 for n in range(len(step["candidates"]))]
        hits.append(float(step["candidates"][rates.index(max(rates))] == step["site"]))
    return _score(hits, [_uniform(s) for s in test])


def _within(step: Row, strategy: str | None) -> float:
    """Chance of the right site when choosing evenly among the candidates of one strategy."""
    options = [c for c in step["candidates"] if strategy is not None and c.startswith(f"{strategy}@")] or list(step["candidates"])
    return 1.0 / len(options) if step["site"] in options else 0.0


def _always(test: Sequence[Row], strategy: str) -> Probe:
    return _score([_within(s, strategy) for s in test], [_uniform(s) for s in test])


def _prior(train: Sequence[Row], test: Sequence[Row]) -> Probe:
    order = [name for name, _ in Counter(s["strategy"] for s in train).most_common()]
    hits = [_within(s, next((o for o in order if any(c.startswith(f"{o}@") for c in s["candidates"])), None)) for s in test]
    return _score(hits, [_uniform(s) for s in test])


def _words(text: str) -> Counter[str]:
    return Counter(text.replace("[", " ").replace("]", " ").replace(",", " ").split())


def _bag_of_tokens(train: Sequence[Row], test: Sequence[Row], texts: Mapping[str, str]) -> Probe:
    """Multinomial naive Bayes from the parent's words to the strategy."""
    by_class: dict[str, Counter[str]] = defaultdict(Counter)
    classes = Counter(s["strategy"] for s in train)
    for step in train:
        by_class[step["strategy"]] += _words(texts[step["parent"]])
    vocabulary = len({w for c in by_class.values() for w in c}) + 1
    totals = {c: sum(words.values()) for c, words in by_class.items()}
    hits = []
    for step in test:
        words = _words(texts[step["parent"]])
        open_ = {c.split("@")[0] for c in step["candidates"]} & set(classes)

        def likelihood(name: str, words: Counter[str] = words) -> float:
            base = math.log(classes[name])
            return base + sum(n * math.log((by_class[name][w] + 1) / (totals[name] + vocabulary)) for w, n in words.items())

        hits.append(_within(step, max(sorted(open_), key=likelihood) if open_ else None))
    return _score(hits, [_uniform(s) for s in test])


def _nearest(train: Sequence[Row], test: Sequence[Row], texts: Mapping[str, str]) -> Probe:
    """The strategy of the training state with the most similar set of words (at most 400 of them are compared)."""
    pool = [(frozenset(_words(texts[s["parent"]])), s["strategy"]) for s in train[:400]]
    hits = []
    for step in test[:400]:
        words = frozenset(_words(texts[step["parent"]]))
        best = max(pool, key=lambda item: len(words & item[0]) / max(len(words | item[0]), 1), default=(frozenset[str](), None))
        hits.append(_within(step, best[1]))
    return _score(hits, [_uniform(s) for s in test[:400]])


def _copy(test: Sequence[Row]) -> Probe:
    """Answering with the parent's text: right only for a no-op."""
    return _score([float(s["child"] == s["parent"]) for s in test], [0.0 for _ in test])
