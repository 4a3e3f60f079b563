"""Key pairs and certificates: made, renewed, described; unusable files refused before dialling."""

import datetime as dt
import hashlib
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from colonnade.errors import TransportError, UsageError
from colonnade.party.certificates import describe, fingerprint, make_identity, renew_certificate
from colonnade.transport import Identity, PinnedPeer, TransportLimits
from colonnade.transport.tls import load_endpoint

NOW = dt.datetime.now(dt.UTC)
LONG_AGO = NOW - dt.timedelta(days=400)
YESTERDAY = NOW - dt.timedelta(days=1)
TOMORROW = NOW + dt.timedelta(days=1)


def test_the_certificate_is_what_the_documentation_says(tmp_path):
    identity = make_identity("bank", tmp_path / "new")
    certificate = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    assert certificate.public_key().curve.name == "secp256r1"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["bank"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    certificate.verify_directly_issued_by(certificate)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == dt.timedelta(826)
    assert stat.S_IMODE(identity.private_key.stat().st_mode) == 0o600
    assert [path.name for path in sorted(identity.certificate.parent.iterdir())] == [
        "bank.crt.pem",
        "bank.key.pem",
    ]


def test_the_fingerprint_is_sha256_in_groups(tmp_path):
    identity = make_identity("bank", tmp_path)
    der = x509.load_pem_x509_certificate(identity.certificate.read_bytes()).public_bytes(
        Encoding.DER
    )
    shown = fingerprint(identity.certificate)
    assert shown.replace(" ", "").lower() == hashlib.sha256(der).hexdigest()
    assert {len(group) for group in shown.split()} == {4}
    text = str(describe(identity.certificate))
    assert "'bank'" in text
    assert shown in text
    assert "key.pem" not in repr(identity)


def test_nothing_is_overwritten(tmp_path):
    identity = make_identity("bank", tmp_path)
    before = identity.private_key.read_bytes(), identity.certificate.read_bytes()
    with pytest.raises(UsageError, match=r"bank\.key\.pem exists"):
        make_identity("bank", tmp_path)
    identity.private_key.unlink()
    with pytest.raises(UsageError, match=r"bank\.crt\.pem exists"):
        make_identity("bank", tmp_path)
    assert not identity.private_key.exists()
    assert identity.certificate.read_bytes() == before[1]


@pytest.mark.parametrize("name", ["", "../x", "a b", "-a", "a" * 64, "é"])
def test_unusable_names_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match="party name"):
        make_identity(name, tmp_path)


@pytest.mark.parametrize("new_key", [False, True])
def test_renewing_replaces_the_certificate_and_only_if_asked_the_key(tmp_path, new_key):
    identity = make_identity("bank", tmp_path, not_before=LONG_AGO, not_after=YESTERDAY)
    key, old = identity.private_key.read_bytes(), fingerprint(identity.certificate)
    assert renew_certificate(identity, days=10, new_key=new_key) == identity
    assert (identity.private_key.read_bytes() != key) == new_key
    assert fingerprint(identity.certificate) != old
    assert describe(identity.certificate).not_after > NOW
    assert stat.S_IMODE(identity.private_key.stat().st_mode) == 0o600
    peer = make_identity("shop", tmp_path)
    load_endpoint(identity, [PinnedPeer("shop", peer.certificate)], listens=True)


def endpoint(identity, peer, pinned_as="shop"):
    return load_endpoint(identity, [PinnedPeer(pinned_as, peer)], listens=False)


@pytest.mark.parametrize(
    ("start", "end", "what"),
    [
        (LONG_AGO, YESTERDAY, "expired on"),
        (TOMORROW, TOMORROW + dt.timedelta(9), "not valid before"),
    ],
)
def test_validity_is_checked_before_anything_is_dialled(tmp_path, start, end, what):
    bad = make_identity("bank", tmp_path, not_before=start, not_after=end)
    good = make_identity("shop", tmp_path)
    with pytest.raises(TransportError, match=f"own certificate .*{what}.*init --renew"):
        endpoint(bad, good.certificate)
    with pytest.raises(TransportError, match=f"the certificate of 'bank' .*{what}.*ask 'bank'"):
        endpoint(good, bad.certificate, "bank")


def test_mixed_up_files_are_named(tmp_path):
    bank, shop = make_identity("bank", tmp_path), make_identity("shop", tmp_path)
    with pytest.raises(UsageError, match=r"private key; want .* never leaves"):
        endpoint(bank, shop.private_key)
    with pytest.raises(UsageError, match="made for 'shop'; want one for 'mill'"):
        endpoint(bank, shop.certificate, "mill")
    with pytest.raises(UsageError, match="made for 'bank'; want one for 'shop'"):
        endpoint(Identity("shop", bank.certificate, bank.private_key), bank.certificate)
    with pytest.raises(UsageError, match="own certificate pinned"):
        endpoint(bank, bank.certificate, "bank")
    with pytest.raises(UsageError, match=r"shop\.key\.pem: got no usable private key"):
        endpoint(Identity("bank", bank.certificate, shop.private_key), shop.certificate)
    with pytest.raises(UsageError, match="no pinned peer"):
        load_endpoint(bank, [], listens=True)
    twice = [PinnedPeer("shop", shop.certificate)] * 2
    with pytest.raises(UsageError, match="two pinned certificates for 'shop'"):
        load_endpoint(bank, twice, listens=True)


def test_unreadable_files_are_named(tmp_path):
    bank, shop = make_identity("bank", tmp_path), make_identity("shop", tmp_path)
    file = tmp_path / "file.pem"
    with pytest.raises(UsageError, match=r"file\.pem: cannot read"):
        endpoint(bank, file)
    for content in (
        b"",
        b"nonsense",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=r"file\.pem: got no readable certificate"):
            endpoint(bank, file)
    file.write_bytes(shop.certificate.read_bytes() + bank.certificate.read_bytes())
    with pytest.raises(UsageError, match="got 2 certificates"):
        endpoint(bank, file)
    file.write_bytes(bytes(100_000))
    with pytest.raises(UsageError, match="100000 bytes"):
        endpoint(bank, file)


def test_an_encrypted_key_is_refused_and_does_not_ask_for_a_password(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    bank, shop = make_identity("bank", tmp_path, key=key), make_identity("shop", tmp_path)
    bank.private_key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(UsageError, match="want the unencrypted PEM key"):
        endpoint(bank, shop.certificate)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_are_positive_and_finite(value):
    with pytest.raises(UsageError, match="receive_s"):
        TransportLimits(receive_s=value)
