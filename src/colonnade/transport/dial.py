"""The dialling side: reaching a peer, for a new session or to go on with a lost one."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

from colonnade.errors import TransportError, UsageError
from colonnade.transport.frames import FrameSocket, cause_text
from colonnade.transport.handshake import Opening, open_session
from colonnade.transport.tls import Endpoint, address_text, as_dialler, explain_to_dialler

__all__ = ["Dialler", "UnreachableError"]

# Retries start quickly, because the usual cause is a peer that starts a moment later.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
# Several round trips on any network; then a fresh attempt is the better bet.
_ATTEMPT_S = 5.0


class UnreachableError(TransportError):
    """Nobody answered within the time."""


class Dialler:
    """Dials one pinned peer at one address."""

    def __init__(self, address: tuple[str, int], endpoint: Endpoint) -> None:
        if not 0 < address[1] < 65536:
            raise UsageError(f"got port {address[1]}; want one from 1 to 65535")
        self._address = address
        self._endpoint = endpoint
        self._peer = next(iter(endpoint.pins))

    def dial(
        self, opening: Opening, wait_s: float, given_up: Callable[[], bool] = lambda: False
    ) -> tuple[FrameSocket, int]:
        """Try for `wait_s` seconds; return the connection and what the peer has received.

        Raises
            UnreachableError: nobody answered, or `given_up` said to stop trying.
            TransportError: the wrong one answered (certificate, not TLS); not tried again.
            PeerError: the peer refused, or speaks another version; not tried again.
        """
        deadline = time.monotonic() + wait_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self._attempt(opening, deadline)
            except socket.gaierror as error:
                cause = f"cannot look up {self._address[0]!r}: {cause_text(error)}"
                if not opening.resume:  # a misspelt name stays misspelt
                    raise UnreachableError(f"{cause}; check the host name") from None
            except OSError as error:
                cause = cause_text(error)
            if deadline - time.monotonic() <= pause_s or given_up():
                raise UnreachableError(
                    f"{self._peer!r} does not answer at {address_text(self._address)} "
                    f"(tried for {wait_s:g} s, last: {cause}); check that it is running and "
                    f"listens there, that host and port are right, and the firewalls in between"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _attempt(self, opening: Opening, deadline: float) -> tuple[FrameSocket, int]:
        left = max(0.01, min(_ATTEMPT_S, deadline - time.monotonic()))
        deadline = time.monotonic() + left
        sock = socket.create_connection(self._address, timeout=left)
        connection = FrameSocket(as_dialler(sock, self._endpoint, self._address, deadline))
        try:
            received = open_session(connection, opening, deadline)
        except ssl.SSLError as error:
            connection.close()
            raise explain_to_dialler(error, self._endpoint, self._address) from None
        except BaseException:
            connection.close()
            raise
        return connection, received
