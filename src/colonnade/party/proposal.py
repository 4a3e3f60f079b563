"""The label party's start of a session: propose, show what would run, await the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from colonnade.errors import PeerError
from colonnade.party.config import PartyConfig
from colonnade.party.estimate import (
    assumed_columns,
    estimate_prediction,
    estimate_training,
)
from colonnade.party.job import Job
from colonnade.party.messages import PredictProposal, TrainProposal, Verdict
from colonnade.party.progress import Reporter
from colonnade.party.request import Request, show_request
from colonnade.party.session import thread_count
from colonnade.party.source import Source
from colonnade.protocol.matmul_spec import Columns
from colonnade.wire.channel import Channel

__all__ = ["LabelOptions", "await_verdict"]

# A person may have to approve; until then nothing else happens on the session.
_APPROVAL_WAIT_S = 3600.0


@dataclass(frozen=True)
class LabelOptions:
    """How to run: dry_run stops after the verdict; console is where the job is shown."""

    console: Console
    dry_run: bool = False


def await_verdict(
    channel: Channel,
    config: PartyConfig,
    job: Job,
    source: Source,
    proposal: TrainProposal | PredictProposal,
    reporter: Reporter,
    options: LabelOptions,
) -> Request:
    """Send `proposal`, wait for the answer, and show what was approved.

    Raises
        PeerError: the feature party refused, with its reason.
    """
    channel.send(proposal)
    reporter.note(f"waiting for {channel.remote!r} to approve")
    verdict = channel.receive(Verdict, timeout_s=_APPROVAL_WAIT_S)
    if not verdict.accepted:
        raise PeerError(f"{channel.remote!r} refused: {verdict.reason}")
    kind = "train" if isinstance(proposal, TrainProposal) else "predict"
    request = _request(kind, channel, config, job, source, verdict)
    if options.dry_run:
        show_request(request, options.console)
    done = "would let this run" if options.dry_run else "approved"
    reporter.note(
        f"{channel.remote!r} {done}: {verdict.rows} records, {verdict.columns} features there"
    )
    if request.estimate is not None:
        sent, received = request.estimate.to_feature_bytes, request.estimate.to_label_bytes
        reporter.note(
            f"expected: {request.estimate}, {sent / 1e6:.2f} MB out, {received / 1e6:.2f} MB in"
        )
    for warning in verdict.warnings:
        reporter.note(f"WARNING {warning}")
    return request


def _request(
    kind: str,
    channel: Channel,
    config: PartyConfig,
    job: Job,
    source: Source,
    verdict: Verdict,
) -> Request:
    estimate_of = estimate_training if kind == "train" else estimate_prediction
    estimate = None
    if verdict.columns:
        estimate = estimate_of(
            job,
            assumed_columns(verdict.columns),
            Columns.of(source.matrix),
            (verdict.rows, len(source)),
            1.0,
            thread_count(config),
        )
    return Request(
        kind=kind,
        own=config.name,
        label_party=config.name,
        feature_party=channel.remote,
        job=job,
        columns=source.columns,
        feature_columns=verdict.columns,
        independent_columns=verdict.independent_columns,
        label_columns=source.matrix.shape[1],
        feature_rows=verdict.rows,
        label_rows=len(source),
        outputs_now=job.epochs if kind == "train" else 1,
        outputs_before=verdict.outputs_before,
        estimate=estimate,
    )
