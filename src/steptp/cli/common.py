"""What several verbs share: reading a program argument, JSON output, the console."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from steptp.ir.nodes import Program

__all__ = ["read_program", "emit_json", "console", "highlight"]


def console() -> Console:
    """The console for standard output."""
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    return out if out.is_terminal else Console(highlight=False, soft_wrap=True, width=160)


def read_program(spec: str, preset: str | None = None) -> Program:
    """A program from ``x.leir`` or any workload spec (``file.py:Class``, ``module:Class``, ``einsum:…``, ``zoo:name``)."""
    if spec.endswith(".leir"):
        from steptp.errors import UsageError
        from steptp.ir import parse

        path = Path(spec)
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as err:
            raise UsageError("usage-file", f"cannot read {spec}: {err}") from None
        return parse(text, filename=spec)
    from steptp.frontend import load_workload

    return load_workload(f"{spec}@{preset}" if preset and spec.startswith("zoo:") and "@" not in spec else spec).program


def emit_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def highlight(text: str) -> str:
    """Text with rich markup characters made harmless."""
    return text.replace("[", "\\[")
