"""What the feature party sees before a job runs, and whether its configuration lets it run."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from colonnade.errors import UsageError
from colonnade.party.config import ApprovalConfig
from colonnade.party.job import Job

__all__ = ["Request", "ask_operator", "decide", "describe", "job_differences", "show_request"]


@dataclass(frozen=True)
class Request:
    """One job as the feature party judges it.

    columns: source columns that would be used; encoded_columns: d_A, after one-hot encoding;
    label_columns: -1 where it does not matter (a prediction);
    outputs_now, outputs_before: outputs per row of this job and of earlier ones on the same data;
    seconds, bytes_out, bytes_in: expected, 0 where unknown.
    """

    kind: str
    label_party: str
    name: str
    job: Job | None
    columns: tuple[str, ...]
    encoded_columns: int
    rows: int
    label_rows: int
    label_columns: int
    outputs_now: int
    outputs_before: int
    seconds: float = 0.0
    bytes_out: int = 0
    bytes_in: int = 0

    @property
    def outputs_ratio(self) -> float:
        """Outputs per row, this job's included, against the number of features."""
        return (self.outputs_now + self.outputs_before) / max(1, self.encoded_columns)

    def learns(self) -> list[str]:
        """What the label party will learn, in words."""
        lines = [
            f"which of your records it shares (of its {self.label_rows}), and how many",
            f"{self.outputs_now} output(s) per shared row: the sum of both parties' scores",
            f"your number of feature columns ({self.encoded_columns}), their scales and ranges",
        ]
        if self.label_columns == 0:
            lines.append(
                "it has no features of its own, so each output IS your columns' score of that row"
            )
        return lines

    def warnings(self) -> list[str]:
        """Settings that are known to leak, for both parties' run folders."""
        found = []
        ratio = self.outputs_ratio
        if ratio >= 1.0:
            found.append(
                f"outputs per row reach {ratio:.2f} of the feature count: the label party can "
                "compute the rows' features up to a rotation, and all of them from a few known rows"
            )
        elif ratio >= 0.5:
            found.append(
                f"outputs per row reach {ratio:.2f} of the feature count; at 1 the label party can "
                "compute the rows' features up to a rotation"
            )
        if self.label_columns == 0:
            found.append("the label party has no features: it learns X_A W_A of every scored row")
        if self.job is not None and self.job.protection == "insecure_plain":
            found.append("INSECURE: protection = insecure_plain sends everything readable")
        if self.job is not None and self.job.insecure_key_bits is not None:
            found.append(f"INSECURE: a key of {self.job.insecure_key_bits} bits can be broken")
        return found


def decide(request: Request, approval: ApprovalConfig) -> str | None:
    """Reason to refuse, or None where the configuration lets the job run.

    A refusal quotes a limit of this side to the other one: limits are no secrets.
    """
    job = request.job
    if approval.mode == "never":
        return "this party approves no jobs now ([approval] mode = never)"
    total = request.outputs_now + request.outputs_before
    limit = approval.max_outputs_per_row
    checks = [
        (
            limit is not None and total > limit,
            f"outputs per row would reach {total}; this party allows {limit}",
        ),
        (
            approval.max_rows is not None and request.label_rows > approval.max_rows,
            f"got {request.label_rows} rows; this party allows {approval.max_rows}",
        ),
    ]
    if job is not None:
        checks += [
            (
                job.epochs > approval.max_epochs,
                f"got {job.epochs} epochs; this party allows {approval.max_epochs}",
            ),
            (
                job.batch_size < approval.min_batch_size,
                f"got batches of {job.batch_size}; this party wants {approval.min_batch_size}",
            ),
            (
                job.insecure and not approval.insecure_jobs_allowed,
                "the job is insecure and this party does not set insecure_jobs_allowed",
            ),
        ]
        if approval.allow_columns != "offered":
            extra = sorted(set(request.columns) - set(approval.allow_columns))
            checks.append(
                (bool(extra), f"columns {extra[:5]} are not in this party's allow_columns")
            )
    return next((reason for failed, reason in checks if failed), None)


def job_differences(got: Job, want: Job) -> str:
    """Every field in which two jobs differ, but for the public seed."""
    return "; ".join(
        f"{field.name}: got {getattr(got, field.name)!r}, want {getattr(want, field.name)!r}"
        for field in fields(Job)
        if field.name != "seed" and getattr(got, field.name) != getattr(want, field.name)
    )


def show_request(request: Request, console: Console) -> None:
    """Print the request for a person."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for key, value in _rows(request):
        table.add_row(key, value)
    console.print(Panel(table, title=f"{request.label_party!r} asks to {request.kind}"))


def describe(request: Request) -> str:
    """The request as plain text, for the run folder."""
    return "\n".join(f"{key}: {value}" for key, value in _rows(request))


def _rows(request: Request) -> list[tuple[str, str]]:
    job = request.job
    rows = [("job", request.name)]
    if job is not None:
        rows += [
            ("model", f"{job.model} regression, protection {job.protection}"),
            ("key, masks", f"{job.modulus_bits} bits, {job.mask_bits} statistical bits"),
            (
                "training",
                f"{job.epochs} epochs, batches of {job.batch_size}, learning rate "
                f"{job.learning_rate:g}, momentum {job.momentum:g}",
            ),
        ]
    shown = ", ".join(request.columns[:12]) + (" ..." if len(request.columns) > 12 else "")
    rows += [
        ("your columns", f"{len(request.columns)} ({shown}) -> {request.encoded_columns} features"),
        ("rows", f"{request.rows} here, {request.label_rows} there"),
        *([("its columns", str(request.label_columns))] if request.label_columns >= 0 else []),
        ("it learns", "\n".join(f"- {line}" for line in request.learns())),
        (
            "outputs per row",
            f"{request.outputs_now} now + {request.outputs_before} before = "
            f"{request.outputs_ratio:.2f} of your feature count",
        ),
    ]
    if request.seconds:
        rows.append(
            (
                "expected",
                f"about {request.seconds:.0f} s, {request.bytes_out / 1e6:.1f} MB out, "
                f"{request.bytes_in / 1e6:.1f} MB in",
            )
        )
    rows += [("WARNING", warning) for warning in request.warnings()]
    return rows


def ask_operator(request: Request, console: Console) -> bool:
    """Ask at the terminal.

    Raises
        UsageError: there is no terminal to ask at.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            '[approval] mode is "ask" but there is no terminal; set mode = "config" or run '
            "'colonnade serve' in a terminal"
        )
    answer = console.input(f"Run this {request.kind}? [y/N] ")
    return answer.strip().lower() in ("y", "yes")
