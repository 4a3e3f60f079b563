"""The feature party's side: serve jobs one after another, each shown and approved first."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import cast

from rich.console import Console

from colonnade.errors import PeerError, UsageError
from colonnade.native import Modulus, mul
from colonnade.nn.source import FeatureSource
from colonnade.nn.training import CallDone, Observer, follow_prediction, follow_training
from colonnade.party.approval import (
    Request,
    ask_operator,
    decide,
    describe,
    job_differences,
    show_request,
)
from colonnade.party.config import PartyConfig
from colonnade.party.job import Job, load_job
from colonnade.party.label_run import plan_of
from colonnade.party.ledger import Ledger
from colonnade.party.messages import PredictProposal, TrainProposal, Verdict
from colonnade.party.model import ModelCard, StoredModel, find_model, store_model
from colonnade.party.progress import Reporter
from colonnade.party.report import outbox_rows, outbox_table, print_text
from colonnade.party.run_folder import RunFolder
from colonnade.party.session import (
    align,
    budget_notes,
    exchange_pair,
    finish_exchange,
    layer_settings,
    resources,
    say_hello,
)
from colonnade.party.source import Source, chosen_columns, load_source
from colonnade.protocol.agreement import agree_feature
from colonnade.protocol.cost import run_cost
from colonnade.protocol.matmul_spec import Columns, MatMulSpec
from colonnade.wire.channel import Channel
from colonnade.wire.runner import run_role

__all__ = ["ServeOptions", "handle_session"]


@dataclass(frozen=True)
class ServeOptions:
    """How to serve: dry_run shows and refuses every job; console is where requests are shown."""

    console: Console
    dry_run: bool = False


def handle_session(
    channel: Channel, config: PartyConfig, reporter: Reporter, options: ServeOptions
) -> str:
    """Serve one session: one job. Returns a line about how it ended.

    Raises
        ColonnadeError: why it failed; the other side was told.
    """
    return run_role(channel, lambda end: _Session(end, config, reporter, options).run())


class _Session:
    """One job of one label party."""

    def __init__(
        self, channel: Channel, config: PartyConfig, reporter: Reporter, options: ServeOptions
    ) -> None:
        self._channel = channel
        self._config = config
        self._reporter = reporter
        self._options = options
        self._ledger = Ledger(config.run.folder)

    def run(self) -> str:
        say_hello(self._channel, self._config, self._config.keys.modulus_bits)
        proposal = self._channel.receive(TrainProposal, PredictProposal)
        if isinstance(proposal, TrainProposal):
            return self._train(proposal)
        return self._predict(cast(PredictProposal, proposal))

    # -- training ----------------------------------------------------------------------------

    def _train(self, proposal: TrainProposal) -> str:
        job = Job.from_wire(proposal.job, self._channel.remote)
        self._check_job(job)
        spec = chosen_columns(self._config.data, job.columns_of(self._config.name))
        source = load_source(spec)
        for line in source.notes:
            self._reporter.note(line)
        request = self._training_request(proposal, job, source)
        if not self._approve(request, dry_run=proposal.dry_run):
            return f"dry run of {job.name!r} shown"
        self._ledger.add(self._channel.remote, self._config.data.path, request.outputs_now)
        with RunFolder.create(self._config.run.folder, _safe_run(proposal.run)) as folder:
            folder.write_text("approval.txt", describe(request) + "\n")
            folder.write_json("warnings.json", request.warnings())
            self._fit_and_store(job, source, folder)
        return f"run {folder.run_id} finished; the model share is in {folder.path}"

    def _check_job(self, job: Job) -> None:
        config = self._config
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

    def _training_request(self, proposal: TrainProposal, job: Job, source: Source) -> Request:
        rows = min(len(source), proposal.rows)
        request = self._request("train", proposal, source, job, outputs_now=job.epochs)
        if not proposal.columns and not source.matrix.shape[1]:
            raise UsageError("neither party has a feature column; offer at least one")
        # The other side's scales are not known yet: assume that its columns are real numbers.
        label = Columns((16,) * proposal.columns, (1 << 22,) * proposal.columns)
        batch = min(job.batch_size + 1, rows)
        spec = MatMulSpec(Columns.of(source.matrix), label, 1, batch, mask_bits=job.mask_bits)
        plan = plan_of(job, rows)
        density = float(source.matrix.csr().nnz) / max(
            1, source.matrix.shape[0] * source.matrix.shape[1]
        )
        cost = run_cost(
            spec,
            steps=plan.epochs * plan.steps_per_epoch,
            batch_rows=batch,
            all_rows=rows,
            key_bits=job.modulus_bits,
            density=density,
        )
        seconds = 0.0
        if job.protection == "blindfl":
            seconds = cost.seconds(_multiplication_s(job.modulus_bits))
        return dataclasses.replace(
            request,
            seconds=seconds,
            bytes_out=cost.to_label_bytes,
            bytes_in=cost.to_feature_bytes,
        )

    def _fit_and_store(self, job: Job, source: Source, folder: RunFolder) -> None:
        channel, config, reporter = self._channel, self._config, self._reporter
        minimum = config.approval.min_intersection
        started = time.monotonic()
        aligned = align(channel, config, source, folder.run_id, reporter, min_intersection=minimum)
        x = source.matrix.take(aligned.rows)
        plan = plan_of(job, aligned.size)
        layer = agree_feature(
            channel,
            x,
            resources(config, job),
            kept_rows=plan.rows,
            want=layer_settings(job, plan.largest_batch),
        )
        for line in budget_notes(layer.spec, plan, job):
            reporter.note(line)
        follow_training(FeatureSource(layer), x, plan, self._observer("train", plan.epochs))
        pair = exchange_pair(channel, folder.run_id, job, aligned.digest, "feature")
        card = ModelCard(
            role="feature",
            party=config.name,
            peer=channel.remote,
            run=folder.run_id,
            pair=pair,
            job=job.to_wire().decode(),
            columns=source.columns,
            updates=layer.updates,
        )
        store_model(folder, card, layer.state.tensors(), source.preprocessor, None)
        folder.write_tensors("rows.safetensors", {"rows": aligned.rows}, {"run": folder.run_id})
        finish_exchange(channel)
        self._write_outbox(folder, {"seconds": time.monotonic() - started, "rows": aligned.size})

    # -- prediction --------------------------------------------------------------------------

    def _predict(self, proposal: PredictProposal) -> str:
        model = find_model(self._config.run.folder, proposal.pair, self._channel.remote)
        if model.job.modulus_bits != self._config.keys.modulus_bits:
            raise PeerError(
                f"the model was made with {model.job.modulus_bits}-bit keys; [keys] of "
                f"{self._config.name!r} says {self._config.keys.modulus_bits}"
            )
        path = self._config.predict.path or self._config.data.path
        source = load_source(self._config.data, path=path, preprocessor=model.preprocessor)
        for line in source.notes:
            self._reporter.note(line)
        request = self._request("predict", proposal, source, model.job, outputs_now=1)
        request = dataclasses.replace(request, label_columns=-1)
        if not self._approve(request, dry_run=proposal.dry_run):
            return f"dry run of a prediction with {model.card.run!r} shown"
        self._ledger.add(self._channel.remote, path, 1)
        with RunFolder.create(self._config.run.folder, _safe_run(proposal.run)) as folder:
            folder.write_text("approval.txt", describe(request) + "\n")
            folder.write_json("warnings.json", request.warnings())
            scored = self._score(model, source, folder)
        return f"{scored} records scored for {self._channel.remote!r}"

    def _score(self, model: StoredModel, source: Source, folder: RunFolder) -> int:
        channel, config, job = self._channel, self._config, model.job
        aligned = align(
            channel,
            config,
            source,
            folder.run_id,
            self._reporter,
            min_intersection=config.predict.min_intersection,
        )
        x = source.matrix.take(aligned.rows)
        layer = agree_feature(
            channel,
            x,
            resources(config, job),
            kept_rows=0,
            want=layer_settings(job, job.batch_size),
            state=model.feature_state(),
        )
        follow_prediction(FeatureSource(layer), x, self._observer("score", 0))
        finish_exchange(channel)
        self._write_outbox(folder, {"rows": aligned.size, "pair": model.card.pair})
        return aligned.size

    # -- shared ------------------------------------------------------------------------------

    def _request(
        self,
        kind: str,
        proposal: TrainProposal | PredictProposal,
        source: Source,
        job: Job,
        *,
        outputs_now: int,
    ) -> Request:
        path = self._config.data.path
        if kind == "predict":
            path = self._config.predict.path or path
        return Request(
            kind=kind,
            label_party=self._channel.remote,
            name=job.name,
            job=job,
            columns=source.columns,
            encoded_columns=source.matrix.shape[1],
            rows=len(source),
            label_rows=proposal.rows,
            label_columns=proposal.columns if isinstance(proposal, TrainProposal) else -1,
            outputs_now=outputs_now,
            outputs_before=self._ledger.count(self._channel.remote, path),
        )

    def _approve(self, request: Request, *, dry_run: bool) -> bool:
        """Show, decide, answer. False after a dry run.

        Raises
            UsageError: refused here; the label party gets the same reason.
        """
        show_request(request, self._options.console)
        reason = decide(request, self._config.approval)
        dry_run = dry_run or self._options.dry_run
        if reason is None and self._options.dry_run:
            reason = "this party only shows jobs now (serve --dry-run)"
        if reason is None and self._config.approval.mode == "ask" and not dry_run:
            approved = ask_operator(request, self._options.console)
            reason = None if approved else "the operator declined"
        self._channel.send(
            Verdict(
                accepted=reason is None,
                reason=reason or "",
                rows=request.rows,
                columns=request.encoded_columns,
                warnings=request.warnings(),
            )
        )
        if reason is not None and not self._options.dry_run:
            raise UsageError(f"refused the job {request.name!r}: {reason}")
        return not dry_run

    def _observer(self, step: str, epochs: int) -> Observer:
        def observe(done: CallDone) -> None:
            detail = f"epoch {min(done.epoch + 1, epochs)}/{epochs}, {done.part}" if epochs else ""
            self._reporter.progress(step, done.call, done.calls, detail)

        return observe

    def _write_outbox(self, folder: RunFolder, facts: dict[str, object]) -> None:
        rows = outbox_rows(self._channel.meter)
        folder.write_json("outbox.json", rows)
        folder.write_json("run.json", facts)
        text = print_text(outbox_table(self._config.name, rows))
        folder.write_text("report.txt", "\n".join(self._reporter.transcript) + "\n" + text)
        self._options.console.print(outbox_table(self._config.name, rows))


def _safe_run(name: str) -> str:
    # The peer's run name becomes a folder name; RunFolder checks its characters.
    if len(name) > 90:
        raise PeerError(f"got a run name of {len(name)} characters; want at most 90")
    return name


def _multiplication_s(key_bits: int) -> float:
    """Seconds of one multiplication mod a number of ciphertext size on this machine, measured."""
    modulus = Modulus(((1 << (2 * key_bits)) - 1).to_bytes(key_bits // 4, "little"))
    numbers = modulus.from_bytes(bytes([7]) * (modulus.bytes * 64), 1)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(8):
            mul(numbers, numbers, 1)
        best = min(best, (time.perf_counter() - start) / (8 * 64))
    return best
