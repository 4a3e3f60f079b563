"""The label party's runs: train a model with the feature party, and score new records with it."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.data.schema import id_columns
from colonnade.errors import PeerError, UsageError
from colonnade.nn.plain import PlainRegression, fit_plain
from colonnade.nn.plan import TrainingPlan
from colonnade.nn.source import LabelSource
from colonnade.nn.training import BiasTop, CallDone, History, predict_label, train_label
from colonnade.party.config import PartyConfig
from colonnade.party.job import Job
from colonnade.party.messages import PredictProposal, TrainProposal, Verdict
from colonnade.party.metrics import binary_metrics
from colonnade.party.model import ModelCard, StoredModel, load_model, store_model
from colonnade.party.progress import Reporter
from colonnade.party.report import loss_curve_png, metrics_table, outbox_rows, print_text
from colonnade.party.run_folder import RunFolder
from colonnade.party.session import (
    align,
    budget_notes,
    exchange_pair,
    finish_exchange,
    layer_settings,
    new_run_id,
    open_channel,
    resources,
    say_hello,
)
from colonnade.party.source import Source, load_source
from colonnade.protocol.agreement import agree_label
from colonnade.protocol.matmul import LabelMatMul
from colonnade.protocol.psi import Alignment
from colonnade.wire.channel import Channel, Meter
from colonnade.wire.runner import run_role

__all__ = ["Prediction", "predict", "train"]

# A person may have to approve; until then nothing else happens on the session.
_APPROVAL_WAIT_S = 3600.0


def train(
    config: PartyConfig, job: Job, reporter: Reporter, *, dry_run: bool = False
) -> Path | None:
    """Run a training job; returns the finished run folder (None after a dry run).

    Raises
        UsageError, DataError: this side's configuration, job or data; before anything is sent.
        PeerError: the feature party refused or failed. TransportError: it is not there.
    """
    _want_role(config)
    if config.keys.modulus_bits != job.modulus_bits:
        raise UsageError(
            f"the job wants {job.modulus_bits}-bit keys and [keys] of {config.name!r} says "
            f"{config.keys.modulus_bits}; make them equal"
        )
    source = load_source(config.data, with_labels=True)
    for line in source.notes:
        reporter.note(line)
    if job.insecure:
        reporter.note("INSECURE job: it gives up protection on purpose")
    peer = job.feature_parties[0]
    with open_channel(config, peer, reporter) as channel:
        return run_role(
            channel, lambda end: _train(end, config, job, source, reporter, dry_run=dry_run)
        )


def _train(
    channel: Channel,
    config: PartyConfig,
    job: Job,
    source: Source,
    reporter: Reporter,
    *,
    dry_run: bool,
) -> Path | None:
    say_hello(channel, config, job.modulus_bits)
    run = new_run_id(job.name)
    channel.send(
        TrainProposal(
            run=run,
            job=job.to_wire(),
            rows=len(source),
            columns=source.matrix.shape[1],
            dry_run=dry_run,
        )
    )
    verdict = _await_verdict(channel, reporter)
    if dry_run:
        reporter.note("dry run: nothing was aligned or trained")
        return None
    with RunFolder.create(config.run.folder, run) as folder:
        folder.write_text("job.json", job.to_wire().decode() + "\n")
        folder.write_json("warnings.json", list(verdict.warnings))
        _fit_and_store(channel, config, job, source, reporter, folder)
    return folder.path


def _fit_and_store(
    channel: Channel,
    config: PartyConfig,
    job: Job,
    source: Source,
    reporter: Reporter,
    folder: RunFolder,
) -> None:
    started = time.monotonic()
    aligned = align(channel, config, source, folder.run_id, reporter)
    x = source.matrix.take(aligned.rows)
    y = source.labels[aligned.rows].astype(np.float64)
    plan = plan_of(job, aligned.size)
    _check_classes(y, plan)
    ready = time.monotonic()
    settings = layer_settings(job, plan.largest_batch)
    layer = agree_label(
        channel,
        x,
        settings,
        resources(config, job),
        kept_rows=plan.rows,
        expected_calls=2 * plan.total_calls,
    )
    for line in budget_notes(layer.spec, plan, job):
        reporter.note(line)
    top, history = _fit(layer, x, y, plan, job, reporter)
    seconds = {"align": ready - started, "train": time.monotonic() - ready}
    pair = exchange_pair(channel, folder.run_id, job, aligned.digest, "label")
    card = ModelCard(
        role="label",
        party=config.name,
        peer=channel.remote,
        run=folder.run_id,
        pair=pair,
        job=job.to_wire().decode(),
        columns=source.columns,
        updates=layer.updates,
    )
    tensors = {**layer.state.tensors(), "bias": top.bias.detach().numpy()}
    store_model(folder, card, tensors, source.preprocessor, source.mapping)
    folder.write_tensors("rows.safetensors", {"rows": aligned.rows}, {"run": folder.run_id})
    results = _results(history, x, y, plan, job)
    _write_results(folder, channel.meter, seconds, results, history, reporter)
    finish_exchange(channel)


def plan_of(job: Job, rows: int) -> TrainingPlan:
    """The public order of rows of a job over `rows` aligned records."""
    return TrainingPlan(
        rows,
        job.epochs,
        job.batch_size,
        job.seed_bytes,
        job.test_fraction,
        job.validation_fraction,
    )


def _check_classes(y: NDArray[np.float64], plan: TrainingPlan) -> None:
    found = np.unique(y[plan.split.train])
    if len(found) < 2:
        raise UsageError(
            "the common records of the training part have one class only; want both: align more "
            "records or lower test_fraction"
        )


def _fit(
    layer: LabelMatMul, x: Any, y: NDArray[np.float64], plan: TrainingPlan, job: Job, r: Reporter
) -> tuple[BiasTop, History]:
    source, top = LabelSource(layer), BiasTop()
    sgd = layer_settings(job, plan.largest_batch).sgd()
    optimizer = torch.optim.SGD(
        top.parameters(),
        lr=sgd.learning_rate.value,
        momentum=sgd.momentum.value,
        weight_decay=sgd.weight_decay.value,
    )

    def observe(done: CallDone) -> None:
        step = f"epoch {min(done.epoch + 1, plan.epochs)}/{plan.epochs}, {done.part}"
        r.progress("train", done.call, done.calls, f"{step}, loss {done.loss or 0:.3f}")

    history = train_label(source, top, optimizer, x, torch.from_numpy(y), plan, observe)
    source.finish()
    return top, history


def _results(
    history: History, x: Any, y: NDArray[np.float64], plan: TrainingPlan, job: Job
) -> dict[str, dict[str, float | int]]:
    test = plan.split.test
    if not len(test):
        return {}
    found = {"federated": binary_metrics(y[test], history.test_logits[:, 0])}
    sgd = layer_settings(job, plan.largest_batch).sgd()
    alone = PlainRegression([x.decode()], sgd, [np.zeros((x.shape[1], 1))])
    logits, _ = fit_plain(alone, y, plan)
    found["label party alone"] = binary_metrics(y[test], logits[:, 0])
    return found


def _write_results(
    folder: RunFolder,
    meter: Meter,
    seconds: dict[str, float],
    results: dict[str, dict[str, float | int]],
    history: History,
    reporter: Reporter,
) -> None:
    traffic = {
        "sent_bytes": meter.sent_bytes,
        "received_bytes": meter.received_bytes,
        "rounds": meter.rounds,
    }
    folder.write_json(
        "metrics.json",
        {"test": results, "seconds": seconds, "traffic": traffic, "epoch_loss": history.epoch_loss},
    )
    folder.write_json(
        "history.json",
        {
            "batch_loss": history.batch_loss,
            "epoch_loss": history.epoch_loss,
            "validation_loss": history.validation_loss,
        },
    )
    folder.write_bytes(
        "loss.png",
        loss_curve_png(history.batch_loss, history.epoch_loss, history.validation_loss),
    )
    folder.write_json("outbox.json", outbox_rows(meter))
    reporter.note(
        f"{seconds['train']:.1f} s training, {meter.sent_bytes / 1e6:.2f} MB out, "
        f"{meter.received_bytes / 1e6:.2f} MB in, {meter.rounds} rounds"
    )
    lines = list(reporter.transcript)
    if results:
        lines.append(print_text(metrics_table("Test records", results)))
    folder.write_text("report.txt", "\n".join(lines) + "\n")


@dataclass(frozen=True)
class Prediction:
    """Scores of the new records that both parties know.

    rows: positions in the file's records, in file order; probability: of the positive class.
    """

    folder: Path
    scored: int
    unknown: int


def predict(
    config: PartyConfig,
    model_path: Path,
    data: Path,
    output: Path,
    reporter: Reporter,
    *,
    dry_run: bool = False,
) -> Prediction | None:
    """Score the records of `data` with a trained model; writes `output` as CSV.

    Records that the feature party does not know are reported in `<output>.unknown.csv`, not scored.

    Raises
        UsageError, DataError, IntegrityError: this side's model or data; before anything is sent.
        PeerError: the feature party refused, or its share does not belong to this model.
    """
    _want_role(config)
    model = load_model(model_path, "label")
    if output.exists():
        raise UsageError(f"got {output}, which exists; want a new file; move it away first")
    source = load_source(config.data, path=data, preprocessor=model.preprocessor)
    for line in source.notes:
        reporter.note(line)
    with open_channel(config, model.card.peer, reporter) as channel:
        return run_role(
            channel,
            lambda end: _predict(end, config, model, source, output, reporter, dry_run=dry_run),
        )


def _predict(
    channel: Channel,
    config: PartyConfig,
    model: StoredModel,
    source: Source,
    output: Path,
    reporter: Reporter,
    *,
    dry_run: bool,
) -> Prediction | None:
    job = model.job
    say_hello(channel, config, job.modulus_bits)
    run = new_run_id(f"{job.name}-predict")
    channel.send(PredictProposal(run=run, pair=model.card.pair, rows=len(source), dry_run=dry_run))
    verdict = _await_verdict(channel, reporter)
    if dry_run:
        reporter.note("dry run: nothing was aligned or scored")
        return None
    with RunFolder.create(config.run.folder, run) as folder:
        folder.write_json("warnings.json", list(verdict.warnings))
        aligned = align(channel, config, source, run, reporter)
        x = source.matrix.take(aligned.rows)
        layer = agree_label(
            channel,
            x,
            layer_settings(job, job.batch_size),
            resources(config, job),
            kept_rows=0,
            expected_calls=1,
            state=model.label_state(),
        )
        source_layer, top = LabelSource(layer), BiasTop()
        with torch.no_grad():
            top.bias.copy_(torch.from_numpy(model.bias()))

        def observe(done: CallDone) -> None:
            reporter.progress("score", done.call, done.calls)

        logits = predict_label(source_layer, top, x, observe)[:, 0]
        source_layer.finish()
        finish_exchange(channel)
        unknown = _write_predictions(config, model, source, aligned, logits, output)
        folder.write_json("outbox.json", outbox_rows(channel.meter))
        folder.write_json(
            "prediction.json",
            {"pair": model.card.pair, "scored": aligned.size, "unknown": unknown},
        )
        reporter.note(f"{aligned.size} records scored, {unknown} unknown to {channel.remote!r}")
        folder.write_text("report.txt", "\n".join(reporter.transcript) + "\n")
    return Prediction(folder.path, aligned.size, unknown)


def _write_predictions(
    config: PartyConfig,
    model: StoredModel,
    source: Source,
    aligned: Alignment,
    logits: NDArray[np.float64],
    output: Path,
) -> int:
    names = list(config.data.key_columns) or ["row"]
    keys = list(zip(*id_columns(source.table, config.data), strict=True))
    order = np.argsort(aligned.rows)
    known = set(aligned.rows.tolist())
    classes = model.mapping.classes if model.mapping is not None else ("0", "1")
    probability = 1.0 / (1.0 + np.exp(-logits))
    rows: list[Sequence[object]] = [
        (*keys[aligned.rows[i]], f"{probability[i]:.6f}", classes[int(logits[i] > 0)])
        for i in order
    ]
    _write_csv(output, [*names, "probability", "prediction"], rows)
    unknown = [keys[row] for row in range(len(source)) if row not in known]
    if unknown:
        _write_csv(output.with_suffix(".unknown.csv"), names, unknown)
    return len(unknown)


def _write_csv(path: Path, header: list[str], rows: Sequence[Sequence[object]]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    temporary.replace(path)


def _await_verdict(channel: Channel, reporter: Reporter) -> Verdict:
    reporter.note(f"waiting for {channel.remote!r} to approve")
    verdict = channel.receive(Verdict, timeout_s=_APPROVAL_WAIT_S)
    if not verdict.accepted:
        raise PeerError(f"{channel.remote!r} refused: {verdict.reason[:500]}")
    reporter.note(
        f"{channel.remote!r} approved: {verdict.rows} records, {verdict.columns} feature columns"
    )
    for warning in verdict.warnings:
        reporter.note(f"WARNING {warning[:500]}")
    return verdict


def _want_role(config: PartyConfig) -> None:
    if config.role != "label":
        raise UsageError(
            f"{config.name!r} is a feature party; it takes part with 'colonnade serve'"
        )
