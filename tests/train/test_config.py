"""Configurations: what they accept, and what they say to a person who got one wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from steptp.errors import UsageError
from steptp.train.config import ScratchConfig, SftConfig, read_config

EXAMPLES = Path(__file__).parents[2] / "examples" / "train"
GOOD = """\
data = ["ds"]
model = "smollm2"
mix = [{task = "named", form = "edit"}]
[answers]
epochs = 2
"""


def _read(tmp_path: Path, text: str) -> SftConfig:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return read_config(path, SftConfig)


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    found = _read(tmp_path, GOOD)
    assert (found.context, found.lora, found.answers.epochs, found.mix[0].name) == (768, None, 2, "named/edit")


@pytest.mark.parametrize(
    ("old", "new", "said", "hint"),
    [
        ("epochs = 2", "epochs = ", "line 5", ""),
        ("epochs = 2", "epoch = 2", "answers.epoch: there is no such key", "did you mean epochs?"),
        ('model = "smollm2"', 'modell = "smollm2"', "model: this key is needed", ""),
        ("epochs = 2", "epochs = 2\nmax_tokens = 9", "answers: exactly one of epochs and max_tokens", ""),
        ("epochs = 2", "epochs = 2\nlearning_rate = -1", "answers.learning_rate", ""),
        ('form = "edit"', 'form = "action"', "mix[1]: the task named has no answers of the form action", ""),
        ('form = "edit"', 'form = "edit", wieght = 2', "mix[1].wieght: there is no such key", "did you mean weight?"),
        ("epochs = 2", "epochs = 2\nmicro_tokens = 100", "less than context", ""),
    ],
)
def test_errors_name_the_line_or_the_key(tmp_path: Path, old: str, new: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, GOOD.replace(old, new))
    assert caught.value.code == "usage-config"
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_identity_is_of_what_decides_the_weights(tmp_path: Path) -> None:
    base = _read(tmp_path, GOOD)
    for same in (GOOD + "max_hours = 1\n", "checkpoint_minutes = 3\n" + GOOD):
        assert _read(tmp_path, same).identity == base.identity
    for other in (GOOD + "learning_rate = 1e-3\n", "seed = 1\n" + GOOD):
        assert _read(tmp_path, other).identity != base.identity


def test_the_examples_are_valid() -> None:
    assert read_config(EXAMPLES / "smollm2-named.toml", SftConfig).lora is not None
    assert read_config(EXAMPLES / "scratch.toml", ScratchConfig).texts.max_hours is not None
    for path in EXAMPLES.glob("*.toml"):
        if not path.name.startswith("scratch"):
            read_config(path, SftConfig)
