"""Exactly-once, ordered delivery across reconnects: the books, without sockets or threads.

Each side numbers its `DATA` and `CLOSE` frames and keeps their bytes until the other side has
confirmed them. When a connection is replaced, each side says how many numbered frames it has
received; the other resends the rest from its buffer, byte for byte, and nothing twice. A number
that is not the very next one is therefore always the peer's fault.
"""

from __future__ import annotations

from collections import deque

from colonnade.errors import PeerError
from colonnade.transport.frames import CHUNK_BYTES, Frame, Kind, encode_header

__all__ = ["Incoming", "Outgoing"]


class Outgoing:
    """Numbered frames on their way out: not yet written, or written and not yet confirmed."""

    def __init__(self) -> None:
        self._unwritten: deque[tuple[bytes, memoryview]] = deque()
        self._unconfirmed: deque[tuple[bytes, memoryview]] = deque()
        self._pushed = 0
        self._confirmed = 0
        self._written = 0  # the most frames ever written, on any connection
        self.buffered_bytes = 0
        """Payload bytes that are not yet confirmed."""

    @property
    def is_empty(self) -> bool:
        """Whether everything pushed is confirmed."""
        return self._confirmed == self._pushed

    def push_message(self, message: bytes) -> None:
        """Cut `message` (not empty) into numbered frames."""
        view = memoryview(message)
        for start in range(0, len(view), CHUNK_BYTES):
            chunk = view[start : start + CHUNK_BYTES]
            self._push(Kind.DATA, chunk, len(view) - start - len(chunk))

    def push_close(self) -> None:
        """Number the farewell, so that it arrives after everything else."""
        self._push(Kind.CLOSE, memoryview(b""), 0)

    def _push(self, kind: Kind, chunk: memoryview, remaining: int) -> None:
        self._unwritten.append((encode_header(kind, len(chunk), self._pushed, remaining), chunk))
        self._pushed += 1
        self.buffered_bytes += len(chunk)

    def take(self, limit_bytes: int) -> list[bytes | memoryview]:
        """Hand out the next frames to write, up to about `limit_bytes`, as header, payload, ..."""
        pieces: list[bytes | memoryview] = []
        size = 0
        while self._unwritten and size < limit_bytes:
            frame = self._unwritten.popleft()
            self._unconfirmed.append(frame)
            pieces += frame
            size += len(frame[0]) + len(frame[1])
        self._written = max(self._written, self._confirmed + len(self._unconfirmed))
        return pieces

    def confirm(self, received: int) -> None:
        """Forget the first `received` frames: the peer has them.

        Raises
            PeerError: it confirms frames that were never written, or takes a confirmation back.
        """
        if not self._confirmed <= received <= self._written:
            raise PeerError(
                f"got a confirmation of {received} frames; want one between {self._confirmed} "
                f"and {self._written}"
            )
        for _ in range(received - self._confirmed):
            # After a reconnect the peer may confirm what this connection has not yet resent.
            frame = (self._unconfirmed or self._unwritten).popleft()
            self.buffered_bytes -= len(frame[1])
        self._confirmed = received

    def resume(self, received: int) -> None:
        """Start on a new connection to a peer that has the first `received` frames.

        Raises
            PeerError: as `confirm`.
        """
        self._unwritten.extendleft(reversed(self._unconfirmed))
        self._unconfirmed.clear()
        self.confirm(received)


class Incoming:
    """Numbered frames on their way in: checks their order and joins chunks to messages."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._parts: list[bytes] = []
        self._remaining = 0
        self.received = 0
        """Numbered frames received so far."""
        self.is_closed = False
        """Whether the peer said that nothing follows."""

    def accept(self, frame: Frame) -> bytes | None:
        """Take one numbered frame; return the message that it completes, if any.

        Raises
            PeerError: out of order, too long, inconsistent, or after the farewell.
        """
        if frame.sequence != self.received:
            raise PeerError(f"got frame number {frame.sequence}; want number {self.received}")
        if self.is_closed:
            raise PeerError(f"got a {frame.kind.name} frame after the farewell; want nothing")
        total = len(frame.payload) + frame.remaining
        if self._parts:
            if frame.kind is not Kind.DATA or total != self._remaining:
                raise PeerError(
                    f"got a {frame.kind.name} frame with {total} bytes to go in the middle of a "
                    f"message; want DATA with {self._remaining}"
                )
        elif total > self._max_message_bytes:
            raise PeerError(
                f"got a message of {total} bytes; want at most {self._max_message_bytes}; raise "
                f"the message limit on both sides if it is meant to be this large"
            )
        self.received += 1
        if frame.kind is Kind.CLOSE:
            self.is_closed = True
            return None
        self._parts.append(frame.payload)
        self._remaining = frame.remaining
        if self._remaining:
            return None
        message = b"".join(self._parts)
        self._parts.clear()
        return message
