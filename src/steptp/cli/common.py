"""What several verbs share: reading a program argument, JSON output, the console."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from steptp.ir.nodes import Program

__all__ = ["read_program", "read_text", "counted", "emit_json", "console", "highlight"]


def console() -> Console:
    """The console for standard output."""
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    return out if out.is_terminal else Console(highlight=False, soft_wrap=True, width=160)


def read_program(spec: str, preset: str | None = None) -> Program:
    """A program from ``x.leir`` or any workload spec (``file.py:Class``, ``module:Class``, ``einsum:…``, ``zoo:name``)."""
    if spec.endswith(".leir"):
        from steptp.ir import parse

        return parse(read_text(spec), filename=spec)
    from steptp.frontend import load_workload

    return load_workload(f"{spec}@{preset}" if preset and spec.startswith("zoo:") and "@" not in spec else spec).program


def read_text(name: str) -> str:
    """A UTF-8 file's text; raises :class:`UsageError` ``usage-file`` with the nearest name where there is none."""
    from difflib import get_close_matches

    from steptp.errors import UsageError

    path = Path(name).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        here = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, here, 1)
        hint = f"did you mean {path.parent / near[0]}?" if near else "" if path.parent.is_dir() else f"there is no folder {path.parent} either"
        raise UsageError("usage-file", f"there is no file {name}", hint=hint) from None
    except IsADirectoryError:
        raise UsageError("usage-file", f"{name} is a folder, not a file") from None
    except UnicodeDecodeError as err:
        raise UsageError("usage-file", f"{name} is not a text file: byte {err.start} is not UTF-8") from None
    except OSError as err:
        raise UsageError("usage-file", f"cannot read {name}: {err.strerror}") from None


def emit_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def highlight(text: str) -> str:
    """Text with rich markup characters made harmless."""
    return text.replace("[", "\\[")


def counted(count: int, one: str, many: str = "") -> str:
    """``1 step``, ``2 steps``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
