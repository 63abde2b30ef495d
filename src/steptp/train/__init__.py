"""Training of language models on a dataset's train split, through TRL; see ``docs/training.md``."""

from __future__ import annotations
