"""Live progress of long work on standard error."""

from __future__ import annotations

import time
from types import TracebackType

__all__ = ["BuildProgress"]

_LINE_SECONDS = 60.0
"""Without a terminal, a stage says where it is this often."""


class BuildProgress:
    """One bar a stage; a line a minute where there is no terminal. Implements ``steptp.dataset.build.Progress``; silent when ``quiet``."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bars = Progress(*columns, console=Console(stderr=True), disable=quiet)
        self._tasks: dict[str, int] = {}
        self._said = time.monotonic()

    def stage(self, name: str, total: int, done: int = 0, note: str = "") -> None:
        """Show stage ``name`` with ``done`` of ``total`` units."""
        if not self._bars.disable and not self._bars.console.is_terminal:
            if time.monotonic() - self._said >= _LINE_SECONDS:
                self._said = time.monotonic()
                self.say(f"{name}: {done:,} of {total:,}{', ' if note else ''}{note}")
            return
        self._bars.start()  # not before there is something to show; starting again does nothing
        task = self._tasks.get(name)
        if task is None:
            self._tasks[name] = self._bars.add_task(name, total=total, completed=done, note=note)
        else:
            self._bars.update(self._bars.task_ids[task], total=total, completed=done, note=note)

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._bars.console.print(text, highlight=False)

    def __enter__(self) -> BuildProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._tasks:
            self._bars.stop()
