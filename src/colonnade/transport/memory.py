"""An in-memory pair of channels: same codec, same metering, no sockets. For tests and examples."""

from __future__ import annotations

import queue
from typing import TypeVar

from colonnade.errors import PeerError, TransportError
from colonnade.wire.channel import Inbox, Meter
from colonnade.wire.messages import Message, encode_frame

__all__ = ["MemoryChannel", "memory_pair"]

_T = TypeVar("_T", bound=Message)
_CLOSED = None


class MemoryChannel:
    """One end of a pair made by `memory_pair`; use each end from its own thread."""

    def __init__(
        self,
        local: str,
        remote: str,
        incoming: queue.Queue[bytes | None],
        outgoing: queue.Queue[bytes | None],
        timeout_s: float,
    ) -> None:
        self.local = local
        self.remote = remote
        self.meter = Meter()
        self._incoming = incoming
        self._outgoing = outgoing
        self._timeout_s = timeout_s
        self._inbox = Inbox(self.meter)
        self._closed = False

    def send(self, message: Message) -> None:
        """Queue `message` for the other end."""
        self._inbox.check()
        if self._closed:
            raise TransportError("this channel is closed")
        frame = encode_frame(message)
        self.meter.sent(message, len(frame))
        self._outgoing.put(frame)

    def receive(self, *types: type[_T], timeout_s: float | None = None) -> _T:
        """Wait for the next message of one of `types`."""
        self._inbox.check()
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        wanted = " or ".join(kind.TAG for kind in types)
        try:
            frame = self._incoming.get(timeout=wait_s)
        except queue.Empty:
            raise TransportError(f"no {wanted} from {self.remote!r} within {wait_s:g} s") from None
        if frame is _CLOSED:
            self._incoming.put(_CLOSED)
            raise PeerError(f"{self.remote!r} closed the session; {wanted} was expected")
        return self._inbox.open(frame, types)

    def close(self) -> None:
        """End the session; the other end sees it after what was sent before."""
        if not self._closed:
            self._closed = True
            self._outgoing.put(_CLOSED)


def memory_pair(
    first: str = "label", second: str = "feature", *, timeout_s: float = 60.0
) -> tuple[MemoryChannel, MemoryChannel]:
    """Make two connected channels named `first` and `second`."""
    there: queue.Queue[bytes | None] = queue.Queue()
    back: queue.Queue[bytes | None] = queue.Queue()
    return (
        MemoryChannel(first, second, back, there, timeout_s),
        MemoryChannel(second, first, there, back, timeout_s),
    )
