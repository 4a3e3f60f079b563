"""The group: RFC vectors, rejection of bad encodings, and the loader."""

import ctypes.util
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import PeerError, UsageError
from colonnade.protocol.psi import group

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "ristretto255.json").read_text(encoding="utf-8")
)
GENERATOR = bytes.fromhex(VECTORS["multiples_of_generator"]["encodings"][1])
BAD = [
    (reason, bytes.fromhex(encoding))
    for reason, encodings in VECTORS["bad_encodings"]["encodings"].items()
    for encoding in encodings
]


def scalar_of(value: int) -> bytes:
    return (value % group.GROUP_ORDER).to_bytes(32, "little")


@pytest.mark.parametrize("vector", VECTORS["expand_message"]["vectors"])
def test_expand_message_reproduces_rfc_9380(vector):
    dst = VECTORS["expand_message"]["dst"].encode()
    uniform = group.expand_message(vector["message"].encode(), dst, vector["length"])
    assert uniform.hex() == vector["uniform"]


def test_expand_message_refuses_impossible_lengths():
    for dst, length in [(b"", 64), (b"x" * 256, 64), (b"x", 0), (b"x", 255 * 64 + 1)]:
        with pytest.raises(UsageError):
            group.expand_message(b"m", dst, length)
    assert len(group.expand_message(b"m", b"x" * 255, 255 * 64)) == 255 * 64


def test_multiples_of_the_generator_reproduce_rfc_9496():
    for factor, encoding in enumerate(VECTORS["multiples_of_generator"]["encodings"]):
        if factor:
            assert group.multiply_all(scalar_of(factor), GENERATOR).hex() == encoding
            assert group.is_valid(bytes.fromhex(encoding))


@pytest.mark.parametrize(("reason", "encoding"), BAD)
def test_bad_encodings_of_rfc_9496_are_rejected(reason, encoding):
    assert not group.is_valid(encoding)
    with pytest.raises(PeerError, match="position 1"):
        group.multiply_all(scalar_of(5), GENERATOR + encoding + GENERATOR)


@pytest.mark.parametrize("vector", VECTORS["from_uniform_bytes"]["vectors"])
def test_element_derivation_reproduces_rfc_9496(vector):
    assert group.from_uniform_bytes(bytes.fromhex(vector["uniform"])).hex() == vector["element"]


@pytest.mark.parametrize("vector", VECTORS["oprf"]["vectors"])
def test_base_mode_oprf_reproduces_rfc_9497(vector):
    oprf = VECTORS["oprf"]
    key, blind = bytes.fromhex(oprf["secret_key"]), bytes.fromhex(oprf["blind"])
    message, dst = bytes.fromhex(vector["input"]), oprf["dst"].encode()
    blinded = group.hash_and_multiply_all(blind, dst, [message])
    assert blinded.hex() == vector["blinded"]
    assert group.multiply_all(key, blinded).hex() == vector["evaluated"]
    unblinded = group.multiply_all(key, group.hash_to_group(message, dst))
    parts = [len(part).to_bytes(2, "big") + part for part in (message, unblinded)]
    output = hashlib.sha512(b"".join(parts) + b"Finalize").hexdigest()
    assert output == vector["output"]


def test_the_identity_and_wrong_lengths_are_no_valid_elements():
    for encoding in (bytes(32), b"", GENERATOR[:31], GENERATOR + b"\0"):
        assert not group.is_valid(encoding)
    for encoding in (bytes(32), GENERATOR[:31], GENERATOR + b"\0"):
        with pytest.raises(PeerError):
            group.multiply_all(scalar_of(5), encoding)
    assert group.multiply_all(scalar_of(5), b"") == b""


@pytest.mark.parametrize(
    "scalar",
    [b"", bytes(32), bytes(31) + b"\x10" + b"\0", group.GROUP_ORDER.to_bytes(32, "little")],
)
def test_unusable_scalars_are_refused(scalar):
    with pytest.raises(UsageError, match="scalar"):
        group.multiply_all(scalar, GENERATOR)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.integers(1, group.GROUP_ORDER - 1), st.integers(1, group.GROUP_ORDER - 1), st.binary())
def test_masks_commute_and_compose(left, right, message):
    element = group.hash_to_group(message, b"test")
    once = group.multiply_all(scalar_of(left), element)
    twice = group.multiply_all(scalar_of(right), once)
    assert twice == group.multiply_all(
        scalar_of(left), group.multiply_all(scalar_of(right), element)
    )
    assert twice == group.multiply_all(scalar_of(left * right), element)
    assert group.multiply_all(scalar_of(pow(left, -1, group.GROUP_ORDER)), once) == element


def test_hashing_depends_on_message_and_tag():
    elements = {
        group.hash_to_group(message, dst)
        for message in (b"", b"a", b"b", b"a" * 65_536)
        for dst in (b"one", b"two")
    }
    assert len(elements) == 8


def test_random_scalars_are_fresh_and_in_range():
    scalars = {group.random_scalar() for _ in range(200)}
    assert len(scalars) == 200
    assert all(0 < int.from_bytes(scalar, "little") < group.GROUP_ORDER for scalar in scalars)


def test_chunks_may_be_multiplied_in_threads():
    chunks = [
        b"".join(group.hash_to_group(bytes([i, j]), b"test") for j in range(20)) for i in range(8)
    ]
    scalar = group.random_scalar()
    serial = [group.multiply_all(scalar, chunk) for chunk in chunks]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(group.multiply_all, [scalar] * 8, chunks)) == serial


_FALLBACK = """
import ctypes.util
ctypes.util.find_library = lambda name: None
from colonnade.protocol.psi import group
element = group.from_uniform_bytes(bytes.fromhex("{uniform}"))
assert element.hex() == "{element}", element.hex()
assert group.is_valid(group.multiply_all(group.random_scalar(), element))
"""


def test_the_bundled_library_is_used_without_the_systems_and_leaves_no_file(tmp_path):
    code = _FALLBACK.format(**VECTORS["from_uniform_bytes"]["vectors"][0])
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_importing_the_package_opens_no_library():
    code = "import sys, colonnade.protocol.psi; sys.exit('rbcl' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


def test_a_system_without_any_usable_library_is_told_what_to_do(monkeypatch):
    def refuse(name):
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(group.importlib, "import_module", refuse)
    with pytest.raises(UsageError, match="TMPDIR"):
        group.open_libsodium()


def test_a_system_library_without_the_group_is_passed_over(monkeypatch):
    libc = ctypes.util.find_library("c")
    if libc is None:
        pytest.skip("no C library to stand in for a libsodium without ristretto255")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: libc)
    assert group._system_libsodium() is None
    library = group.open_libsodium()  # falls back, and may do so again
    assert library.sodium_init() == group.open_libsodium().sodium_init() == 1
