"""Two parties with certificates on this machine, and the means to break what lies between them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from colonnade.errors import ColonnadeError
from colonnade.party.certificates import make_identity
from colonnade.transport import (
    Identity,
    Listener,
    PinnedPeer,
    TlsChannel,
    TransportLimits,
    connect,
)
from colonnade.wire import Message

HOST = "127.0.0.1"
QUICK = TransportLimits(connect_s=5, receive_s=5, reconnect_s=5, dead_after_s=5)


class Blob(Message, frozen=True, kw_only=True):
    TAG: ClassVar[str] = "test.blob/1"
    LEAKS: ClassVar[str] = "some bytes"

    data: bytes


class Other(Message, frozen=True, kw_only=True):
    TAG: ClassVar[str] = "test.other/1"
    LEAKS: ClassVar[str] = "nothing"


@dataclass
class Parties:
    """The label party listens, the feature party dials."""

    label: Identity
    feature: Identity
    refused: list[str] = field(default_factory=list)
    refused_event: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def make(cls, folder: Path) -> Parties:
        return cls(make_identity("label", folder), make_identity("feature", folder))

    def on_refused(self, text: str) -> None:
        self.refused.append(text)
        self.refused_event.set()

    def listen(self, limits: TransportLimits = QUICK, port: int = 0) -> Listener:
        peers = [PinnedPeer("feature", self.feature.certificate)]
        return Listener((HOST, port), self.label, peers, limits, self.on_refused)

    def dial(self, port: int, limits: TransportLimits = QUICK) -> TlsChannel:
        label = PinnedPeer("label", self.label.certificate)
        return connect((HOST, port), self.feature, label, limits)

    @contextlib.contextmanager
    def session(
        self, limits: TransportLimits = QUICK, listening_limits: TransportLimits | None = None
    ) -> Iterator[tuple[TlsChannel, TlsChannel]]:
        """Yield the dialling and the listening end of one session."""
        with self.listen(listening_limits or limits) as listener:
            dialled = self.dial(listener.port, limits)
            accepted = listener.accept()
            try:
                yield dialled, accepted
            finally:
                together(lambda: quietly_close(dialled), lambda: quietly_close(accepted))


def quietly_close(channel: TlsChannel) -> None:
    channel.abort("Stopped", "the test is over")


def together(*acts: Callable[[], object]) -> list[object]:
    """Run `acts` at once; return each result, or the error it raised."""
    results: list[object] = [None] * len(acts)

    def run(index: int) -> None:
        try:
            results[index] = acts[index]()
        except ColonnadeError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Relay:
    """A TCP relay in front of a port that can lose, freeze or refuse connections."""

    def __init__(self, port: int) -> None:
        self.accepts = True
        self.pause_s = 0.0
        self.bytes_until_cut: int | None = None
        self.connections = 0
        self._target = port
        self._server = socket.create_server((HOST, 0))
        self.port = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def freeze(self) -> None:
        """Keep the present connections open and forward nothing more on them."""
        with self._lock:
            for sock in self._pairs:
                self._selector.unregister(sock)

    def cut(self) -> None:
        """Close the present connections."""
        with self._lock:
            self._cut()

    def _cut(self) -> None:
        for sock in list(self._pairs):
            with contextlib.suppress(KeyError):
                self._selector.unregister(sock)
            sock.close()
        self._pairs.clear()

    def _run(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(0.02):
                with self._lock:
                    if key.fileobj is self._server:
                        self._connect()
                    elif key.fileobj in self._pairs:
                        self._forward(key.fileobj)

    def _connect(self) -> None:
        sock, _ = self._server.accept()
        if not self.accepts:
            sock.close()
            return
        self.connections += 1
        other = socket.create_connection((HOST, self._target))
        for one, two in ((sock, other), (other, sock)):
            self._pairs[one] = two
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, sock: socket.socket) -> None:
        time.sleep(self.pause_s)
        try:
            data = sock.recv(1 << 16)
            self._pairs[sock].sendall(data)
        except OSError:
            data = b""
        if self.bytes_until_cut is not None:
            self.bytes_until_cut -= len(data)
        if not data or (self.bytes_until_cut is not None and self.bytes_until_cut <= 0):
            for one in (sock, self._pairs.pop(sock)):
                self._pairs.pop(one, None)
                with contextlib.suppress(KeyError):
                    self._selector.unregister(one)
                one.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()
        self._cut()
        self._selector.close()
        self._server.close()
