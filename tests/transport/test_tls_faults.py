"""The wrong port, party, time or version: both sides say so, quickly."""

import contextlib
import datetime as dt
import os
import re
import socket
import ssl
import threading
import time

import pytest
from tls_parties import HOST, QUICK, Blob, Parties, Relay, together

from colonnade.errors import PeerError, TransportError, UsageError
from colonnade.party.certificates import fingerprint, make_identity, renew_certificate
from colonnade.transport import Identity, Listener, PinnedPeer, TransportLimits, connect
from colonnade.transport import handshake as handshake_module
from colonnade.transport import tls as tls_module
from colonnade.transport.frames import Frame, FrameSocket, Kind

NOW = dt.datetime.now(dt.UTC)
IMPATIENT = TransportLimits(connect_s=0.6, receive_s=2, reconnect_s=2, dead_after_s=2)


@pytest.fixture(autouse=True)
def _everything_ends_within_seconds():
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 10


def refused_dial(parties, port, limits=QUICK):
    """Dial and return the error's text."""
    with pytest.raises((TransportError, PeerError)) as caught:
        parties.dial(port, limits).close()
    return str(caught.value)


def refusal(parties):
    assert parties.refused_event.wait(5)
    return parties.refused[0]


@contextlib.contextmanager
def server(behave):
    """Run `behave(socket)` for each connection to the yielded port."""
    with socket.create_server((HOST, 0)) as sock:
        stopped = threading.Event()

        def run():
            sock.settimeout(0.05)
            while not stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    accepted, _ = sock.accept()
                    with contextlib.suppress(OSError), accepted:
                        accepted.settimeout(3)
                        behave(accepted)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield sock.getsockname()[1]
        finally:
            stopped.set()
            thread.join()


def unused_port():
    with socket.create_server((HOST, 0)) as sock:
        return sock.getsockname()[1]


# Nobody, or somebody else.


def test_nobody_listens(parties):
    port = unused_port()
    start = time.monotonic()
    text = refused_dial(parties, port, IMPATIENT)
    assert f"'label' does not answer at {HOST}:{port}" in text
    assert "Connection refused" in text
    assert "check that it is running" in text
    assert time.monotonic() - start < 3


def test_either_side_may_start_first(parties):
    port = unused_port()

    def listen_late():
        time.sleep(0.3)
        with parties.listen(port=port) as listener, listener.accept() as channel:
            return channel.receive(Blob).data

    def dial_early():
        with parties.dial(port) as channel:
            channel.send(Blob(data=b"early"))

    assert together(listen_late, dial_early) == [b"early", None]


def test_the_host_name_is_wrong(parties):
    peer = PinnedPeer("label", parties.label.certificate)
    with pytest.raises(TransportError, match=r"look up 'no-such-host\.invalid'.*check the host"):
        connect(("no-such-host.invalid", 1234), parties.feature, peer, QUICK)
    with pytest.raises(UsageError, match="port 0"):
        connect((HOST, 0), parties.feature, peer, QUICK)


def test_the_port_belongs_to_a_service_without_tls(parties):
    with server(lambda sock: (sock.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), sock.recv(999))) as port:
        text = refused_dial(parties, port)
    assert f"{HOST}:{port} does not speak TLS" in text
    assert "check host and port" in text


def test_the_port_belongs_to_a_service_that_says_nothing(parties):
    with server(lambda sock: time.sleep(0.8)) as port:
        text = refused_dial(parties, port, IMPATIENT)
    assert "does not answer" in text
    assert "timed out" in text


def test_the_port_belongs_to_a_service_that_hangs_up(parties):
    with server(lambda sock: None) as port:
        text = refused_dial(parties, port, IMPATIENT)
    assert "does not answer" in text


@pytest.mark.parametrize("listens", [False, True])
def test_the_other_side_speaks_an_older_tls(parties, listens):
    kind = ssl.PROTOCOL_TLS_CLIENT if listens else ssl.PROTOCOL_TLS_SERVER
    old = ssl.SSLContext(kind)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.load_cert_chain(parties.label.certificate, parties.label.private_key)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    if listens:
        with parties.listen() as listener:
            with (
                socket.create_connection((HOST, listener.port)) as sock,
                pytest.raises(OSError, match=r"(?i)version|reset|eof"),
            ):
                old.wrap_socket(sock)
            assert "does not speak TLS 1.3" in refusal(parties)
    else:

        def behave(sock):
            with old.wrap_socket(sock, server_side=True):
                pass

        with server(behave) as port:
            assert "does not speak TLS 1.3" in refused_dial(parties, port)


