"""The label party's predictions: score new records, aligned by id, with a trained model."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.data.schema import id_columns
from colonnade.errors import UsageError
from colonnade.nn.plain import sigmoid
from colonnade.nn.source import LabelSource
from colonnade.nn.training import BiasTop, CallDone, predict_label
from colonnade.party.config import PartyConfig
from colonnade.party.messages import PredictProposal
from colonnade.party.model import StoredModel, load_model
from colonnade.party.progress import Reporter
from colonnade.party.proposal import LabelOptions, await_verdict
from colonnade.party.report import outbox_rows
from colonnade.party.request import Request, describe
from colonnade.party.run_folder import RunFolder
from colonnade.party.session import (
    align,
    finish_exchange,
    layer_settings,
    new_run_id,
    open_channel,
    resources,
    say_hello,
    scoring_notes,
    want_label_party,
)
from colonnade.party.source import Source, load_source
from colonnade.party.storage import write_new
from colonnade.protocol.agreement import agree_label
from colonnade.protocol.psi import Alignment
from colonnade.wire.channel import Channel
from colonnade.wire.runner import run_role

__all__ = ["Prediction", "predict", "unknown_path"]


@dataclass(frozen=True)
class Prediction:
    """What a prediction left: its run folder, how many records were scored, how many were not."""

    folder: Path
    scored: int
    unknown: int


def unknown_path(output: Path) -> Path:
    """Where the ids of records that were not scored go: `scores.unknown.csv` for `scores.csv`."""
    return output.with_name(f"{output.stem}.unknown.csv")


def predict(
    config: PartyConfig,
    model_path: Path,
    data: Path,
    output: Path,
    reporter: Reporter,
    options: LabelOptions,
) -> Prediction | None:
    """Score the records of `data` with a trained model; writes `output` as CSV.

    Records that the feature party does not know are reported in `unknown_path(output)`, not scored.
    Returns None after a dry run.

    Raises
        UsageError, DataError, IntegrityError: this side's model or data; before anything is sent.
        PeerError: the feature party refused, or its share does not belong to this model.
    """
    want_label_party(config)
    model = load_model(model_path, "label")
    for path in (output, unknown_path(output)):
        if path.exists():
            raise UsageError(f"got {path}, which exists; want a new file; move it away first")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"got {output}; want a file in a folder that exists; make it first")
    source = load_source(config.data, path=data, preprocessor=model.preprocessor)
    for line in source.notes:
        reporter.note(line)
    with open_channel(config, model.card.peer, reporter) as channel:
        return run_role(
            channel,
            lambda end: _Scoring(end, config, model, source, output, reporter).run(options),
        )


@dataclass(frozen=True)
class _Scoring:
    """One prediction session of the label party."""

    channel: Channel
    config: PartyConfig
    model: StoredModel
    source: Source
    output: Path
    reporter: Reporter

    def run(self, options: LabelOptions) -> Prediction | None:
        channel, config, job = self.channel, self.config, self.model.job
        say_hello(channel, config, job.modulus_bits)
        proposal = PredictProposal(
            run=new_run_id(f"{job.name}-predict"),
            pair=self.model.card.pair,
            rows=len(self.source),
            dry_run=options.dry_run,
        )
        request = await_verdict(channel, config, job, self.source, proposal, self.reporter, options)
        if options.dry_run:
            self.reporter.note("dry run: nothing was aligned or scored, no run folder is left")
            return None
        with RunFolder.create(config.run.folder, proposal.run) as folder:
            folder.write_text("approval.txt", describe(request) + "\n")
            folder.write_json("warnings.json", request.warnings())
            scored, unknown = self._score_and_store(request, folder)
        return Prediction(folder.path, scored, unknown)

    def _score_and_store(self, request: Request, folder: RunFolder) -> tuple[int, int]:
        channel, model = self.channel, self.model
        started = time.monotonic()
        aligned = align(
            channel,
            self.config,
            self.source,
            folder.run_id,
            self.reporter,
            peer_records=request.feature_rows,
        )
        logits = self._score(aligned)
        finish_exchange(channel)
        unknown = _write_predictions(self.config, model, self.source, aligned, logits, self.output)
        folder.write_json("outbox.json", outbox_rows(channel.meter))
        folder.write_json(
            "run.json",
            {
                "kind": "predict",
                "records": aligned.size,
                "unknown": unknown,
                "seconds": round(time.monotonic() - started, 3),
                "party": self.config.name,
                "peer": channel.remote,
                "model": model.card.run,
                "pair": model.card.pair,
            },
        )
        self.reporter.note(
            f"{aligned.size} records scored, {unknown} unknown to {channel.remote!r}"
        )
        folder.write_text("report.txt", "\n".join(self.reporter.transcript) + "\n")
        return aligned.size, unknown

    def _score(self, aligned: Alignment) -> NDArray[np.float64]:
        job = self.model.job
        x = self.source.matrix.take(aligned.rows)
        layer = agree_label(
            self.channel,
            x,
            layer_settings(job, job.batch_size),
            resources(self.config, job),
            kept_rows=0,
            expected_calls=math.ceil(aligned.size / job.batch_size),
            state=self.model.label_state(),
        )
        for line in scoring_notes(layer.spec, aligned.size):
            self.reporter.note(line)
        source, top = LabelSource(layer), BiasTop()
        with torch.no_grad():
            top.bias.copy_(torch.from_numpy(self.model.bias()))

        def observe(done: CallDone) -> None:
            self.reporter.progress("score", done.call, done.calls)

        logits = predict_label(source, top, x, observe)[:, 0]
        source.finish()
        return logits


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
    probability = sigmoid(logits)
    rows: list[Sequence[object]] = [
        (*keys[aligned.rows[i]], f"{probability[i]:.9f}", classes[int(logits[i] > 0)])
        for i in order
    ]
    _write_csv(output, [*names, "probability", "prediction"], rows)
    unknown = [keys[row] for row in range(len(source)) if row not in known]
    if unknown:
        _write_csv(unknown_path(output), names, unknown)
    return len(unknown)


def _write_csv(path: Path, header: list[str], rows: Sequence[Sequence[object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    write_new(path, text.getvalue().encode())
