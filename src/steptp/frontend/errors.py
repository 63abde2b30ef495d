"""Where in the user's source an operator call stands, and the errors of the capture."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

from steptp.errors import FrontendError, Place

__all__ = ["user_place", "control_flow", "failed_export", "traceback_place"]

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')
_DATA_DEPENDENT = ("data-dependent", "data dependent", "GuardOnDataDependent", "unbacked symint", "DataDependentOutput", "_local_scalar_dense", "aten.nonzero")


def user_place(stack_trace: str | None) -> Place | None:
    """The innermost frame of a node's stack trace that is not PyTorch's or Step-TP's own."""
    found: Place | None = None
    for name, line in _FRAME.findall(stack_trace or ""):
        parts = Path(name).parts
        if ("torch" in parts and "site-packages" in parts) or ("frontend" in parts and "steptp" in parts and "zoo" not in parts):
            continue
        text = "".join(linecache.getlines(name))
        shown = linecache.getline(name, int(line)).rstrip("\n")
        column = len(shown) - len(shown.lstrip()) + 1
        found = Place(text, int(line), column, max(len(shown.strip()), 1), name)
    return found


def failed_export(err: BaseException, name: str) -> FrontendError:
    """An error of ``torch.export`` as ours: data-dependent control flow, or the module's own failure."""
    text = f"{type(err).__name__}: {err}"
    if any(mark in text for mark in _DATA_DEPENDENT):
        return control_flow(name, traceback_place(err))
    first = str(err).strip().split("\n")[0][:300] or type(err).__name__
    place = traceback_place(err)
    return FrontendError(
        "frontend-export", f"running {name} on its example inputs failed: {type(err).__name__}: {first}", place=place,
        hint="check that the example inputs fit forward(), and that forward() uses tensor operations only",
    )  # fmt: skip


def control_flow(name: str, place: Place | None) -> FrontendError:
    """The control flow of the module depends on values of tensors."""
    return FrontendError(
        "frontend-control-flow", f"the control flow or a shape in {name} depends on the values of a tensor", place=place,
        hint="LEIR programs are static: use torch.where for choices between values; avoid .item(), nonzero, masks as indices and 'if tensor:'",
    )  # fmt: skip


def traceback_place(err: BaseException) -> Place | None:
    """The innermost frame of the exception's traceback that belongs to the user."""
    import traceback

    lines = "".join(traceback.format_tb(err.__traceback__))
    place = user_place(lines)
    return place if place is not None and not place.filename.startswith("<") else None
