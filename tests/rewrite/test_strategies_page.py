"""docs/strategies.md is what its generator writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from steptp.rewrite import registry

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_strategies.py"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_strategies", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date() -> None:
    made = _script().page()
    assert SCRIPT.with_name("strategies.md").read_text() == made, "run docs/generate_strategies.py"


def test_every_strategy_has_a_section_with_an_example() -> None:
    text = SCRIPT.with_name("strategies.md").read_text()
    for strategy in registry.all_strategies():
        section = text.split(f"\n## {strategy.name}\n")[1].split("\n## ")[0]
        assert strategy.summary[1:] in section
        assert section.count("```") == 4
        assert f"`{strategy.name}@" in section
