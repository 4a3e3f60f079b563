"""Reading, writing and timing of one connection, without blocking. Belongs to one thread."""

from __future__ import annotations

import math
import selectors
import socket
import time
from contextlib import suppress

from colonnade.transport.frames import Frame, FrameSocket
from colonnade.transport.limits import TransportLimits

__all__ = ["Pump"]


class Pump:
    """Moves bytes of one connection and notices when it has fallen silent."""

    def __init__(self, connection: FrameSocket, bell: socket.socket, limits: TransportLimits):
        """`bell` becomes readable when another thread wants `wait` to return."""
        connection.stop_blocking()
        self._connection = connection
        self._bell = bell
        self._limits = limits
        self._selector = selectors.DefaultSelector()
        self._selector.register(bell, selectors.EVENT_READ)
        self._watched = 0  # events for which the connection is registered
        self._may_hold_more = True  # the handshake may have left bytes above the descriptor
        self._heard = self._wrote = time.monotonic()
        self.unwritten = memoryview(b"")
        """What must be written next; set it only when it is empty."""

    def close(self) -> None:
        """Let go of the descriptors (the connection itself stays open)."""
        self._selector.close()

    def heartbeat_is_due(self) -> bool:
        """Whether nothing was written for a while."""
        return time.monotonic() - self._wrote >= self._limits.heartbeat_s

    def write(self) -> None:
        """Write as much of `unwritten` as fits now."""
        while self.unwritten:
            count = self._connection.write(self.unwritten)
            if not count:
                return
            self.unwritten = self.unwritten[count:]
            self._wrote = time.monotonic()

    def wait(self, until: float, *, hold_back: bool) -> None:
        """Return at the monotonic time `until`, or earlier when there is something to do.

        With `hold_back`, what the peer sends is left where it is.
        """
        now = time.monotonic()
        if hold_back:
            self._heard = now  # silence proves nothing while we do not listen
        events = 0 if hold_back else selectors.EVENT_READ
        if self.unwritten:
            # Neither a heartbeat nor a confirmation can be written before this is.
            events |= selectors.EVENT_WRITE
            until = math.inf
        else:
            until = min(until, self._wrote + self._limits.heartbeat_s)
        until = min(until, self._heard + self._limits.dead_after_s)
        self._watch(events)
        at_once = self._may_hold_more and not hold_back
        for key, _ in self._selector.select(0 if at_once else max(0.0, until - now)):
            if key.fileobj is self._bell:
                with suppress(BlockingIOError):
                    self._bell.recv(4096)

    def _watch(self, events: int) -> None:
        if events == self._watched:
            return
        if self._watched:
            self._selector.unregister(self._connection)
        if events:
            self._selector.register(self._connection, events)
        self._watched = events

    def read(self) -> list[Frame]:
        """Return the frames that have arrived.

        Raises
            OSError: the connection is lost, or has been silent for too long.
            PeerError: malformed frames.
        """
        before = self._connection.bytes_read
        frames, self._may_hold_more = self._connection.read()
        if frames or self._connection.bytes_read != before:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > self._limits.dead_after_s:
            raise TimeoutError(f"silent for {self._limits.dead_after_s:g} s")
        return frames
