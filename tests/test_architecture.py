"""The architecture holds: imports go one way, files stay small, heavy imports stay lazy, every strategy has a test."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "steptp"
ROOT = SRC.parent.parent

# Rooms on one level do not import each other; a room may import every lower level.
LEVELS = [
    {"errors"},
    {"ir"},
    {"analysis"},
    {"interp", "frontend", "rewrite", "lower"},
    {"verify", "measure"},
    {"reason", "mutate"},
    {"dataset", "search"},
    {"policy"},
    {"train", "evaluate"},
    {"report"},
    {"optimized"},
    {"cli"},
]
LEVEL = {room: n for n, rooms in enumerate(LEVELS) for room in rooms}
ALLOWED_SIDEWAYS: set[tuple[str, str]] = set()
HEAVY = {
    "tvm",
    "torch",
    "egglog",
    "islpy",
    "flint",
    "sympy",
    "datasets",
    "pyarrow",
    "transformers",
    "numpy",
    "scipy",
    "openai",
    "trl",
    "peft",
    "llguidance",
    "matplotlib",
    "accelerate",
}
MAX_LINES = 400


def _files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def _imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{a.name}" for a in node.names]
    return found


def test_imports_go_one_way() -> None:
    wrong: list[str] = []
    for path in _files():
        room = _room(path)
        if room == "__init__":
            continue
        assert room in LEVEL, f"{path}: room {room} is not in the system map"
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] != "steptp" or len(parts) < 2 or parts[1] not in LEVEL:
                continue
            other = parts[1]
            if other == room or LEVEL[other] < LEVEL[room] or (room, other) in ALLOWED_SIDEWAYS:
                continue
            wrong.append(f"{path.relative_to(SRC)} imports steptp.{other}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_only_the_command_line_uses_the_mutation_suite() -> None:
    users = {_room(p) for p in _files() if any(name.startswith("steptp.mutate") for name in _imports(p))}
    assert users <= {"mutate", "cli"}
    rooms = {name.split(".")[1] for p in _files() if _room(p) == "mutate" for name in _imports(p) if name.startswith("steptp.")}
    assert rooms <= {"mutate", "errors", "ir", "analysis", "interp", "rewrite", "verify"}


def test_no_file_is_too_long() -> None:
    long = {str(p.relative_to(ROOT)): n for p in _files() if (n := len(p.read_text().splitlines())) > MAX_LINES}
    assert not long, f"split these by what they are about: {long}"


def test_every_strategy_has_one_test_file() -> None:
    from steptp.rewrite import registry

    missing = [s.name for s in registry.all_strategies() if not (ROOT / "tests" / "rewrite" / "strategies" / f"test_{s.name}.py").exists()]
    assert not missing, f"no tests/rewrite/strategies/test_<name>.py for {missing}"


@pytest.mark.parametrize("module", ["steptp.ir", "steptp.cli", "steptp.verify.verdict", "steptp.rewrite.base"])
def test_heavy_imports_are_lazy(module: str) -> None:
    code = f"import sys, {module}; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"import {module} loads {done.stdout.strip()}"
