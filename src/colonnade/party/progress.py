"""What an operator sees while a run works: bars and notes, or JSON lines for programs."""

from __future__ import annotations

import json
import sys
import time
from typing import IO, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from colonnade.wire.messages import one_line

__all__ = [
    "JsonReporter",
    "QuietReporter",
    "Reporter",
    "RichReporter",
    "make_progress",
    "printable",
]

# Seconds between two lines about the same step where there is no terminal to draw on.
_LINE_EVERY_S = 10.0
_LONGEST_NOTE = 10_000


def printable(text: str) -> str:
    """`text` without control characters, its lines kept; for a single line, `one_line`."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


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
        self.transcript.append(one_line(text, _LONGEST_NOTE))

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
        self._told: dict[str, float] = {}

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        super().note(text)
        # Lines are left whole: a path or fingerprint that is cut in two cannot be copied.
        self._console.print(self.transcript[-1], markup=False, highlight=False, soft_wrap=True)

    def progress(self, step: str, done: int, total: int, detail: str = "") -> None:
        """Move the step's bar."""
        super().progress(step, done, total, detail)
        if not self._console.is_terminal:
            self._tell(step, done, total, detail)
            return
        if not self._started:
            self._progress.start()
            self._started = True
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total, detail="")
        self._progress.update(self._tasks[step], completed=done, total=total, detail=detail)

    def _tell(self, step: str, done: int, total: int, detail: str) -> None:
        now = time.monotonic()
        if done == total or now - self._told.setdefault(step, now) >= _LINE_EVERY_S:
            self._told[step] = now
            line = f"{step}: {done} of {total} {detail}".rstrip()
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bars as they are and stop drawing."""
        self._told.clear()
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
        self._write({"note": self.transcript[-1]})

    def progress(self, step: str, done: int, total: int, detail: str = "") -> None:
        """Write a step's state."""
        super().progress(step, done, total, detail)
        self._write({"step": step, "done": done, "total": total, "detail": detail})


def make_progress(console: Console) -> Progress:
    """The bars used everywhere; they fit 80 columns, the detail is what gives way."""
    wide = console.width >= 100
    columns: list[ProgressColumn] = [
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=13)),
        BarColumn(bar_width=28 if wide else 16),
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=7)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
    ]
    if wide:
        columns.append(TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)))
    columns.append(TextColumn("{task.fields[detail]}", table_column=Column(no_wrap=True, ratio=1)))
    return Progress(*columns, console=console, expand=True)