def test_the_address_is_taken_or_not_ours(parties):
    with parties.listen() as listener, pytest.raises(TransportError, match=r"in use.*free port"):
        parties.listen(port=listener.port)
    peers = [PinnedPeer("feature", parties.feature.certificate)]
    with pytest.raises(TransportError, match="cannot listen at"):
        Listener(("192.0.2.1", 0), parties.label, peers)


def test_nobody_dials(parties):
    with parties.listen() as listener:
        with pytest.raises(TransportError, match=r"no session from 'feature' at .*nobody conn"):
            listener.accept(timeout_s=0.1)
        with socket.create_connection((HOST, listener.port)) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert "does not speak TLS" in refusal(parties)
        with pytest.raises(TransportError, match=r"last connection was refused: .*speak TLS"):
            listener.accept(timeout_s=0.1)


# The wrong certificate.


def stranger(parties, tmp_path, name):
    """The parties, but `name` has another identity that the other side has not pinned."""
    other = make_identity(name, tmp_path / "stranger")
    if name == "label":
        return Parties(other, parties.feature)
    return Parties(parties.label, other)


def test_the_listener_is_not_who_was_pinned(parties, tmp_path):
    false = stranger(parties, tmp_path, "label")
    with false.listen() as listener:
        text = refused_dial(parties, listener.port)
        assert "is not the one pinned for 'label'" in text
        assert fingerprint(false.label.certificate) in text
        assert fingerprint(parties.label.certificate) in text
        assert "it refused our certificate" in refusal(false)


def test_the_dialler_is_not_who_was_pinned(parties, tmp_path):
    false = stranger(parties, tmp_path, "feature")
    with parties.listen() as listener:
        text = refused_dial(false, listener.port)
        assert "'label'" in text
        assert "refused our certificate" in text
        assert fingerprint(false.feature.certificate) in text
        assert "compare fingerprints" in text
        assert "is not the one pinned for 'feature'" in refusal(parties)
        # The listener is still there for the right one.
        with parties.dial(listener.port) as dialled, listener.accept() as accepted:
            dialled.send(Blob(data=b"x"))
            assert accepted.receive(Blob).data == b"x"


@pytest.mark.parametrize("new_key", [False, True])
@pytest.mark.parametrize("renewed", ["label", "feature"])
def test_a_renewed_certificate_must_be_pinned_anew(parties, tmp_path, renewed, new_key):
    pinned = tmp_path / "pinned.pem"
    identity = getattr(parties, renewed)
    pinned.write_bytes(identity.certificate.read_bytes())
    renew_certificate(identity, new_key=new_key)
    old = Identity(renewed, pinned, identity.private_key)
    if renewed == "label":
        dialling, listening = Parties(old, parties.feature), parties
    else:
        dialling, listening = parties, Parties(parties.label, old)
    with listening.listen() as listener:
        text = refused_dial(dialling, listener.port)
        assert "is not the one pinned" in text if renewed == "label" else "refused our" in text
        assert refusal(listening)
    with parties.session() as (dialled, accepted):
        dialled.send(Blob(data=b"x"))
        assert accepted.receive(Blob).data == b"x"


def test_a_caller_without_a_certificate_is_refused(parties):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with parties.listen() as listener:
        sock = socket.create_connection((HOST, listener.port))
        with (
            context.wrap_socket(sock) as caller,
            pytest.raises(OSError, match=r"(?i)certificate.required"),
        ):
            caller.recv(1)
        assert "showed no certificate" in refusal(parties)


EXPIRED = (NOW - dt.timedelta(days=30), NOW - dt.timedelta(days=1))
FUTURE = (NOW + dt.timedelta(days=1), NOW + dt.timedelta(days=30))


