"""A session with one peer over TCP with mutual TLS, as a `Channel`; and the side that dials."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from colonnade.errors import PeerError, TransportError, UsageError
from colonnade.transport.dial import Dialler
from colonnade.transport.frames import FrameSocket
from colonnade.transport.handshake import Opening, new_session_id
from colonnade.transport.identity import Identity, PinnedPeer
from colonnade.transport.limits import TransportLimits
from colonnade.transport.link import Link
from colonnade.transport.tls import load_endpoint
from colonnade.wire.channel import Inbox, Meter
from colonnade.wire.messages import Abort, Message, decode_frame, encode_frame, frame_tag

__all__ = ["TlsChannel", "connect"]

_T = TypeVar("_T", bound=Message)
_R = TypeVar("_R")

# Whoever stops does not wait long for a peer that does not listen.
_ABORT_S = 5.0
# A reason is for people; one that is longer has something in it that should not be there.
_LONGEST_REASON = 2000


class TlsChannel:
    """A `Channel` to one peer; made by `connect` or `Listener.accept`. Closes as a context."""

    def __init__(self, link: Link, limits: TransportLimits) -> None:
        self._link = link
        self._limits = limits
        self._meter = Meter()
        self._inbox = Inbox(self._meter)
        self._closed = False
        self._was_told = False  # whether the caller has seen why the session ended

    @property
    def local(self) -> str:
        """Our name."""
        return self._link.local

    @property
    def remote(self) -> str:
        """The peer's name, proved by its certificate."""
        return self._link.remote

    @property
    def meter(self) -> Meter:
        """Bytes, rounds and outbox so far; message bytes, as the in-memory channel counts."""
        return self._meter

    @property
    def traffic_bytes(self) -> tuple[int, int]:
        """Bytes written and read so far with frame headers, confirmations, heartbeats, resends."""
        return self._link.traffic

    def send(self, message: Message) -> None:
        """Buffer `message` for the peer; waits while the send buffer is full.

        Raises
            UsageError: it is longer than `max_message_bytes`.
            PeerError: the session ended by the peer's fault, or the peer stopped or closed it.
            TransportError: the connection is gone for good, or this channel is closed.
        """
        self._check_open()
        frame = encode_frame(message)
        if len(frame) > self._limits.max_message_bytes:
            raise UsageError(
                f"got a {type(message).TAG} message of {len(frame)} bytes; want at most "
                f"{self._limits.max_message_bytes}; raise the message limit on both sides"
            )
        self._guarded(lambda: self._link.send(frame, self._limits.receive_s))
        self._meter.sent(message, len(frame))

    def receive(self, *types: type[_T], timeout_s: float | None = None) -> _T:
        """Wait for the next message and decode it as one of `types`.

        Raises
            PeerError: wrong type, malformed, or the peer stopped or closed the session.
            TransportError: nothing came in time, or the connection is gone for good.
        """
        self._check_open()
        wanted = " or ".join(kind.TAG for kind in types)
        wait_s = self._limits.receive_s if timeout_s is None else timeout_s
        frame = self._guarded(lambda: self._link.receive(wanted, wait_s))
        return self._inbox.open(frame, types)

    def close(self) -> None:
        """Deliver what is buffered, then end the session. Idempotent.

        Raises
            TransportError: some of it may not have arrived, and no call has said so before.
        """
        self._finish(self._limits.receive_s)

    def abort(self, kind: str, reason: str) -> None:
        """Tell the peer why we stop, if the session still works, and end it. Never raises."""
        message = Abort(kind=kind, reason=reason[:_LONGEST_REASON])
        frame = encode_frame(message)
        with suppress(PeerError, TransportError):
            if not self._closed:
                self._link.send(frame, min(_ABORT_S, self._limits.dead_after_s))
                self._meter.sent(message, len(frame))
        with suppress(TransportError):
            self._finish(min(_ABORT_S, self._limits.dead_after_s))

    def drop_connection_for_tests(self) -> None:
        """Break the TCP connection under the session, which must then re-establish it."""
        self._link.drop_connection_for_tests()

    def __enter__(self) -> TlsChannel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:  # the error that brought us here matters more
            with suppress(TransportError):
                self._finish(min(_ABORT_S, self._limits.dead_after_s))

    def _check_open(self) -> None:
        self._inbox.check()
        if self._closed:
            raise TransportError("this channel is closed; open a new session")

    def _guarded(self, act: Callable[[], _R]) -> _R:
        try:
            return act()
        except PeerError:
            self._was_told = True
            farewell = self._link.pending_farewell()
            if farewell is not None and frame_tag(farewell) == Abort.TAG:
                decode_frame(farewell)  # raises with the peer's own reason
            raise
        except TransportError:
            self._was_told = self._link.fault is not None
            raise

    def _finish(self, timeout_s: float) -> None:
        if self._closed:
            return
        self._closed = True
        undelivered = self._link.close(timeout_s)
        if undelivered and not self._was_told:
            cause = self._link.fault or f"it confirmed nothing for {timeout_s:g} s"
            raise TransportError(
                f"closed with {undelivered} bytes that {self.remote!r} has not confirmed: {cause}"
            )


def connect(
    address: tuple[str, int],
    identity: Identity,
    peer: PinnedPeer,
    limits: TransportLimits | None = None,
) -> TlsChannel:
    """Open a session with `peer` at (host, port), trying for `connect_s` while nobody answers.

    Raises
        UsageError: a file of `identity` or `peer` is missing or wrong.
        TransportError: nobody answers, or not the pinned peer does; names host, port, remedy.
        PeerError: the peer refused, or runs another version.
    """
    limits = limits or TransportLimits()
    dialler = Dialler(address, load_endpoint(identity, [peer], listens=False))
    session = new_session_id()
    connection, _ = dialler.dial(Opening(session, False, 0), limits.connect_s)

    def redial(received: int, given_up: Callable[[], bool]) -> tuple[FrameSocket, int]:
        return dialler.dial(Opening(session, True, received), limits.reconnect_s, given_up)

    link = Link((identity.name, peer.name), limits, connection, redial)
    return TlsChannel(link, limits)
