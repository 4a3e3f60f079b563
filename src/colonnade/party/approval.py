"""Whether a job may run: the limits of the configuration, then the operator."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields

from rich.console import Console

from colonnade.party.config import ApprovalConfig
from colonnade.party.job import Job
from colonnade.party.request import Request
from colonnade.wire.messages import one_line

__all__ = [
    "Refusal",
    "ask_operator",
    "decide",
    "decide_unseen",
    "job_differences",
    "outputs_limit",
]

_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Refusal:
    """Why a job may not run.

    reason: for both sides; it quotes limits, which are no secrets, and nothing of the data.
    detail: for this side's operator alone; may name columns.
    """

    reason: str
    detail: str = ""


def decide_unseen(
    job: Job, kind: str, label_rows: int, approval: ApprovalConfig, *, own: str, minimum: int
) -> Refusal | None:
    """The first limit that the job exceeds whatever this party's file holds, or None.

    kind: "train" or "predict"; label_rows: the label party's records; own: this party's name;
    minimum: the smallest intersection allowed for this kind of job.
    """
    if approval.mode == "never":
        return Refusal("this party approves no jobs now ([approval] mode = never)")
    checks = [
        (
            job.insecure and not approval.insecure_jobs_allowed,
            "the job is insecure, and [approval] insecure_jobs_allowed is not set here",
        ),
        (
            approval.max_rows is not None and label_rows > approval.max_rows,
            f"got {label_rows} rows; max_rows is {approval.max_rows}",
        ),
        (
            label_rows < minimum,
            f"at most {label_rows} records can be common; min_intersection is {minimum}",
        ),
    ]
    if kind == "train":
        checks += _training_limits(job, approval)
    reason = next((text for failed, text in checks if failed), None)
    if reason is not None:
        return Refusal(reason)
    asked = job.columns_of(own)
    return None if asked == "offered" else _column_limit(asked, approval)


def decide(request: Request, approval: ApprovalConfig, *, minimum: int) -> Refusal | None:
    """The first limit that the job exceeds, or None where the configuration lets it run.

    minimum: the smallest intersection allowed for this kind of job. Whether a prediction gives too
    many outputs depends on its records, of which most may be new: `outputs_limit` decides that
    once they are known, before any output leaves.
    """
    refusal = decide_unseen(
        request.job,
        request.kind,
        request.label_rows,
        approval,
        own=request.feature_party,
        minimum=minimum,
    )
    refusal = refusal or _data_limits(request, approval, minimum)
    if refusal is None and request.kind == "train":
        refusal = outputs_limit(request, approval)
    return refusal


def _data_limits(request: Request, approval: ApprovalConfig, minimum: int) -> Refusal | None:
    if request.feature_columns == 0:
        return Refusal("this party has no feature column for the job; there is nothing to do")
    if request.feature_rows < minimum:
        # How many records this party has is for jobs that may run.
        return Refusal(
            f"fewer records can be common than min_intersection, which is {minimum}",
            f"got {request.feature_rows} records in the file here",
        )
    return _column_limit(request.columns, approval)


def outputs_limit(request: Request, approval: ApprovalConfig) -> Refusal | None:
    """The refusal of a job whose records would give more outputs than this party allows."""
    total, limit = request.outputs_now + request.outputs_before, approval.max_outputs_per_row
    if limit is not None:
        if total <= limit:
            return None
        return Refusal(
            f"outputs per row would reach {total}, with {request.outputs_before} from earlier "
            f"jobs; max_outputs_per_row is {limit}"
        )
    # Nobody sees the warning where a file approves: what gives the features away needs a limit
    # that somebody wrote down.
    if approval.mode == "config" and request.outputs_ratio >= 1.0:
        return Refusal(
            "with its outputs per row the features could be computed up to a rotation; this party "
            "approves that by file only where max_outputs_per_row says so",
            f"{total} outputs per row, {request.independent_columns} independent features; set "
            '[approval] max_outputs_per_row, or mode = "ask"',
        )
    return None


def _training_limits(job: Job, approval: ApprovalConfig) -> list[tuple[bool, str]]:
    return [
        (
            job.epochs > approval.max_epochs,
            f"got {job.epochs} epochs; max_epochs is {approval.max_epochs}",
        ),
        (
            job.batch_size < approval.min_batch_size,
            f"got batches of {job.batch_size}; min_batch_size is {approval.min_batch_size}",
        ),
    ]


def _column_limit(columns: Sequence[str], approval: ApprovalConfig) -> Refusal | None:
    if approval.allow_columns == "offered":
        return None
    extra = sorted(set(columns) - set(approval.allow_columns))
    if not extra:
        return None
    # Neither the names nor their number: a peer could try names.
    return Refusal(
        "the job would use columns that this party does not allow; ask for fewer in [columns]",
        f"{len(extra)} are not in allow_columns: {', '.join(repr(n[:60]) for n in extra[:10])}",
    )


def job_differences(got: Job, want: Job) -> str:
    """Every field in which two jobs differ, but for the public seed."""
    return "; ".join(
        f"{field.name}: got {_shown(got, field.name)}, want {_shown(want, field.name)}"
        for field in fields(Job)
        if field.name != "seed" and getattr(got, field.name) != getattr(want, field.name)
    )


def _shown(job: Job, key: str) -> str:
    return one_line(repr(getattr(job, key)), _LONGEST_SHOWN)


def ask_operator(request: Request, console: Console) -> Refusal | None:
    """Ask at the terminal; None where the answer is yes."""
    if not sys.stdin.isatty():
        return Refusal(
            "this party approves jobs by hand, and nobody is at its terminal",
            'run "colonnade serve" in a terminal, or set [approval] mode = "config"',
        )
    try:
        answer = console.input(f"Run this job ({request.kind})? [y/N] ", markup=False)
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return None
    return Refusal("the operator declined")
