"""Errors for people: a code, a place, the text with a caret, a hint.

Every failure that a user can cause is a :class:`StepTPError`. A bad *candidate* is never one of
these at the outside: the verifier turns it into a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place", "StepTPError", "LeirError", "FrontendError", "DatasetError", "UsageError", "internal"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is: a source text (or file), a 1-based line and column, and a length in characters."""

    source: str = ""
    line: int = 0
    column: int = 0
    length: int = 1
    filename: str = "<leir>"

    def render(self) -> str:
        """The line with a caret under the place; empty when the source text is unknown."""
        lines = self.source.split("\n")
        if not self.line or self.line > len(lines):
            return ""
        text = lines[self.line - 1]
        start, width = max(self.column - 1, 0), max(self.length, 1)
        if len(text) > 160:  # keep the caret in view on very long lines
            cut = max(0, start - 70)
            text, start = text[cut : cut + 150], start - cut
        gutter = f"{self.line:>4} | "
        shown = "".join(c if c.isprintable() else "?" for c in text)
        return f"{gutter}{shown}\n{' ' * (len(gutter) + start)}{'^' * min(width, max(len(shown) - start, 1))}"


class StepTPError(Exception):
    """A clear error. ``code`` is stable (tests and scripts may match on it); ``hint`` says what to do."""

    def __init__(self, code: str, message: str, *, place: Place | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:  # keyword arguments survive pickling between processes
        return (_rebuild, (type(self), self.code, self.message, self.place, self.hint))

    def render(self) -> str:
        """The whole error as printed for a person."""
        at = ""
        if self.place and self.place.line:
            at = f" at {self.place.filename}:{self.place.line}:{self.place.column}"
        parts = [f"error[{self.code}]{at}: {self.message}"]
        if self.place and (shown := self.place.render()):
            parts.append(shown)
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.render()


def _rebuild(kind: type[StepTPError], code: str, message: str, place: Place | None, hint: str) -> StepTPError:
    return kind(code, message, place=place, hint=hint)


class LeirError(StepTPError):
    """A LEIR text or program is malformed (codes ``syntax-*``, ``type-*``, ``check-*``)."""


class FrontendError(StepTPError):
    """A PyTorch program could not be turned into LEIR (codes ``frontend-*``)."""


class DatasetError(StepTPError):
    """A dataset folder is missing, damaged or of another version (codes ``dataset-*``)."""


class UsageError(StepTPError):
    """A command was called with something it cannot use (codes ``usage-*``)."""


def internal(message: str) -> AssertionError:
    """An error that only a bug in Step-TP can cause."""
    return AssertionError(f"internal error (please report): {message}")
