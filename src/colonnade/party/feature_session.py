"""What every session of a feature party does: load, show, decide, answer, align, count, report."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from colonnade.errors import IntegrityError, PeerError, UsageError
from colonnade.nn.training import CallDone, Observer
from colonnade.party.approval import (
    Refusal,
    ask_operator,
    decide,
    decide_unseen,
    outputs_limit,
)
from colonnade.party.config import PartyConfig
from colonnade.party.job import Job
from colonnade.party.ledger import Ledger
from colonnade.party.messages import Verdict
from colonnade.party.progress import Reporter
from colonnade.party.report import outbox_rows, outbox_table, print_text
from colonnade.party.request import Request, describe, show_request
from colonnade.party.run_folder import RunFolder
from colonnade.party.session import align
from colonnade.party.source import NotOfferedError, Source
from colonnade.protocol.matmul_messages import ForwardCall
from colonnade.protocol.psi import Alignment
from colonnade.wire.channel import Channel, Meter
from colonnade.wire.messages import Message

__all__ = ["FeatureSession", "ServeOptions"]

_T = TypeVar("_T", bound=Message)


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

    def check_unseen(self, job: Job, kind: str, label_rows: int) -> None:
        """Refuse what exceeds a limit whatever the file holds, before the file is read.

        Raises
            UsageError: refused here; the label party was told the reason.
        """
        refusal = decide_unseen(
            job,
            kind,
            label_rows,
            self.config.approval,
            own=self.config.name,
            minimum=self._minimum(kind),
        )
        if refusal is not None:
            self._refuse(refusal, job)

    def load(self, job: Job, read: Callable[[], Source]) -> Source:
        """Read the file, and note what reading and preprocessing had to say.

        Raises
            UsageError: the job asks for columns that are not offered; the label party was refused.
        """
        try:
            source = read()
        except NotOfferedError as error:
            reason = "the job asks for columns that this party does not offer; ask it for the names"
            self._refuse(Refusal(reason, str(error)), job)
        for line in source.notes:
            self.reporter.note(line)
        return source

    def outputs_before(self, source: Source) -> int:
        """Most outputs that this label party got of any record in the file so far."""
        with self.paths_stay_here("the count of outputs per row"):
            return int(self._ledger.counts(source.ids).max(initial=0))

    def align(self, request: Request, source: Source, run: str) -> Alignment:
        """Find the common records, at least as many as the limit for this kind of job."""
        return align(
            self.channel,
            self.config,
            source,
            run,
            self.reporter,
            peer_records=request.label_rows,
            min_intersection=self._minimum(request.kind),
        )

    def check_outputs(self, request: Request, source: Source, aligned: Alignment) -> None:
        """Check a prediction's own records against the limit on outputs per row.

        Raises
            PeerError: one of them has given too many already; the label party gets the reason.
        """
        with self.paths_stay_here("the count of outputs per row"):
            counts = self._ledger.counts([source.ids[row] for row in aligned.rows])
        exact = dataclasses.replace(request, outputs_before=int(counts.max(initial=0)))
        refusal = outputs_limit(exact, self.config.approval)
        if refusal is not None:
            if refusal.detail:
                self.reporter.note(refusal.detail)
            raise PeerError(f"{self.config.name!r} refused: {refusal.reason}")

    def counting(self, source: Source, aligned: Alignment, outputs: NDArray[np.int64]) -> Channel:
        """The channel, which counts the outputs of the aligned records when the first is asked for.

        So a job that cannot run costs nothing, and nothing leaves that was not counted.
        """

        def count() -> None:
            with self.paths_stay_here("the count of outputs per row"):
                self._ledger.add([source.ids[row] for row in aligned.rows], outputs)

        return _CountingChannel(self.channel, count)

    @contextlib.contextmanager
    def paths_stay_here(self, what: str) -> Iterator[None]:
        """Show the operator a damaged file with its path; tell the peer only what is damaged."""
        try:
            yield
        except IntegrityError as error:
            self.reporter.note(str(error))
            raise IntegrityError(
                f"{what} at {self.config.name!r} is damaged or cannot be used; its operator can "
                "see which file and why, and restore it from a backup"
            ) from error

    def approve(self, request: Request, *, dry_run: bool) -> bool:
        """Show, decide, answer. False after a dry run.

        Raises
            UsageError: refused here; the label party was told the reason.
        """
        show_request(request, self.options.console)
        approval = self.config.approval
        refusal = decide(request, approval, minimum=self._minimum(request.kind))
        shown_only = dry_run or self.options.dry_run
        if refusal is None and approval.mode == "ask" and not shown_only:
            refusal = ask_operator(request, self.options.console)
        if refusal is not None:
            self._refuse(refusal, request.job)
        if self.options.dry_run and not dry_run:
            reason = "this party only shows jobs now (serve --dry-run); this one is in its limits"
            self.channel.send(Verdict.refusal(reason))
            return False
        self.channel.send(
            Verdict(
                accepted=True,
                reason="",
                rows=request.feature_rows,
                columns=request.feature_columns,
                independent_columns=request.independent_columns,
                outputs_before=request.outputs_before,
                warnings=request.warnings(),
            )
        )
        return not shown_only

    def _minimum(self, kind: str) -> int:
        limits = self.config.predict if kind == "predict" else self.config.approval
        return limits.min_intersection

    def _refuse(self, refusal: Refusal, job: Job) -> NoReturn:
        self.channel.send(Verdict.refusal(refusal.reason))
        detail = f" ({refusal.detail})" if refusal.detail else ""
        raise UsageError(f"refused the job {job.name!r}: {refusal.reason}{detail}")

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
        parties = {"party": self.config.name, "peer": self.channel.remote}
        folder.write_json("run.json", {**facts, **parties})
        table = outbox_table(self.config.name, rows)
        text = "\n".join(self.reporter.transcript) + "\n" + print_text(table)
        folder.write_text("report.txt", text)
        self.options.console.print(table)


class _CountingChannel:
    """The session's channel; calls `count` once, between the first forward call and its answer."""

    def __init__(self, inner: Channel, count: Callable[[], None]) -> None:
        self._inner = inner
        self._count: Callable[[], None] | None = count

    @property
    def local(self) -> str:
        return self._inner.local

    @property
    def remote(self) -> str:
        return self._inner.remote

    @property
    def meter(self) -> Meter:
        return self._inner.meter

    def send(self, message: Message) -> None:
        self._inner.send(message)

    def receive(self, *types: type[_T], timeout_s: float | None = None) -> _T:
        message = self._inner.receive(*types, timeout_s=timeout_s)
        if self._count is not None and isinstance(message, ForwardCall):
            self._count()
            self._count = None
        return message

    def close(self) -> None:
        self._inner.close()
