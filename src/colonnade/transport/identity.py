"""Who a party is on the network: its certificate and key, and the certificates it has pinned."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from colonnade.errors import TransportError, UsageError

__all__ = ["Certificate", "Identity", "PinnedPeer", "check_valid_now", "read_certificate"]

# A certificate file is one to two kilobytes; something much larger is another file.
_LARGEST_FILE = 64 << 10


@dataclass(frozen=True)
class Identity:
    """A party as itself: name, certificate (PEM, public) and private key (PEM, secret)."""

    name: str
    certificate: Path
    private_key: Path = field(repr=False)


@dataclass(frozen=True)
class PinnedPeer:
    """A party we talk to and the one certificate (PEM) that it must show."""

    name: str
    certificate: Path


@dataclass(frozen=True)
class Certificate:
    """What a certificate file says."""

    path: Path
    name: str
    not_before: dt.datetime
    not_after: dt.datetime
    der: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in groups of four digits for reading aloud."""
        return fingerprint_of(self.der)

    def __str__(self) -> str:
        return (
            f"{self.name!r}, valid from {day(self.not_before)} to {day(self.not_after)}, "
            f"fingerprint {self.fingerprint}"
        )


def fingerprint_of(der: bytes) -> str:
    """SHA-256 of a certificate in groups of four digits."""
    digits = hashlib.sha256(der).hexdigest().upper()
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def day(moment: dt.datetime) -> str:
    """Show a moment to the minute."""
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def read_certificate(path: Path) -> Certificate:
    """Read the one certificate of a PEM file.

    Raises
        UsageError: the file is missing, is not one PEM certificate, or holds a private key.
    """
    want = "want a file with one PEM certificate, as 'colonnade init' writes it"
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{path}: got {path.stat().st_size} bytes; {want}")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot read the certificate ({error.strerror}); {want}"
        ) from None
    if b"PRIVATE KEY" in data:
        raise UsageError(f"{path}: got a private key; {want}; a private key never leaves its owner")
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise UsageError(f"{path}: got no readable certificate; {want}") from None
    if len(found) != 1:
        raise UsageError(f"{path}: got {len(found)} certificates; {want}")
    names = found[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Certificate(
        path=path,
        name=str(names[0].value) if names else "",
        not_before=found[0].not_valid_before_utc,
        not_after=found[0].not_valid_after_utc,
        der=found[0].public_bytes(Encoding.DER),
    )


def check_valid_now(certificate: Certificate, what: str, remedy: str) -> None:
    """Refuse a certificate outside its validity, before any connection is made.

    Raises
        TransportError: expired or not yet valid; `remedy` says what to do about either.
    """
    now = dt.datetime.now(dt.UTC)
    if now > certificate.not_after:
        raise TransportError(
            f"{what} ({certificate.path}) expired on {day(certificate.not_after)}; {remedy}"
        )
    if now < certificate.not_before:
        raise TransportError(
            f"{what} ({certificate.path}) is not valid before "
            f"{day(certificate.not_before)} and this clock says {day(now)}; "
            f"compare the clocks of both machines, or {remedy}"
        )
