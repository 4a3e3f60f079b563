"""Mutual TLS 1.3 in which the pinned certificates are the only ones that count.

Each side's trust store holds exactly the certificates it has pinned, and after the handshake the
peer's certificate must equal a pinned one byte for byte. Names in certificates are labels for
people; nothing is decided by them.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.errors import TransportError, UsageError
from colonnade.transport.identity import (
    Certificate,
    Identity,
    PinnedPeer,
    check_valid_now,
    day,
    fingerprint_of,
    read_certificate,
)

__all__ = [
    "Endpoint",
    "address_text",
    "as_dialler",
    "explain_to_dialler",
    "explain_to_listener",
    "identify",
    "load_endpoint",
    "shake_hands",
    "wrap",
]

# OpenSSL's verification results (x509_vfy.h).
_NOT_YET_VALID = 9
_EXPIRED = 10

_RENEW = "run 'colonnade init --renew' and send the new file to every peer"


@dataclass(frozen=True)
class Endpoint:
    """Our certificate, those it has pinned by peer name, and a TLS context for them."""

    name: str
    own: Certificate
    pins: dict[str, Certificate]
    context: ssl.SSLContext


def address_text(address: tuple[str, int]) -> str:
    """Show host and port."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def load_endpoint(identity: Identity, peers: Sequence[PinnedPeer], *, listens: bool) -> Endpoint:
    """Read and check every file before the first connection.

    Raises
        UsageError: a file is missing, unreadable, mixed up with another, or the key does not fit.
        TransportError: a certificate has expired or is not yet valid; says whose, and what to do.
    """
    own = read_certificate(identity.certificate)
    _check_name(own, identity.name, "this party")
    check_valid_now(own, "this party's own certificate", _RENEW)
    pins: dict[str, Certificate] = {}
    for peer in peers:
        pin = read_certificate(peer.certificate)
        _check_name(pin, peer.name, "the peer")
        if pin.der == own.der:
            raise UsageError(
                f"{peer.certificate}: got this party's own certificate pinned for {peer.name!r}; "
                f"want the file that {peer.name!r} sent"
            )
        if peer.name in pins:
            raise UsageError(f"got two pinned certificates for {peer.name!r}; want one")
        remedy = f"ask {peer.name!r} to run 'colonnade init --renew' and send the new file"
        check_valid_now(pin, f"the certificate of {peer.name!r}", remedy)
        pins[peer.name] = pin
    if not pins:
        raise UsageError("got no pinned peer; want at least one")
    return Endpoint(identity.name, own, pins, _context(identity, pins, listens=listens))


def _check_name(certificate: Certificate, name: str, whose: str) -> None:
    if certificate.name != name:
        raise UsageError(
            f"{certificate.path}: got a certificate made for {certificate.name!r}; want one for "
            f"{name!r} ({whose}); check that the files are not mixed up"
        )


def _context(identity: Identity, pins: dict[str, Certificate], *, listens: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the pin is stricter than any name
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    if listens:
        context.num_tickets = 0  # a resumed TLS session would skip the certificate check
    context.load_verify_locations(cadata=b"".join(pin.der for pin in pins.values()))
    try:
        # Without a password callback an encrypted key would ask on the terminal and hang.
        context.load_cert_chain(identity.certificate, identity.private_key, password=lambda: "")
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"{identity.private_key}: got no usable private key for {identity.certificate} "
            f"({error.strerror or error.args[-1]}); want the unencrypted PEM key that "
            f"'colonnade init' wrote beside it"
        ) from None
    return context


def as_dialler(
    sock: socket.socket, endpoint: Endpoint, address: tuple[str, int], deadline: float
) -> ssl.SSLSocket:
    """Shake hands on a fresh TCP connection to the one pinned peer; takes `sock` over.

    Raises
        TransportError: the peer is not who was pinned or does not speak TLS 1.3; says which.
        OSError: the connection failed; trying again may help.
    """
    name, pin = next(iter(endpoint.pins.items()))
    tls = wrap(sock, endpoint, listens=False)
    try:
        shake_hands(tls, deadline)
        shown = tls.getpeercert(binary_form=True)
        if shown != pin.der:
            raise _not_pinned(name, pin, address, shown)
    except ssl.SSLCertVerificationError as error:
        tls.close()
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            raise TransportError(
                f"the certificate of {name!r} is valid from {day(pin.not_before)} to "
                f"{day(pin.not_after)}, not now by this clock; compare the clocks, or ask "
                f"{name!r} to run 'colonnade init --renew' and send the new file"
            ) from None
        raise _not_pinned(name, pin, address, _presented(address, deadline)) from None
    except ssl.SSLError as error:
        tls.close()
        raise explain_to_dialler(error, endpoint, address) from None
    except BaseException:
        tls.close()
        raise
    return tls


