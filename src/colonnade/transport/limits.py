"""Every deadline and every bound of a session, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from colonnade.errors import UsageError

__all__ = ["TransportLimits"]


@dataclass(frozen=True)
class TransportLimits:
    """Deadlines in seconds and sizes in bytes of one party's sessions.

    connect_s: how long to dial a peer that is not there yet, or to wait for one to dial.
    receive_s: how long to wait for a message, or for room in the send buffer, unless told; it
        starts anew with every part of a message that arrives.
    reconnect_s: how long a lost connection may stay lost before the session is given up.
    dead_after_s: how long a connection may be silent (heartbeats included) before it is lost.
    max_message_bytes: longest message, checked before anything is allocated for it.
    send_buffer_bytes: sends wait while this much is unconfirmed (one message may exceed it).
    receive_buffer_bytes: the peer is held back while this much waits to be received.
    """

    connect_s: float = 20.0
    receive_s: float = 120.0
    reconnect_s: float = 15.0
    dead_after_s: float = 20.0
    max_message_bytes: int = 1 << 30
    send_buffer_bytes: int = 64 << 20
    receive_buffer_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value > 0 and math.isfinite(value)):
                raise UsageError(f"got {field.name} = {value}; want a positive, finite number")

    @property
    def heartbeat_s(self) -> float:
        """Pause after which a heartbeat is written: several fit into `dead_after_s`."""
        return self.dead_after_s / 4

    @property
    def handshake_s(self) -> float:
        """Longest time for one TLS and resume handshake on a connection that was accepted."""
        return min(self.connect_s, 10.0)
