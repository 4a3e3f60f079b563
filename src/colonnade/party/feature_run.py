"""The feature party's side of one session: a training job, or a prediction."""

from __future__ import annotations

import time
from typing import cast

from colonnade.errors import PeerError, UsageError
from colonnade.nn.source import FeatureSource
from colonnade.nn.training import follow_training
from colonnade.party.approval import job_differences
from colonnade.party.config import PartyConfig
from colonnade.party.estimate import assumed_columns, density_of, estimate_training
from colonnade.party.feature_predict import serve_prediction
from colonnade.party.feature_session import FeatureSession, ServeOptions
from colonnade.party.job import Job, load_job
from colonnade.party.messages import PredictProposal, TrainProposal
from colonnade.party.progress import Reporter
from colonnade.party.request import Request
from colonnade.party.run_folder import RunFolder
from colonnade.party.session import (
    budget_notes,
    keep_model,
    layer_settings,
    plan_of,
    prepared,
    resources,
    say_hello,
    thread_count,
)
from colonnade.party.source import Source, load_source
from colonnade.protocol.agreement import agree_feature
from colonnade.protocol.matmul_spec import Columns
from colonnade.wire.channel import Channel
from colonnade.wire.runner import run_role

__all__ = ["handle_session"]


def handle_session(
    channel: Channel, config: PartyConfig, reporter: Reporter, options: ServeOptions
) -> str:
    """Serve one session: one job. Returns a line about how it ended.

    Raises
        ColonnadeError: why it failed; the other side was told.
    """
    return run_role(channel, lambda end: _serve(FeatureSession(end, config, reporter, options)))


def _serve(session: FeatureSession) -> str:
    config, agreed = session.config, session.config.approval.job
    job = None if agreed is None else load_job(agreed)
    say_hello(session.channel, config, config.keys.modulus_bits, job)
    proposal = session.channel.receive(TrainProposal, PredictProposal)
    if isinstance(proposal, TrainProposal):
        return _train(session, proposal)
    return serve_prediction(session, cast(PredictProposal, proposal))


def _train(session: FeatureSession, proposal: TrainProposal) -> str:
    job = Job.from_wire(proposal.job, session.channel.remote)
    _check_job(session, job)
    session.check_unseen(job, "train", proposal.rows)
    choice = job.columns_of(session.config.name)
    source = session.load(job, lambda: load_source(session.config.data, choice=choice))
    request = _training_request(session, proposal, job, source)
    if not session.approve(request, dry_run=proposal.dry_run):
        return f"dry run of {job.name!r} shown; nothing was aligned, no run folder is left"
    with RunFolder.create(session.config.run.folder, proposal.run) as folder:
        session.write_approval(folder, request)
        _fit_and_store(session, request, source, folder)
    return f"run {folder.run_id} finished; the model share is in {folder.path}"


def _check_job(session: FeatureSession, job: Job) -> None:
    config = session.config
    if config.name not in job.feature_parties:
        raise PeerError(f"the job is for {list(job.feature_parties)}, not for {config.name!r}")
    if job.modulus_bits != config.keys.modulus_bits:
        raise PeerError(
            f"the job wants {job.modulus_bits}-bit keys; [keys] of {config.name!r} says "
            f"{config.keys.modulus_bits}"
        )
    if config.approval.job is not None:
        difference = job_differences(job, load_job(config.approval.job))
        if difference:
            raise PeerError(
                f"the job differs from the one that {config.name!r} agreed to: {difference}"
            )


def _training_request(
    session: FeatureSession, proposal: TrainProposal, job: Job, source: Source
) -> Request:
    rows = (len(source), proposal.rows)
    estimate = None
    if source.matrix.shape[1]:
        try:
            estimate = estimate_training(
                job,
                Columns.of(source.matrix),
                assumed_columns(proposal.columns),
                rows,
                density_of(source.matrix),
                thread_count(session.config),
            )
        except UsageError as error:
            # Declared ranges and the job's masks do not fit together: the job's author must know.
            raise PeerError(f"this job cannot run on the offered columns: {error}") from None
    return Request(
        kind="train",
        own=session.config.name,
        label_party=session.channel.remote,
        feature_party=session.config.name,
        job=job,
        columns=source.columns,
        feature_columns=source.matrix.shape[1],
        independent_columns=source.independent_columns,
        label_columns=proposal.columns,
        feature_rows=len(source),
        label_rows=proposal.rows,
        outputs_now=job.epochs,
        outputs_before=session.outputs_before(source),
        estimate=estimate,
    )


def _fit_and_store(
    session: FeatureSession, request: Request, source: Source, folder: RunFolder
) -> None:
    channel, config, job = session.channel, session.config, request.job
    started = time.monotonic()
    aligned = session.align(request, source, folder.run_id)
    x = source.matrix.take(aligned.rows)
    plan = plan_of(job, aligned.size)
    with prepared(resources(config, job)) as means:
        layer = agree_feature(
            session.counting(source, aligned, plan.scorings),
            x,
            means,
            kept_rows=plan.rows,
            want=layer_settings(job, plan.largest_batch),
            label_columns=request.label_columns,
        )
        for line in budget_notes(layer.spec, plan, job):
            session.reporter.note(line)
        follow_training(FeatureSource(layer), x, plan, session.observer("train", plan.epochs))
    keep_model(channel, folder, job, source, aligned, layer, {})
    seconds = round(time.monotonic() - started, 3)
    session.write_outbox(folder, {"kind": "train", "records": aligned.size, "seconds": seconds})