def wrap(sock: socket.socket, endpoint: Endpoint, *, listens: bool) -> ssl.SSLSocket:
    """Put TLS on a connected socket, which it takes over; `shake_hands` comes next."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return endpoint.context.wrap_socket(
            sock, server_side=listens, do_handshake_on_connect=False
        )
    except BaseException:
        sock.close()
        raise


def shake_hands(tls: ssl.SSLSocket, deadline: float) -> None:
    """Do the TLS handshake before the monotonic time `deadline`."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    tls.settimeout(left)
    tls.do_handshake()


def identify(tls: ssl.SSLSocket, endpoint: Endpoint) -> str:
    """Listener: return the name of the peer whose pinned certificate was shown.

    Raises
        TransportError: it equals none, although OpenSSL accepted it.
    """
    shown = tls.getpeercert(binary_form=True)
    for name, pin in endpoint.pins.items():
        if shown == pin.der:
            return name
    raise TransportError(
        f"got a certificate (fingerprint {fingerprint_of(shown or b'')}) that is not a pinned one"
    )


def explain_to_dialler(
    error: ssl.SSLError, endpoint: Endpoint, address: tuple[str, int]
) -> OSError | TransportError:
    """Put a TLS failure of a dialled connection in words; an OSError if retrying may help.

    Also for the first read after the handshake, where TLS 1.3 tells that we were refused.
    """
    name, own, where = next(iter(endpoint.pins)), endpoint.own, address_text(address)
    reason = error.reason or ""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ConnectionResetError("the other side closed the connection")
    if "ALERT" in reason and "EXPIRED" in reason:
        return TransportError(
            f"{name!r} says that our certificate ({own.path}) has expired; here it is valid until "
            f"{day(own.not_after)}; compare the clocks of both machines, or {_RENEW}"
        )
    if "ALERT" in reason and ("CERT" in reason or "CA" in reason or "DECRYPT" in reason):
        return TransportError(
            f"{name!r} at {where} refused our certificate ({own.path}, fingerprint "
            f"{own.fingerprint}): it is not the one it has pinned for {endpoint.name!r}, or not "
            f"valid by its clock; send it this file and compare fingerprints and clocks"
        )
    if "PROTOCOL" in reason:
        return TransportError(f"{where} does not speak TLS 1.3; check host and port of {name!r}")
    return TransportError(
        f"{where} does not speak TLS as {name!r} does ({reason or error}); check host and port"
    )


def explain_to_listener(error: OSError, endpoint: Endpoint) -> str:
    """Put the failure of an accepted connection in words."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    names = ", ".join(repr(name) for name in endpoint.pins)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            return (
                f"its pinned certificate is outside its validity by this clock; ask the peer "
                f"({names}) to run 'colonnade init --renew' and send the new file"
            )
        return (
            f"its certificate is not the one pinned for {names} ({error.verify_message}); compare "
            f"fingerprints with the peer and ask for its current file"
        )
    if "DID_NOT_RETURN" in reason:
        return "it showed no certificate; want that of " + names
    if "ALERT" in reason and ("CERT" in reason or "CA" in reason or "DECRYPT" in reason):
        return (
            f"it refused our certificate (fingerprint {endpoint.own.fingerprint}); send "
            f"{endpoint.own.path} to {names} and compare fingerprints and clocks"
        )
    if isinstance(error, TimeoutError):
        return "it did not finish its handshake in time"
    if isinstance(error, (ssl.SSLEOFError, ConnectionError)):
        return "it closed the connection during the handshake"
    return f"it does not speak TLS 1.3 as {names} does ({reason or error})"


def _not_pinned(
    name: str, pin: Certificate, address: tuple[str, int], shown: bytes | None
) -> TransportError:
    seen = f"fingerprint {fingerprint_of(shown)}" if shown else "fingerprint unknown"
    return TransportError(
        f"the certificate presented at {address_text(address)} ({seen}) is not the one pinned for "
        f"{name!r} (fingerprint {pin.fingerprint}, {pin.path}); check host and port; if {name!r} "
        f"renewed its certificate, ask for the new file and compare fingerprints by telephone"
    )


def _presented(address: tuple[str, int], deadline: float) -> bytes | None:
    """Ask once more what certificate is shown there, for the error message only.

    Python does not hand out a certificate that failed verification. Nothing is sent on this
    connection and nothing read from it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        wait_s = max(0.1, min(2.0, deadline - time.monotonic()))
        with (
            socket.create_connection(address, timeout=wait_s) as sock,
            context.wrap_socket(sock) as tls,
        ):
            return tls.getpeercert(binary_form=True)
    except OSError:
        return None