@pytest.mark.parametrize("whose", ["label", "feature"])
@pytest.mark.parametrize(
    ("validity", "what"),
    [(EXPIRED, "expired on"), (FUTURE, "not valid bef")],
    ids=["expired", "future"],
)
def test_validity_is_checked_before_the_first_connection(tmp_path, whose, validity, what):
    start, end = validity
    made = {
        name: make_identity(
            name, tmp_path, **({"not_before": start, "not_after": end} if name == whose else {})
        )
        for name in ("label", "feature")
    }
    parties = Parties(made["label"], made["feature"])
    with pytest.raises(TransportError, match=f"{what}.*init --renew"):
        parties.listen()
    with pytest.raises(TransportError, match=f"{what}.*init --renew"):
        parties.dial(1)


@pytest.mark.parametrize("whose", ["label", "feature"])
@pytest.mark.parametrize("validity", [EXPIRED, FUTURE], ids=["expired", "future"])
def test_validity_is_checked_again_at_every_handshake(tmp_path, monkeypatch, whose, validity):
    # As if the certificate had expired since the start, or the other side's clock were wrong.
    monkeypatch.setattr(tls_module, "check_valid_now", lambda *_: None)
    start, end = validity
    made = {
        name: make_identity(
            name, tmp_path, **({"not_before": start, "not_after": end} if name == whose else {})
        )
        for name in ("label", "feature")
    }
    parties = Parties(made["label"], made["feature"])
    with parties.listen() as listener:
        text = refused_dial(parties, listener.port)
        heard = refusal(parties)
    if whose == "label":
        assert "certificate of 'label'" in text
        assert "not now by this clock" in text
        assert "it refused our certificate" in heard
    else:
        assert ("has expired" if validity == EXPIRED else "refused our certificate") in text
        assert "clock" in text
        assert "outside its validity" in heard


# The wrong version, and nonsense.


def test_the_dialler_refuses_another_transport_version_and_says_so(parties, monkeypatch):
    def newer(connection, deadline):
        payload = handshake_module._GREETING.pack(b"colonnade", 7)
        connection.send(Frame(Kind.GREETING, payload).encode(), deadline)
        return handshake_module._expect(connection, Kind.OPEN, deadline)

    monkeypatch.setattr("colonnade.transport.listener.hear_opening", newer)
    with parties.listen() as listener:
        text = refused_dial(parties, listener.port)
        assert "version 7" in text
        assert "install the same release" in text
        assert "version 7" in refusal(parties)


@contextlib.contextmanager
def raw_caller(parties, port):
    """A caller with the right certificate that then does as it likes."""
    label = PinnedPeer("label", parties.label.certificate)
    endpoint = tls_module.load_endpoint(parties.feature, [label], listens=False)
    deadline = time.monotonic() + 5
    sock = socket.create_connection((HOST, port))
    connection = FrameSocket(tls_module.as_dialler(sock, endpoint, (HOST, port), deadline))
    try:
        yield connection, deadline
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("nonsense", "what"),
    [
        (b"GET / HTTP/1.1\r\n" * 3, "unknown kind 71"),
        (Frame(Kind.OPEN, b"short").encode(), "opening of 5 bytes; want 17"),
        (Frame(Kind.DATA, b"x").encode(), "got a DATA frame; want OPEN"),
    ],
    ids=["http", "short", "wrong kind"],
)
def test_an_authenticated_caller_that_talks_nonsense_is_told(parties, nonsense, what):
    with parties.listen() as listener, raw_caller(parties, listener.port) as (caller, deadline):
        assert caller.next_frame(deadline).kind is Kind.GREETING
        caller.send(nonsense, deadline)
        stop = caller.next_frame(deadline)
        assert stop.kind is Kind.STOP
        assert what in stop.payload.decode()
        assert what in refusal(parties)


def test_a_caller_that_stalls_is_dropped_and_does_not_block_others(parties):
    with parties.listen(IMPATIENT) as listener, socket.create_connection((HOST, listener.port)):
        with parties.dial(listener.port) as dialled, listener.accept() as accepted:
            dialled.send(Blob(data=b"x"))
            assert accepted.receive(Blob).data == b"x"
        assert "did not finish its handshake in time" in refusal(parties)


def test_random_bytes_do_not_end_the_listener(parties):
    with parties.listen(IMPATIENT) as listener:
        for size in (1, 5, 100, 20_000):
            with socket.create_connection((HOST, listener.port)) as sock:
                sock.sendall(os.urandom(size))
        with parties.dial(listener.port) as dialled, listener.accept() as accepted:
            accepted.send(Blob(data=b"alive"))
            assert dialled.receive(Blob).data == b"alive"


