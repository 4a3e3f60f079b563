"""The feature party's part of a prediction: its share of a model scores the common records."""

from __future__ import annotations

import time

import numpy as np

from colonnade.errors import PeerError
from colonnade.nn.source import FeatureSource
from colonnade.nn.training import follow_prediction
from colonnade.party.estimate import assumed_columns, density_of, estimate_prediction
from colonnade.party.feature_session import FeatureSession
from colonnade.party.messages import PredictProposal
from colonnade.party.model import StoredModel, find_model
from colonnade.party.request import Request
from colonnade.party.run_folder import RunFolder
from colonnade.party.session import (
    finish_exchange,
    layer_settings,
    resources,
    scoring_notes,
    thread_count,
)
from colonnade.party.source import Source, load_source
from colonnade.protocol.agreement import agree_feature
from colonnade.protocol.matmul_spec import Columns

__all__ = ["serve_prediction"]


def serve_prediction(session: FeatureSession, proposal: PredictProposal) -> str:
    """Score records with the model that `proposal` names; returns a line about how it ended.

    Raises
        PeerError: no such model here, or other keys. UsageError: refused; the peer was told why.
    """
    with session.paths_stay_here("the model share"):
        model = find_model(session.config.run.folder, proposal.pair, session.channel.remote)
    if model.job.modulus_bits != session.config.keys.modulus_bits:
        raise PeerError(
            f"the model was made with {model.job.modulus_bits}-bit keys; [keys] of "
            f"{session.config.name!r} says {session.config.keys.modulus_bits}"
        )
    path = session.config.predict.path or session.config.data.path
    session.check_unseen(model.job, "predict", proposal.rows)
    source = session.load(
        model.job,
        lambda: load_source(session.config.data, path=path, preprocessor=model.preprocessor),
    )
    request = _prediction_request(session, proposal, model, source)
    if not session.approve(request, dry_run=proposal.dry_run):
        return f"dry run of a prediction with {model.card.run!r} shown"
    with RunFolder.create(session.config.run.folder, proposal.run) as folder:
        session.write_approval(folder, request)
        scored = _score(session, request, model, source, folder)
    return f"{scored} records scored for {session.channel.remote!r}"


def _prediction_request(
    session: FeatureSession, proposal: PredictProposal, model: StoredModel, source: Source
) -> Request:
    label_columns = model.feature_state().v_b.shape[0]
    estimate = estimate_prediction(
        model.job,
        Columns.of(source.matrix),
        assumed_columns(label_columns),
        (len(source), proposal.rows),
        density_of(source.matrix),
        thread_count(session.config),
    )
    return Request(
        kind="predict",
        own=session.config.name,
        label_party=session.channel.remote,
        feature_party=session.config.name,
        job=model.job,
        columns=source.columns,
        feature_columns=source.matrix.shape[1],
        independent_columns=source.independent_columns,
        label_columns=label_columns,
        feature_rows=len(source),
        label_rows=proposal.rows,
        outputs_now=1,
        outputs_before=session.outputs_before(source),
        estimate=estimate,
    )


def _score(
    session: FeatureSession, request: Request, model: StoredModel, source: Source, folder: RunFolder
) -> int:
    channel, config, job = session.channel, session.config, model.job
    started = time.monotonic()
    aligned = session.align(request, source, folder.run_id)
    session.check_outputs(request, source, aligned)
    x = source.matrix.take(aligned.rows)
    layer = agree_feature(
        session.counting(source, aligned, np.ones(aligned.size, np.int64)),
        x,
        resources(config, job),
        kept_rows=0,
        want=layer_settings(job, job.batch_size),
        label_columns=request.label_columns,
        state=model.feature_state(),
    )
    for line in scoring_notes(layer.spec, aligned.size):
        session.reporter.note(line)
    follow_prediction(FeatureSource(layer), x, session.observer("score", 0))
    finish_exchange(channel)
    seconds = round(time.monotonic() - started, 3)
    facts = {"kind": "predict", "records": aligned.size, "seconds": seconds}
    session.write_outbox(folder, {**facts, "model": model.card.run, "pair": model.card.pair})
    return aligned.size
