"""The listening side: tells pinned peers from strangers, and new sessions from lost ones."""

from __future__ import annotations

import queue
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from colonnade.errors import ColonnadeError, PeerError, TransportError
from colonnade.transport.frames import FrameSocket, cause_text, linger
from colonnade.transport.handshake import Opening, accept_session, hear_opening, stop_frame
from colonnade.transport.identity import Identity, PinnedPeer
from colonnade.transport.limits import TransportLimits
from colonnade.transport.link import Link
from colonnade.transport.session import TlsChannel
from colonnade.transport.tls import (
    address_text,
    explain_to_listener,
    identify,
    load_endpoint,
    shake_hands,
    wrap,
)

__all__ = ["Listener"]

# A stranger may hold this many handshakes open, not more.
_MOST_HANDSHAKES = 16
# Sessions that the application has not taken yet.
_MOST_WAITING = 8
# Ended sessions are remembered so that a peer that missed our last confirmation can ask for it.
_MOST_REMEMBERED = 64


class Listener:
    """Listens at one address for sessions of pinned peers; use it as a context manager.

    Sessions outlive the listener, but can no longer be resumed once it is closed.
    """

    def __init__(
        self,
        address: tuple[str, int],
        identity: Identity,
        peers: Sequence[PinnedPeer],
        limits: TransportLimits | None = None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        """Start to listen; port 0 takes a free one.

        on_refused: is told, from a thread of the listener, about every connection that was turned
        away: who, why, and what to do. Connections that were turned away do not end the listener.

        Raises
            UsageError: a file of `identity` or `peers` is missing or wrong.
            TransportError: a certificate is outside its validity, or the address is not free.
        """
        self._limits = limits or TransportLimits()
        self._endpoint = load_endpoint(identity, peers, listens=True)
        self._on_refused = on_refused
        self._refusals: list[str] = []
        self._lock = threading.Lock()
        self._links: dict[bytes, Link] = {}
        self._waiting: queue.Queue[Link] = queue.Queue()
        # The connection of each handshake; None once it belongs to a session.
        self._handshakes: dict[threading.Thread, socket.socket | None] = {}
        self._closed = False
        self._address = address
        self._socket = _listen(address)
        self._alarm, self._bell = socket.socketpair()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f"colonnade listener {address_text(address)}"
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self._socket.getsockname()[1])

    def accept(self, timeout_s: float | None = None) -> TlsChannel:
        """Wait for a pinned peer to open a session (`connect_s` unless told otherwise).

        Raises
            TransportError: none came; quotes the last connection that was turned away, if any.
        """
        wait_s = self._limits.connect_s if timeout_s is None else timeout_s
        try:
            link = self._waiting.get(timeout=wait_s)
        except queue.Empty:
            names = " or ".join(repr(name) for name in self._endpoint.pins)
            if self._refusals:
                hint = f"the last connection was refused: {self._refusals[-1]}"
            else:
                hint = "nobody connected; check that it dials this host and port, and the firewalls"
            raise TransportError(
                f"no session from {names} at {address_text((self._address[0], self.port))} within "
                f"{wait_s:g} s; {hint}"
            ) from None
        return TlsChannel(link, self._limits)

    def close(self) -> None:
        """Stop listening; end handshakes and the sessions that nobody accepted. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            handshakes = dict(self._handshakes)
        self._alarm.send(b"!")
        self._thread.join()
        for thread, sock in handshakes.items():
            if sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
            thread.join()
        for link in self._links.values():
            link.forbid_resuming()
        with suppress(queue.Empty):
            while True:
                TlsChannel(self._waiting.get_nowait(), self._limits).abort(
                    "Stopped", f"{self._endpoint.name!r} stopped listening"
                )
        for sock in (self._socket, self._alarm, self._bell):
            sock.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._closed:
                for key, _ in selector.select():
                    if key.fileobj is self._socket:
                        self._admit()

    def _admit(self) -> None:
        """Take one TCP connection and hand it to a thread of its own."""
        try:
            sock, address = self._socket.accept()
        except OSError:  # it went away again, or descriptors are short for a moment
            time.sleep(0.01)
            return
        caller = address_text((str(address[0]), int(address[1])))
        with self._lock:
            if self._closed or len(self._handshakes) >= _MOST_HANDSHAKES:
                sock.close()
                return
            thread = threading.Thread(
                target=self._welcome, args=(sock, caller), daemon=True, name=f"colonnade {caller}"
            )
            self._handshakes[thread] = sock
            thread.start()

    def _welcome(self, sock: socket.socket, caller: str) -> None:
        """Shake hands with one caller; whatever goes wrong concerns only this connection."""
        deadline = time.monotonic() + self._limits.handshake_s
        connection: FrameSocket | None = None
        try:
            tls = wrap(sock, self._endpoint, listens=True)
            with self._lock:
                self._handshakes[threading.current_thread()] = tls
            connection = FrameSocket(tls)
            shake_hands(tls, deadline)
            peer = identify(tls, self._endpoint)
            self._open(connection, peer, hear_opening(connection, deadline), deadline)
        except OSError as error:
            self._refuse(caller, explain_to_listener(error, self._endpoint))
            if connection is not None:
                if isinstance(error, ssl.SSLError):
                    linger(tls)  # so that the alert that says why arrives
                connection.close()
        except ColonnadeError as error:
            self._refuse(caller, str(error))
            if connection is not None:
                connection.close(stop_frame(str(error)))
        finally:
            with self._lock:
                del self._handshakes[threading.current_thread()]

    def _open(self, connection: FrameSocket, peer: str, opening: Opening, deadline: float) -> None:
        """Route an identified peer's connection to its session, old or new."""
        with self._lock:
            if self._closed:
                raise TransportError(f"{self._endpoint.name!r} stopped listening")
            self._handshakes[threading.current_thread()] = None
            link = self._links.get(opening.session)
            if link is None:
                self._check_new(opening, peer)
                # Under the lock: the peer may lose this connection and be back at once.
                accept_session(connection, 0, deadline)
                link = Link((self._endpoint.name, peer), self._limits, connection, redial=None)
                self._links[opening.session] = link
                self._forget_old()
                self._waiting.put(link)
                return
        self._resume(link, connection, peer, opening, deadline)

    def _check_new(self, opening: Opening, peer: str) -> None:
        if opening.resume:
            raise PeerError(
                f"{self._endpoint.name!r} does not know the session that {peer!r} wants to resume "
                f"(it was restarted, and what it had buffered is lost); start again from the last "
                f"checkpoint on both sides"
            )
        if self._waiting.qsize() >= _MOST_WAITING:
            raise TransportError(
                f"{self._endpoint.name!r} has {_MOST_WAITING} sessions waiting; try again later"
            )

    def _resume(
        self, link: Link, connection: FrameSocket, peer: str, opening: Opening, deadline: float
    ) -> None:
        if link.remote != peer:
            raise PeerError(f"{peer!r} asked for a session of another peer")
        resumed = link.begin_resume()
        if resumed is not None:
            epoch, received = resumed
            accept_session(connection, received, deadline)
            link.attach(epoch, connection, opening.received)
        elif link.is_closed_by_peer:
            # The peer said its farewell and missed our confirmation of it: repeat that.
            accept_session(connection, link.received, deadline)
            connection.close()
        else:
            raise PeerError(f"this session is over: {link.fault or 'it was closed'}")

    def _forget_old(self) -> None:
        over = [session for session, link in self._links.items() if link.is_over]
        for session in over[: max(0, len(over) - _MOST_REMEMBERED)]:
            del self._links[session]

    def _refuse(self, caller: str, reason: str) -> None:
        text = f"refused a connection from {caller}: {reason}"
        self._refusals[:] = [text]
        if self._on_refused is not None and not self._closed:
            self._on_refused(text)


def _listen(address: tuple[str, int]) -> socket.socket:
    host, _ = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server(address, family=family)
    except (OSError, OverflowError) as error:
        cause = cause_text(error) if isinstance(error, OSError) else str(error)
        raise TransportError(
            f"cannot listen at {address_text(address)} ({cause}); want an address of this "
            f"machine and a free port; check for another process there"
        ) from None
    sock.setblocking(False)
    return sock
