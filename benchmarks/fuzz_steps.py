"""Random sequences of 1 to 12 steps over the zoo until the time is up; whatever goes wrong is shrunk and stored for the tests to replay.

Usage: python benchmarks/fuzz_steps.py [seconds] [seed] [preset]
What is checked after each step is said in tests/support/step_sequences.py; one sequence in ten is compiled at its end.
The last line is one JSON object: {"sequences", "steps", "lengths", "by_strategy", "wrong"}.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from step_sequences import follow, shrunk, store  # noqa: E402

from steptp.frontend import zoo  # noqa: E402
from steptp.ir import Program  # noqa: E402
from steptp.rewrite.engine import STRICT_VARIABLE  # noqa: E402

MOST_STEPS = 12


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    preset = sys.argv[3] if len(sys.argv) > 3 else "tiny"
    os.environ[STRICT_VARIABLE] = "1"
    names, roots = zoo.names(preset), dict[str, Program]()
    began, number = time.monotonic(), 0
    lengths: Counter[int] = Counter()
    strategies: Counter[str] = Counter()
    wrong: list[str] = []
    while time.monotonic() - began < seconds:
        rng = random.Random(f"{seed}/{number}")
        number += 1
        name = rng.choice(names)
        root = roots.get(name) or roots.setdefault(name, zoo.get(name, preset).program)
        choices = [(rng.randrange(10**6), rng.randrange(10**6)) for _ in range(rng.randint(1, MOST_STEPS))]
        run = follow(root, choices, compiled=rng.random() < 0.1)
        lengths[len(run.sites)] += 1
        strategies.update(s.strategy for s in run.sites)
        if run.wrong is not None:
            file = store(shrunk(run.wrong))
            wrong.append(file.name)
            print(f"sequence {number} on {name}: {'; '.join(run.wrong.problems)[:300]}\n  {file}")
    by_length = {str(k): v for k, v in sorted(lengths.items())}
    print(json.dumps({"sequences": number, "steps": strategies.total(), "lengths": by_length, "by_strategy": dict(strategies.most_common()), "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
