"""A party's key pair and self-signed certificate: made, renewed and shown to people.

The certificate is exchanged once, as a file, and pinned by the other side; its fingerprint is
compared by telephone. Renewing replaces the file and nothing else: models and runs do not know it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import secrets
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.errors import UsageError
from colonnade.transport.identity import Certificate, Identity, read_certificate

__all__ = ["describe", "fingerprint", "make_identity", "renew_certificate"]

# Two years and a quarter: long enough to forget nothing, short enough to be practised.
_DAYS = 825
# The clocks of two organisations differ; a certificate made now must be valid on both.
_BACKDATE = dt.timedelta(days=1)
# Fits a common name (64 characters), a DNS label and a file name.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


def make_identity(
    name: str,
    directory: Path,
    *,
    days: int = _DAYS,
    key: ec.EllipticCurvePrivateKey | None = None,
    not_before: dt.datetime | None = None,
    not_after: dt.datetime | None = None,
) -> Identity:
    """Write `<name>.key.pem` (mode 0600) and `<name>.crt.pem` into `directory`.

    key: an existing P-256 key; by default a new one. The validity runs from a day ago for `days`
    days unless its ends are given (with time zone).

    Raises
        UsageError: the name is not usable, or one of the files exists already.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"got the party name {name!r}; want 1 to 63 of the characters A-Z a-z 0-9 _ -, "
            f"beginning and ending with a letter or digit"
        )
    identity = Identity(name, directory / f"{name}.crt.pem", directory / f"{name}.key.pem")
    for path in (identity.private_key, identity.certificate):
        if path.exists():
            raise UsageError(
                f"{path} exists and is not overwritten; renew the certificate with "
                f"'colonnade init --renew', or choose another folder"
            )
    key = key or ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(name, key, _validity(days, not_before, not_after))
    directory.mkdir(parents=True, exist_ok=True)
    _write(identity.private_key, _key_bytes(key), mode=0o600, replace=False)
    _write(identity.certificate, certificate, mode=0o644, replace=False)
    return identity


def renew_certificate(
    identity: Identity,
    *,
    days: int = _DAYS,
    new_key: bool = False,
    not_before: dt.datetime | None = None,
    not_after: dt.datetime | None = None,
) -> Identity:
    """Replace the certificate by one with a new validity, and the key as well if asked.

    Every peer must be sent the new file: its fingerprint changes even if the key stays. If this is
    interrupted between key and certificate, doing it again puts both right.

    Raises
        UsageError: the present certificate or key cannot be read, or is another party's.
    """
    present = read_certificate(identity.certificate)
    if present.name != identity.name:
        raise UsageError(
            f"{identity.certificate}: got the certificate of {present.name!r}; want that of "
            f"{identity.name!r}"
        )
    key = ec.generate_private_key(ec.SECP256R1()) if new_key else _read_key(identity.private_key)
    certificate = _self_signed(identity.name, key, _validity(days, not_before, not_after))
    if new_key:
        _write(identity.private_key, _key_bytes(key), mode=0o600, replace=True)
    _write(identity.certificate, certificate, mode=0o644, replace=True)
    return identity


def fingerprint(pem_path: Path) -> str:
    """SHA-256 of a certificate file, in groups of four digits for reading aloud.

    Raises
        UsageError: as `describe`.
    """
    return read_certificate(pem_path).fingerprint


def describe(pem_path: Path) -> Certificate:
    """Return name and validity of a certificate file; `str()` of it is a line for people.

    Raises
        UsageError: the file is missing, is not one PEM certificate, or holds a private key.
    """
    return read_certificate(pem_path)


def _validity(
    days: int, not_before: dt.datetime | None, not_after: dt.datetime | None
) -> tuple[dt.datetime, dt.datetime]:
    now = dt.datetime.now(dt.UTC)
    start = not_before or now - _BACKDATE
    end = not_after or max(start, now) + dt.timedelta(days=days)
    if end <= start:
        raise UsageError(f"got a validity from {start} to {end}; want it to end after it starts")
    return start, end


def _self_signed(
    name: str, key: ec.EllipticCurvePrivateKey, validity: tuple[dt.datetime, dt.datetime]
) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    public = key.public_key()
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    # A party listens in one job and dials in the next: both purposes.
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise UsageError(f"{path}: cannot read the private key ({error.strerror})") from None
    except (ValueError, TypeError):
        raise UsageError(f"{path}: got no readable, unencrypted PEM private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{path}: got a key of another kind; want an elliptic-curve key")
    return key


def _write(path: Path, data: bytes, *, mode: int, replace: bool) -> None:
    """Write a whole file or none; without `replace`, never over an existing one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)  # unlike a rename, refuses when `path` exists
    except FileExistsError:
        raise UsageError(f"{path} exists and is not overwritten") from None
    finally:
        draft.unlink(missing_ok=True)
