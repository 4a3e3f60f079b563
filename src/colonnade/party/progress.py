"""What an operator sees while a run works: bars and notes, or JSON lines for programs."""

from __future__ import annotations

import json
import sys
from typing import IO, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["JsonReporter", "QuietReporter", "Reporter", "RichReporter", "make_progress"]


class Reporter(Protocol):
    """Receives what happens, in order; keeps a transcript for the run folder."""

    transcript: list[str]

    def note(self, text: str) -> None:
        """One line for the operator."""
        ...

    def progress(self, step: str, done: int, total: int, detail: str = "") -> None:
        """`done` of `total` units of `step`."""
        ...

    def close(self) -> None:
        """Take the bars down."""
        ...


class QuietReporter:
    """Keeps the transcript and shows nothing."""

    def __init__(self) -> None:
        self.transcript: list[str] = []

    def note(self, text: str) -> None:
        """Keep a line."""
        self.transcript.append(text)

    def progress(self, step: str, done: int, total: int, detail: str = "") -> None:
        """Keep the end of each step."""
        if done == total:
            self.transcript.append(f"{step}: {total} done {detail}".rstrip())

    def close(self) -> None:
        """Nothing to take down."""


class RichReporter(QuietReporter):
    """Bars and lines on a terminal; plain lines where the output is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(stderr=True)
        self._progress = make_progress(self._console)
        self._tasks: dict[str, TaskID] = {}
        self._started = False

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        super().note(text)
        self._console.print(text, markup=False, highlight=False)

    def progress(self, step: str, done: int, total: int, detail: str = "") -> None:
        """Move the step's bar."""
        super().progress(step, done, total, detail)
        if not self._started:
            self._progress.start()
            self._started = True
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total, detail="")
        self._progress.update(self._tasks[step], completed=done, total=total, detail=detail)

    def close(self) -> None:
        """Leave the bars as they are and stop drawing."""
        if self._started:
            self._progress.stop()
            self._started = False
            self._tasks.clear()
            self._progress = make_progress(self._console)


class JsonReporter(QuietReporter):
    """One JSON object a line: {"note": ...} or {"step": ..., "done": ..., "total": ...}."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        super().__init__()
        self._stream = stream or sys.stdout

    def _write(self, event: dict[str, object]) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    def note(self, text: str) -> None:
        """Write a note."""
        super().note(text)
        self._write({"note": text})

    def progress(self, step: str, done: int, total: int, detail: str = "") -> None:
        """Write a step's state."""
        super().progress(step, done, total, detail)
        self._write({"step": step, "done": done, "total": total, "detail": detail})


def make_progress(console: Console) -> Progress:
    """The bars used everywhere."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}"),
        console=console,
    )
