"""The feature party's daemon: one session after another, whoever dials."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Generator

from colonnade.errors import ColonnadeError, TransportError, UsageError
from colonnade.party.config import PartyConfig
from colonnade.party.feature_run import handle_session
from colonnade.party.feature_session import ServeOptions
from colonnade.party.progress import Reporter, printable
from colonnade.party.session import PeerLeftError
from colonnade.transport import Listener, TlsChannel, connect

__all__ = ["serve"]

_RETRY_PAUSE_S = 1.0


def serve(
    config: PartyConfig, reporter: Reporter, options: ServeOptions, *, jobs: int | None = None
) -> int:
    """Serve jobs until stopped, or `jobs` of them; returns the number of failed jobs.

    A failed job does not end the service; its reason is shown here and was sent to the peer. Nor
    does an error of this program: its traceback goes to the console.

    Raises
        UsageError: this is not a feature party. TransportError: the address is not free, or with
        `jobs` the peer cannot be reached.
    """
    if config.role != "feature":
        raise UsageError(f"{config.name!r} is the label party; it starts jobs with 'train'")
    if config.approval.mode == "ask" and not options.dry_run and not sys.stdin.isatty():
        reporter.note(
            'WARNING [approval] mode = "ask", but there is no terminal to ask at: every job will '
            "be refused"
        )
    done = failed = 0
    with contextlib.closing(_sessions(config, reporter, patient=jobs is None)) as sessions:
        for channel in sessions:
            try:
                with channel:
                    reporter.note(handle_session(channel, config, reporter, options))
            except PeerLeftError:
                # A label party that listens answers once more while it goes: that is no job.
                time.sleep(_RETRY_PAUSE_S)
                continue
            except ColonnadeError as error:
                failed += 1
                reporter.note(f"job failed: {error}")
            except Exception as error:  # noqa: BLE001 (the top of a process that goes on)
                failed += 1
                reporter.note(f"job failed: internal error ({type(error).__name__})")
                text = printable(traceback.format_exc())
                options.console.print(text, markup=False, highlight=False, soft_wrap=True)
            finally:
                reporter.close()
                reporter.transcript.clear()
            done += 1
            if jobs is not None and done >= jobs:
                break
    return failed


def _sessions(config: PartyConfig, reporter: Reporter, *, patient: bool) -> Generator[TlsChannel]:
    if config.connection.mode == "listen":
        yield from _accepted(config, reporter, patient=patient)
    else:
        yield from _dialled(config, reporter, patient=patient)


def _accepted(config: PartyConfig, reporter: Reporter, *, patient: bool) -> Generator[TlsChannel]:
    address = (config.connection.host, config.connection.port)
    listener = Listener(
        address,
        config.own_identity(),
        config.pinned_peers(),
        config.limits,
        on_refused=reporter.note,
    )
    with listener:
        reporter.note(f"{config.name!r} serves at {address[0]}:{listener.port}")
        while True:
            try:
                channel = listener.accept()
            except TransportError:
                if not patient:
                    raise
                continue
            yield channel


def _dialled(config: PartyConfig, reporter: Reporter, *, patient: bool) -> Generator[TlsChannel]:
    peer = config.pinned_peers()[0]
    address = config.address_of(peer.name)
    reporter.note(f"{config.name!r} serves by dialling {peer.name!r} at {address[0]}:{address[1]}")
    told = ""
    # Between two jobs a label party that listens may go and come back: a refusal is no end yet.
    give_up_at = 0.0
    while True:
        try:
            channel = connect(address, config.own_identity(), peer, config.limits)
        except ColonnadeError as error:
            if not patient and time.monotonic() >= give_up_at:
                raise
            if patient and str(error) != told:
                told = str(error)
                reporter.note(f"still trying: {told}")
            time.sleep(_RETRY_PAUSE_S)
            continue
        told = ""
        yield channel
        give_up_at = time.monotonic() + config.limits.connect_s