def test_several_peers_are_told_apart(parties, tmp_path):
    third = make_identity("insurer", tmp_path / "third")
    peers = [PinnedPeer(one.name, one.certificate) for one in (parties.feature, third)]
    with Listener((HOST, 0), parties.label, peers, QUICK) as listener:
        for identity in (third, parties.feature):
            dialling = Parties(parties.label, identity)
            with dialling.dial(listener.port) as dialled, listener.accept() as accepted:
                assert accepted.remote == identity.name == dialled.local
                assert dialled.remote == "label"


def test_a_session_of_another_peer_cannot_be_taken_over(parties, tmp_path):
    third = make_identity("insurer", tmp_path / "third")
    peers = [PinnedPeer(one.name, one.certificate) for one in (parties.feature, third)]
    session = b"0123456789abcdef"
    with (
        Listener((HOST, 0), parties.label, peers, QUICK, parties.on_refused) as listener,
        raw_caller(parties, listener.port) as (caller, deadline),
    ):
        opening = handshake_module.Opening(session, resume=False, received=0)
        assert handshake_module.open_session(caller, opening, deadline) == 0
        with raw_caller(Parties(parties.label, third), listener.port) as (thief, _):
            opening = handshake_module.Opening(session, resume=True, received=0)
            with pytest.raises(PeerError, match="session of another peer"):
                handshake_module.open_session(thief, opening, deadline)
        channel = listener.accept()
        channel.send(Blob(data=b"still yours"))
        assert b"still yours" in caller.next_frame(deadline).payload
        caller.send(Frame(Kind.ACK, sequence=1).encode(), deadline)
        caller.send(Frame(Kind.CLOSE, sequence=0).encode(), deadline)
        channel.close()


@pytest.mark.parametrize(
    ("nonsense", "what"),
    [
        (b"\xff" * 100, "unknown kind 255"),
        (Frame(Kind.DATA, b"x", sequence=4).encode(), "frame number 4; want number 0"),
        (Frame(Kind.ACK, sequence=9).encode(), "confirmation of 9 frames"),
        (Frame(Kind.OPEN, b"x" * 17).encode(), "OPEN frame in a running session"),
    ],
    ids=["garbage", "gap", "confirmation", "open"],
)
def test_nonsense_in_a_running_session_ends_it_on_both_sides(parties, nonsense, what):
    with parties.listen() as listener, raw_caller(parties, listener.port) as (caller, deadline):
        opening = handshake_module.Opening(b"0" * 16, resume=False, received=0)
        handshake_module.open_session(caller, opening, deadline)
        with listener.accept() as channel:
            caller.send(nonsense, deadline)
            with pytest.raises(PeerError, match=re.escape(what)):
                channel.receive(Blob)
            with pytest.raises(PeerError, match=re.escape(what)):
                channel.send(Blob(data=b"x"))
            while (frame := caller.next_frame(deadline)).kind is not Kind.STOP:
                assert frame.kind in (Kind.ACK, Kind.PING)
            assert what in frame.payload.decode()
            caller.close()


def test_reasons_from_the_peer_are_fit_for_a_terminal(parties):
    with parties.listen() as listener, raw_caller(parties, listener.port) as (caller, deadline):
        opening = handshake_module.Opening(b"0" * 16, resume=False, received=0)
        handshake_module.open_session(caller, opening, deadline)
        with listener.accept() as channel:
            caller.send(Frame(Kind.STOP, b"\x1b[2Jbad\xff").encode(), deadline)
            with pytest.raises(PeerError, match=r"'feature' ended the session: \?\[2Jbad"):
                channel.receive(Blob)


def test_connections_that_break_at_once_are_given_up(parties):
    limits = TransportLimits(connect_s=5, receive_s=5, reconnect_s=0.5, dead_after_s=5)
    with parties.listen(limits) as listener, Relay(listener.port) as relay:
        dialled = parties.dial(relay.port, limits)
        accepted = listener.accept()
        relay.bytes_until_cut = 0
        dialled.drop_connection_for_tests()
        with pytest.raises(TransportError, match="'label' is gone"):
            dialled.receive(Blob)
        with pytest.raises(TransportError, match="'feature' is gone"):
            accepted.receive(Blob)
        dialled.close()
        accepted.close()
