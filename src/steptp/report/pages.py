"""Templates → text that is safe in HTML whatever programs, messages and language models put into it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["render"]


def render(template: str, **values: Any) -> str:
    """The template of this name, filled; every value is escaped."""
    return _environment().get_template(template).render(**values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    loader = PackageLoader("steptp.report", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_printable)


def _printable(value: Any) -> Any:
    """Control characters and those that reorder text (which escaping leaves) as U+FFFD."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value)
