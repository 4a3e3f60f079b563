"""One job in words: what will run, what each side learns, what it costs; the same on both sides."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from colonnade.party.estimate import Estimate
from colonnade.party.job import Job

__all__ = ["Request", "describe", "show_request"]

_COLUMNS_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Request:
    """One job as a party judges it.

    own: the party that looks at it; columns: its own source columns that would be used;
    feature_columns, label_columns: d_A and d_B, features after encoding;
    independent_columns: how many of d_A can vary on their own in the file (`Source`);
    outputs_now, outputs_before: outputs per row of this job and of earlier ones on the same data.
    """

    kind: str
    own: str
    label_party: str
    feature_party: str
    job: Job
    columns: tuple[str, ...]
    feature_columns: int
    independent_columns: int
    label_columns: int
    feature_rows: int
    label_rows: int
    outputs_now: int
    outputs_before: int
    estimate: Estimate | None = None

    @property
    def outputs_ratio(self) -> float:
        """Outputs per row, this job's included, against the number of independent features."""
        return (self.outputs_now + self.outputs_before) / max(1, self.independent_columns)

    def label_party_learns(self) -> list[str]:
        """What the label party will learn, in words."""
        lines = [
            f"which of its {self.label_rows} records {self.feature_party!r} holds too",
            f"{_count(self.outputs_now, 'output')} for each common record: the sum of both "
            "parties' scores at that moment",
            f"that {self.feature_party!r} has {self.feature_rows} records and "
            f"{_count(self.feature_columns, 'feature')}; their scales and declared ranges",
        ]
        if self.label_columns == 0:
            lines.append(
                f"{self.label_party!r} has no features of its own, so each output IS the score "
                f"X_A W_A of the columns of {self.feature_party!r}"
            )
        return lines

    def feature_party_learns(self) -> list[str]:
        """What the feature party will learn, in words."""
        return [
            f"which of its {self.feature_rows} records {self.label_party!r} holds too",
            f"that {self.label_party!r} has {self.label_rows} records and "
            f"{_count(self.label_columns, 'feature')}; their scales and declared ranges",
            "no label, no score and no weight",
        ]

    def warnings(self) -> list[str]:
        """Settings that are known to leak, for both parties' run folders."""
        found = []
        ratio = self.outputs_ratio
        reach = f"outputs per row reach {ratio:.2f} of the independent features"
        if ratio >= 1.0:
            found.append(
                f"{reach}: {self.label_party!r} can compute the rows' features up to a rotation, "
                "and all of them from a few known rows"
            )
        elif ratio >= 0.5:
            found.append(
                f"{reach}; at 1 {self.label_party!r} can compute the rows' features up to a "
                "rotation"
            )
        if self.label_columns == 0:
            found.append(
                f"{self.label_party!r} has no features: it learns X_A W_A of every scored row"
            )
        if self.job.protection == "insecure_plain":
            found.append("INSECURE: protection = insecure_plain sends everything readable")
        if self.job.insecure_key_bits is not None:
            found.append(f"INSECURE: a key of {self.job.insecure_key_bits} bits can be broken")
        return found


def show_request(request: Request, console: Console) -> None:
    """Print the request for a person."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in _rows(request):
        # Column names are anybody's text: brackets in them are no markup.
        table.add_row(key, escape(value))
    title = f"{request.label_party!r} asks {request.feature_party!r} to {request.kind}"
    console.print(Panel(table, title=title))


def describe(request: Request) -> str:
    """The request as plain text, for the run folder."""
    lines = [f"{request.label_party!r} asks {request.feature_party!r} to {request.kind}"]
    for key, value in _rows(request):
        lines.append(f"{key}: " + value.replace("\n", "\n  "))
    return "\n".join(lines)


def _rows(request: Request) -> list[tuple[str, str]]:
    job, label, feature = request.job, request.label_party, request.feature_party
    shown = ", ".join(request.columns[:_COLUMNS_SHOWN])
    if len(request.columns) > _COLUMNS_SHOWN:
        shown += f", and {len(request.columns) - _COLUMNS_SHOWN} more"
    rows = [
        ("job", job.name),
        ("model", f"{job.model} regression, protection {job.protection}"),
        ("key, masks", f"{job.modulus_bits} bits, {job.mask_bits} statistical bits"),
    ]
    if request.kind == "train":
        rows.append(
            (
                "training",
                f"{_count(job.epochs, 'epoch')}, batches of {job.batch_size}, learning rate "
                f"{job.learning_rate:g}, momentum {job.momentum:g}",
            )
        )
    rows += [
        ("own columns", f"{len(request.columns)}: {shown}" if request.columns else "none"),
        ("features", f"{feature} {request.feature_columns}, {label} {request.label_columns}"),
        ("records", f"{feature} {request.feature_rows}, {label} {request.label_rows}"),
        (f"{label} learns", "\n".join(f"- {line}" for line in request.label_party_learns())),
        (f"{feature} learns", "\n".join(f"- {line}" for line in request.feature_party_learns())),
        (
            "outputs per row",
            f"{request.outputs_now} now + {request.outputs_before} before, "
            f"{request.outputs_ratio:.2f} of {feature}'s {request.independent_columns} "
            "independent features",
        ),
    ]
    if request.estimate is not None:
        out, in_ = request.estimate.to_label_bytes, request.estimate.to_feature_bytes
        rows.append(
            (
                "expected",
                f"{request.estimate}; {out / 1e6:.2f} MB to {label}, {in_ / 1e6:.2f} MB to "
                f"{feature}",
            )
        )
    return rows + [("WARNING", warning) for warning in request.warnings()]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
