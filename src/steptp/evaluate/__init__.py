"""How well a policy takes single steps, on the held-out splits of a dataset; see ``docs/evaluating.md``."""

from __future__ import annotations
