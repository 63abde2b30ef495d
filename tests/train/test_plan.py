"""The order of batches: bounded, repeatable, as often as the weights say."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from steptp.errors import UsageError
from steptp.train.config import Stage
from steptp.train.encode import IGNORED, Row
from steptp.train.plan import Plan, make_plan

LENGTHS = random.Random(0).choices(range(5, 101), k=700)
ONES = [1.0] * len(LENGTHS)


def _rows(lengths: Sequence[int], weights: Sequence[float]) -> list[Row]:
    return [Row([1] * length, [IGNORED] * (length - 1) + [1], weight) for length, weight in zip(lengths, weights, strict=True)]


def _stage(**keys: float) -> Stage:
    return Stage(**{"batch_tokens": 800, "micro_tokens": 200, **keys})  # type: ignore[arg-type]


def _seen(plan: Plan) -> Counter[int]:
    return Counter(row for batch in plan.batches for tree in batch for row in tree.rows)


def test_every_row_once_an_epoch_in_bounded_batches() -> None:
    plan = make_plan(_rows(LENGTHS, ONES), _stage(epochs=2), 100, 0)
    assert _seen(plan) == Counter(dict.fromkeys(range(len(LENGTHS)), 2))
    sizes = [sum(tree.size for tree in batch) for batch in plan.batches]
    assert max(sizes) <= 200
    assert sum(sizes) / len(sizes) > 0.97 * 200
    assert plan.per_step == 4
    assert plan.steps == -(-len(plan.batches) // 4)
    assert plan.tokens_after(plan.steps) == plan.alone[-1] == 2 * sum(LENGTHS)
    assert plan.tokens_after(1) == sum(sizes[:4])
    assert plan.epochs == 2


def test_the_seed_decides_the_order_and_epochs_differ() -> None:
    one, same, other = (make_plan(_rows(LENGTHS, ONES), _stage(epochs=2), 100, seed).batches for seed in (0, 0, 1))
    assert one == same != other
    assert one[: len(one) // 2] != one[len(one) // 2 :]


def test_weights_and_parts_of_epochs() -> None:
    seen = _seen(make_plan(_rows([10] * 400, [2.0] * 100 + [0.5] * 300), _stage(epochs=3), 100, 0))
    assert all(seen[row] == 6 for row in range(100))
    rest = [seen[row] for row in range(100, 400)]
    assert set(rest) == {0, 1, 2, 3}
    assert 1.35 < sum(rest) / 300 < 1.65
    half = make_plan(_rows(LENGTHS, ONES), _stage(epochs=1.5), 100, 0)
    assert half.epochs == pytest.approx(1.5, abs=0.02)


def test_a_limit_of_tokens_ends_it() -> None:
    plan = make_plan(_rows(LENGTHS, ONES), _stage(max_tokens=5000), 100, 0)
    assert 5000 <= plan.tokens_after(plan.steps) < 5200
    assert make_plan(_rows(LENGTHS[:9], ONES[:9]), _stage(max_tokens=5000), 100, 0).epochs > 5


@pytest.mark.parametrize(("lengths", "weights"), [([], []), ([4], [1e-12])])
def test_nothing_to_train_on_is_refused(lengths: list[int], weights: list[float]) -> None:
    with pytest.raises(UsageError, match="train-empty"):
        make_plan(_rows(lengths, weights), _stage(epochs=1), 100, 0)
