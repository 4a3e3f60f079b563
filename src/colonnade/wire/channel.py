"""What a protocol role sees of the network: ordered, exactly-once, typed messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from colonnade.errors import PeerError
from colonnade.wire.messages import Message, decode_frame, frame_tag

__all__ = ["Channel", "Inbox", "Meter", "OutboxRow", "RecordingChannel"]

_T = TypeVar("_T", bound=Message)


@dataclass
class OutboxRow:
    """Count and bytes of one message type that left this side, and what it shows."""

    tag: str
    leaks: str
    count: int = 0
    bytes: int = 0


@dataclass
class Meter:
    """Bytes, messages and rounds of one channel, and the outbox.

    A round is counted whenever this side receives after having sent (its half of a round trip).
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_messages: int = 0
    received_messages: int = 0
    rounds: int = 0
    outbox: dict[str, OutboxRow] = field(default_factory=dict)
    _sent_since_receive: bool = False

    def sent(self, message: Message, size: int) -> None:
        """Account for one message of `size` bytes that this side sent."""
        self.sent_bytes += size
        self.sent_messages += 1
        self._sent_since_receive = True
        kind = type(message)
        row = self.outbox.setdefault(kind.TAG, OutboxRow(kind.TAG, kind.LEAKS))
        row.count += 1
        row.bytes += size

    def received(self, size: int) -> None:
        """Account for one message of `size` bytes that this side received."""
        self.received_bytes += size
        self.received_messages += 1
        if self._sent_since_receive:
            self.rounds += 1
            self._sent_since_receive = False


@runtime_checkable
class Channel(Protocol):
    """One session with one peer. Sends are buffered; receives wait with a deadline."""

    @property
    def local(self) -> str:
        """Name of this party."""
        ...

    @property
    def remote(self) -> str:
        """The peer's name."""
        ...

    @property
    def meter(self) -> Meter:
        """Bytes, rounds and outbox so far."""
        ...

    def send(self, message: Message) -> None:
        """Queue `message`; returns before it is delivered.

        Raises
            TransportError: the session is lost for good.
            PeerError: the session ended by the peer's fault before.
        """
        ...

    def receive(self, *types: type[_T], timeout_s: float | None = None) -> _T:
        """Wait for the next message and decode it as one of `types`.

        Raises
            PeerError: wrong type, malformed, or the peer stopped (PeerAbortedError, with its
                reason); every later call raises it again. Or the peer closed the session.
            TransportError: nothing came within the deadline; names the missing message.
        """
        ...

    def close(self) -> None:
        """Deliver what is buffered, then end the session. Idempotent."""
        ...


class RecordingChannel:
    """Wraps a channel and keeps every message received, in order: the party's *view*."""

    def __init__(self, inner: Channel) -> None:
        self.inner = inner
        self.view: list[Message] = []

    @property
    def local(self) -> str:
        """Name of this party."""
        return self.inner.local

    @property
    def remote(self) -> str:
        """The peer's name."""
        return self.inner.remote

    @property
    def meter(self) -> Meter:
        """The wrapped channel's meter."""
        return self.inner.meter

    def send(self, message: Message) -> None:
        """Send through the wrapped channel."""
        self.inner.send(message)

    def receive(self, *types: type[_T], timeout_s: float | None = None) -> _T:
        """Receive through the wrapped channel and record."""
        message = self.inner.receive(*types, timeout_s=timeout_s)
        self.view.append(message)
        return message

    def close(self) -> None:
        """Close the wrapped channel."""
        self.inner.close()


class Inbox:
    """Decodes frames for a channel and keeps the fault of the first that it could not take."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._fault: PeerError | None = None

    @property
    def fault(self) -> PeerError | None:
        """The peer's fault that ended this session, if any."""
        return self._fault

    def check(self) -> None:
        """Raise the sticky fault again, if there was one."""
        if self._fault is not None:
            raise self._fault.with_traceback(None)

    def open(self, frame: bytes, types: tuple[type[_T], ...]) -> _T:
        """Decode one frame as one of `types`, metering it."""
        self._meter.received(len(frame))
        try:
            frame_tag(frame)
            return decode_frame(frame, *types)
        except PeerError as error:
            self._fault = error
            raise
