"""What every session of a feature party does: load, show, decide, answer, count, report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from colonnade.errors import IntegrityError, UsageError
from colonnade.nn.training import CallDone, Observer
from colonnade.party.approval import ask_operator, decide
from colonnade.party.config import PartyConfig
from colonnade.party.ledger import Ledger
from colonnade.party.messages import Verdict
from colonnade.party.progress import Reporter
from colonnade.party.report import outbox_rows, outbox_table, print_text
from colonnade.party.request import Request, describe, show_request
from colonnade.party.run_folder import RunFolder
from colonnade.party.source import Source
from colonnade.wire.channel import Channel

__all__ = ["FeatureSession", "ServeOptions"]


@dataclass(frozen=True)
class ServeOptions:
    """How to serve: dry_run shows and refuses every job; console is where requests are shown."""

    console: Console
    dry_run: bool = False


@dataclass(frozen=True)
class FeatureSession:
    """One session with a label party."""

    channel: Channel
    config: PartyConfig
    reporter: Reporter
    options: ServeOptions

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.config.run.folder, self.channel.remote)

    def load(self, source: Source) -> Source:
        """Note what reading and preprocessing had to say."""
        for line in source.notes:
            self.reporter.note(line)
        return source

    def outputs_before(self, source: Source) -> int:
        """Most outputs that this label party got of any record in the file so far."""
        with self.paths_stay_here("the count of outputs per row"):
            return int(self._ledger.counts(source.ids).max(initial=0))

    def count_outputs(
        self, source: Source, rows: NDArray[np.int64], outputs: NDArray[np.int64]
    ) -> None:
        """Count what the records at `rows` are about to give, before any of it leaves."""
        with self.paths_stay_here("the count of outputs per row"):
            self._ledger.add([source.ids[row] for row in rows], outputs)

    @contextlib.contextmanager
    def paths_stay_here(self, what: str) -> Iterator[None]:
        """Show the operator a damaged file with its path; tell the peer only what is damaged."""
        try:
            yield
        except IntegrityError as error:
            self.reporter.note(str(error))
            raise IntegrityError(
                f"{what} at {self.config.name!r} is damaged; its operator can see which file, and "
                "restore it from a backup"
            ) from error

    def approve(self, request: Request, *, dry_run: bool) -> bool:
        """Show, decide, answer. False after a dry run.

        Raises
            UsageError: refused here; the label party was told the reason.
        """
        show_request(request, self.options.console)
        config, minimum = self.config, self.config.approval.min_intersection
        if request.kind == "predict":
            minimum = config.predict.min_intersection
        refusal = decide(request, config.approval, minimum=minimum)
        shown_only = dry_run or self.options.dry_run
        if refusal is None and config.approval.mode == "ask" and not shown_only:
            refusal = ask_operator(request, self.options.console)
        reason = refusal.reason if refusal is not None else ""
        if not reason and self.options.dry_run and not dry_run:
            reason = "this party only shows jobs now (serve --dry-run); this one is in its limits"
        self.channel.send(
            Verdict(
                accepted=not reason,
                reason=reason,
                rows=request.feature_rows,
                columns=request.feature_columns,
                outputs_before=request.outputs_before,
                warnings=request.warnings(),
            )
        )
        if refusal is not None:
            detail = f" ({refusal.detail})" if refusal.detail else ""
            raise UsageError(f"refused the job {request.job.name!r}: {reason}{detail}")
        return not shown_only

    def observer(self, step: str, epochs: int) -> Observer:
        """Turn calls that are done into progress."""

        def observe(done: CallDone) -> None:
            detail = f"epoch {min(done.epoch + 1, epochs)}/{epochs}, {done.part}" if epochs else ""
            self.reporter.progress(step, done.call, done.calls, detail)

        return observe

    def write_approval(self, folder: RunFolder, request: Request) -> None:
        """Keep what was approved."""
        folder.write_text("approval.txt", describe(request) + "\n")
        folder.write_json("warnings.json", request.warnings())

    def write_outbox(self, folder: RunFolder, facts: dict[str, object]) -> None:
        """Keep and show everything that left this party, and the facts of the run."""
        rows = outbox_rows(self.channel.meter)
        folder.write_json("outbox.json", rows)
        folder.write_json("run.json", {**facts, "peer": self.channel.remote})
        table = outbox_table(self.config.name, rows)
        text = "\n".join(self.reporter.transcript) + "\n" + print_text(table)
        folder.write_text("report.txt", text)
        self.options.console.print(table)
