"""What a run leaves for people: tables on the terminal, the loss curve, the outbox."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from colonnade.errors import IntegrityError
from colonnade.party.metrics import METRIC_NAMES
from colonnade.party.run_folder import ERROR, RunEntry, RunFolder
from colonnade.wire.channel import Meter

__all__ = [
    "loss_curve_png",
    "metrics_table",
    "outbox_rows",
    "outbox_table",
    "print_text",
    "runs_table",
]


def metrics_table(title: str, rows: Mapping[str, Mapping[str, float | int]]) -> Table:
    """One row per model."""
    table = Table(title=title, title_justify="left")
    table.add_column("model", overflow="fold")
    for name in METRIC_NAMES.values():
        table.add_column(name, justify="right")
    for model, metrics in rows.items():
        cells = [f"{metrics[key]:.4f}" if key in metrics else "-" for key in METRIC_NAMES]
        table.add_row(model, *cells)
    return table


def runs_table(folder: Path, entries: Sequence[RunEntry]) -> Table:
    """All runs of a folder, what each did, and how it ended."""
    table = Table(title=escape(f"Runs in {folder}"), title_justify="left")
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("what")
    for entry in entries:
        table.add_row(entry.run_id, entry.state, escape(_what(entry)))
    return table


def _what(entry: RunEntry) -> str:
    if entry.state == "failed":
        error = entry.path / ERROR
        text = error.read_text(encoding="utf-8") if error.is_file() else "no reason was written"
        return text.splitlines()[-1][:200]
    if entry.state == "partial":
        return "runs now, or was killed"
    try:
        facts = RunFolder.open(entry.path).read_json("run.json")
    except IntegrityError as error:
        return f"damaged: {error}"
    return f"{facts['kind']} with {facts['peer']}, {facts['records']} records"


def outbox_rows(meter: Meter) -> list[dict[str, object]]:
    """Every message type that left this party, for the run folder."""
    return [
        {"message": row.tag, "count": row.count, "bytes": row.bytes, "shows": row.leaks}
        for row in meter.outbox.values()
    ]


def outbox_table(party: str, rows: Sequence[Mapping[str, object]]) -> Table:
    """The outbox for a person."""
    table = Table(title=f"What left {party!r}", title_justify="left")
    table.add_column("message", overflow="fold")
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("what it shows to the other side")
    for row in rows:
        table.add_row(
            str(row["message"]), str(row["count"]), f"{row['bytes']:,}", str(row["shows"])
        )
    return table


def print_text(table: Table, width: int = 110) -> str:
    """A table as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    file = console.file
    text = file.getvalue() if isinstance(file, io.StringIO) else ""
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def loss_curve_png(
    batch_loss: Sequence[float], epoch_loss: Sequence[float], validation: Sequence[float]
) -> bytes:
    """The loss over batches and epochs as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    per_epoch = len(batch_loss) / max(1, len(epoch_loss))
    places = [(i + 1) / per_epoch for i in range(len(batch_loss))]
    axes.plot(places, batch_loss, color="#9db4c0", linewidth=0.8, label="each batch")
    ends = list(range(1, len(epoch_loss) + 1))
    axes.plot(ends, epoch_loss, color="#1d4e6b", marker="o", markersize=4, label="epoch mean")
    if validation:
        axes.plot(ends, validation, color="#c1572b", marker="s", markersize=4, label="validation")
    axes.set_xlabel("epoch")
    axes.set_ylabel("logistic loss")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue()
