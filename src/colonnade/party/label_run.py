"""The label party's training run: align, train and evaluate together with the feature party."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.errors import UsageError
from colonnade.nn.plain import PlainRegression, fit_plain
from colonnade.nn.plan import TrainingPlan
from colonnade.nn.source import LabelSource
from colonnade.nn.training import BiasTop, CallDone, History, train_label
from colonnade.party.config import PartyConfig
from colonnade.party.job import Job
from colonnade.party.messages import TrainProposal
from colonnade.party.metrics import binary_metrics
from colonnade.party.progress import Reporter
from colonnade.party.proposal import LabelOptions, await_verdict
from colonnade.party.report import loss_curve_png, metrics_table, outbox_rows, print_text
from colonnade.party.request import Request, describe
from colonnade.party.run_folder import RunFolder
from colonnade.party.session import (
    align,
    budget_notes,
    keep_model,
    layer_settings,
    new_run_id,
    open_channel,
    plan_of,
    prepared,
    resources,
    say_hello,
    want_label_party,
)
from colonnade.party.source import Source, load_source
from colonnade.protocol.agreement import agree_label
from colonnade.protocol.matmul import LabelMatMul
from colonnade.wire.channel import Channel, Meter
from colonnade.wire.runner import run_role

__all__ = ["train"]

_Results = dict[str, dict[str, float | int]]


def train(config: PartyConfig, job: Job, reporter: Reporter, options: LabelOptions) -> Path | None:
    """Run a training job; returns the finished run folder (None after a dry run).

    Raises
        UsageError, DataError: this side's configuration, job or data; before anything is sent.
        PeerError: the feature party refused or failed. TransportError: it is not there.
    """
    want_label_party(config)
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
            channel, lambda end: _Training(end, config, job, source, reporter).run(options)
        )


@dataclass(frozen=True)
class _Training:
    """One training session of the label party."""

    channel: Channel
    config: PartyConfig
    job: Job
    source: Source
    reporter: Reporter

    def run(self, options: LabelOptions) -> Path | None:
        say_hello(self.channel, self.config, self.job.modulus_bits, self.job)
        proposal = TrainProposal(
            run=new_run_id(self.job.name),
            job=self.job.to_wire(),
            rows=len(self.source),
            columns=self.source.matrix.shape[1],
            dry_run=options.dry_run,
        )
        request = await_verdict(
            self.channel, self.config, self.job, self.source, proposal, self.reporter, options
        )
        if options.dry_run:
            self.reporter.note("dry run: nothing was aligned or trained, no run folder is left")
            return None
        with RunFolder.create(self.config.run.folder, proposal.run) as folder:
            folder.write_text("job.json", self.job.to_wire().decode() + "\n")
            folder.write_text("approval.txt", describe(request) + "\n")
            folder.write_json("warnings.json", request.warnings())
            self._fit_and_store(request, folder)
        return folder.path

    def _fit_and_store(self, request: Request, folder: RunFolder) -> None:
        channel, config, job, source = self.channel, self.config, self.job, self.source
        started = time.monotonic()
        aligned = align(
            channel,
            config,
            source,
            folder.run_id,
            self.reporter,
            peer_records=request.feature_rows,
        )
        x = source.matrix.take(aligned.rows)
        y = source.labels[aligned.rows].astype(np.float64)
        plan = plan_of(job, aligned.size)
        _check_classes(y, plan)
        ready = time.monotonic()
        with prepared(resources(config, job)) as means:
            layer = agree_label(
                channel,
                x,
                layer_settings(job, plan.largest_batch),
                means,
                kept_rows=plan.rows,
                expected_calls=2 * plan.total_calls,
            )
            for line in budget_notes(layer.spec, plan, job):
                self.reporter.note(line)
            top, history = _fit(layer, x, y, plan, job, self.reporter)
        seconds = {"align": ready - started, "train": time.monotonic() - ready}
        # First what the peer waits for; the baseline may take as long as it likes.
        keep_model(
            channel, folder, job, source, aligned, layer, {"bias": top.bias.detach().numpy()}
        )
        results = _results(history, x, y, plan, job)
        _write_results(folder, channel.meter, seconds, results, history)
        total = round(sum(seconds.values()), 3)
        facts = {"kind": "train", "records": aligned.size, "seconds": total}
        folder.write_json("run.json", {**facts, "party": config.name, "peer": channel.remote})
        folder.write_json("outbox.json", outbox_rows(channel.meter))
        _write_report(folder, channel.meter, seconds, results, self.reporter)


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
        epoch = f"epoch {done.epoch + 1}/{plan.epochs}"
        place = {"train": epoch, "validation": f"{epoch}, validation"}.get(done.part, done.part)
        r.progress("train", done.call, done.calls, f"{place}, loss {done.loss or 0:.3f}")

    history = train_label(source, top, optimizer, x, torch.from_numpy(y), plan, observe)
    source.finish()
    return top, history


def _results(
    history: History, x: Any, y: NDArray[np.float64], plan: TrainingPlan, job: Job
) -> _Results:
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
    results: _Results,
    history: History,
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


def _write_report(
    folder: RunFolder,
    meter: Meter,
    seconds: dict[str, float],
    results: _Results,
    reporter: Reporter,
) -> None:
    reporter.note(
        f"{seconds['train']:.1f} s training, {meter.sent_bytes / 1e6:.2f} MB out, "
        f"{meter.received_bytes / 1e6:.2f} MB in, {meter.rounds} rounds"
    )
    lines = list(reporter.transcript)
    if results:
        lines.append(print_text(metrics_table("Test records", results)))
    folder.write_text("report.txt", "\n".join(lines) + "\n")
