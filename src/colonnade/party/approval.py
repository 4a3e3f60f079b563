"""Whether a job may run: the limits of the configuration, then the operator."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from rich.console import Console

from colonnade.party.config import ApprovalConfig
from colonnade.party.job import Job
from colonnade.party.request import Request

__all__ = ["Refusal", "ask_operator", "decide", "job_differences"]


@dataclass(frozen=True)
class Refusal:
    """Why a job may not run.

    reason: for both sides; it quotes limits, which are no secrets, and nothing of the data.
    detail: for this side's operator alone; may name columns.
    """

    reason: str
    detail: str = ""


def decide(request: Request, approval: ApprovalConfig, *, minimum: int) -> Refusal | None:
    """The first limit that the job exceeds, or None where the configuration lets it run.

    minimum: the smallest intersection allowed for this kind of job.
    """
    if approval.mode == "never":
        return Refusal("this party approves no jobs now ([approval] mode = never)")
    checks = [*_data_limits(request, approval, minimum)]
    if request.kind == "train":
        checks += _training_limits(request.job, approval)
    reason = next((text for failed, text in checks if failed), None)
    if reason is not None:
        return Refusal(reason)
    return _column_limit(request, approval)


def _data_limits(
    request: Request, approval: ApprovalConfig, minimum: int
) -> list[tuple[bool, str]]:
    total, limit = request.outputs_now + request.outputs_before, approval.max_outputs_per_row
    most = min(request.feature_rows, request.label_rows)
    return [
        (
            request.feature_columns == 0,
            "this party has no feature column for the job; there is nothing to do together",
        ),
        (
            request.job.insecure and not approval.insecure_jobs_allowed,
            "the job is insecure, and [approval] insecure_jobs_allowed is not set here",
        ),
        (
            limit is not None and total > limit,
            f"outputs per row would reach {total}, with {request.outputs_before} from earlier "
            f"jobs; max_outputs_per_row is {limit}",
        ),
        (
            approval.max_rows is not None and request.label_rows > approval.max_rows,
            f"got {request.label_rows} rows; max_rows is {approval.max_rows}",
        ),
        (
            most < minimum,
            f"at most {most} records can be common; min_intersection is {minimum}",
        ),
    ]


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


def _column_limit(request: Request, approval: ApprovalConfig) -> Refusal | None:
    if approval.allow_columns == "offered":
        return None
    extra = sorted(set(request.columns) - set(approval.allow_columns))
    if not extra:
        return None
    # A job that wants "offered" was not told the names, and is not told them now.
    return Refusal(
        f"the job would use {len(extra)} columns that this party does not allow; ask for fewer in "
        "[columns]",
        f"not in allow_columns: {', '.join(map(repr, extra[:10]))}",
    )


def job_differences(got: Job, want: Job) -> str:
    """Every field in which two jobs differ, but for the public seed."""
    return "; ".join(
        f"{field.name}: got {getattr(got, field.name)!r}, want {getattr(want, field.name)!r}"
        for field in fields(Job)
        if field.name != "seed" and getattr(got, field.name) != getattr(want, field.name)
    )


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
