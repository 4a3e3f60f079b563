"""The key owner's encryption and decryption: bit for bit, and against another library."""

import phe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto import KeyOwner, generate_key
from colonnade.errors import PeerError
from colonnade.ring import Csprng
from paillier_by_hand import decrypt, encrypt, from_bytes, randomness, signed, small_key, to_bytes

QUICK = settings(derandomize=True, max_examples=25, deadline=None)
KEY = small_key(256)
HALF = KEY.public.n // 2
OWNER = KeyOwner(KEY, Csprng.from_os())
plaintexts = st.lists(
    st.sampled_from([0, 1, -1, HALF, -HALF]) | st.integers(-HALF, HALF), min_size=1, max_size=4
)


@QUICK
@given(plaintexts)
def test_encryption_opens_by_hand(values):
    sealed = OWNER.encrypt(values)
    assert sealed.count == len(values)
    numbers = from_bytes(KEY, sealed.data)
    assert [signed(KEY, decrypt(KEY, c)) for c in numbers] == values
    # The whole ciphertext is what its plaintext and its randomness say.
    again = [encrypt(KEY, m, randomness(KEY, c)) for m, c in zip(values, numbers, strict=True)]
    assert again == numbers


@QUICK
@given(plaintexts)
def test_decryption_opens_what_was_encrypted_by_hand(values):
    data = to_bytes(KEY, [encrypt(KEY, m) for m in values])
    got = OWNER.decrypt(data, len(values), "it")
    assert got == [m % KEY.public.n for m in values]


def check_against_phe(key, owner, values):
    """Each library opens what the other encrypted."""
    public = phe.PaillierPublicKey(key.public.n)
    private = phe.PaillierPrivateKey(public, key.p, key.q)
    theirs = to_bytes(key, [public.raw_encrypt(m % key.public.n) for m in values])
    assert owner.decrypt(theirs, len(values), "it") == [m % key.public.n for m in values]
    ours = from_bytes(key, owner.encrypt(values).data)
    assert [private.raw_decrypt(c) for c in ours] == [m % key.public.n for m in values]


@QUICK
@given(plaintexts)
def test_phe_and_this_library_open_each_others_ciphertexts(values):
    check_against_phe(KEY, OWNER, values)


@pytest.mark.real_keys
def test_phe_and_this_library_agree_at_the_default_size():
    key = generate_key()
    check_against_phe(key, KeyOwner(key, Csprng.from_os(), threads=2), [0, -1, 3**1000, -(2**2000)])


def test_sums_and_multiples_of_ciphertexts_open_to_sums_and_multiples():
    one, other = from_bytes(KEY, OWNER.encrypt([20, -7]).data)
    square = KEY.public.n_squared
    data = to_bytes(KEY, [one * other % square, pow(one, 3, square), pow(other, -2, square)])
    assert [signed(KEY, m) for m in OWNER.decrypt(data, 3, "it")] == [13, 60, 14]


def test_every_encryption_has_fresh_randomness():
    numbers = from_bytes(KEY, OWNER.encrypt([0] * 200).data)
    assert len({randomness(KEY, c) for c in numbers}) == 200
    assert 1 not in {randomness(KEY, c) for c in numbers}


def test_the_number_of_threads_changes_no_plaintext():
    owner = KeyOwner(KEY, Csprng.from_os(), threads=3)
    values = list(range(-5, 6))
    assert owner.decrypt(owner.encrypt(values).data, 11, "it") == [v % KEY.public.n for v in values]


def test_seeded_streams_give_the_same_ciphertexts_and_others_give_others():
    data = [KeyOwner(KEY, Csprng.from_seed_for_tests(s)).encrypt([1, 2]).data for s in "aab"]
    assert data[0] == data[1] != data[2]


def test_nothing_encrypts_and_decrypts_to_nothing():
    assert OWNER.encrypt([]).data == b""
    assert OWNER.decrypt(b"", 0, "it") == []


@pytest.mark.parametrize(
    "bad",
    [0, KEY.p, KEY.public.n, KEY.public.n_squared],
    ids=["zero", "a factor", "the modulus", "too large"],
)
def test_numbers_that_are_no_ciphertexts_are_not_decrypted(bad):
    with pytest.raises(PeerError, match="dW_A"):
        OWNER.decrypt(to_bytes(KEY, [encrypt(KEY, 1), bad]), 2, "dW_A")
    with pytest.raises(PeerError, match="bytes for dW_A"):
        OWNER.decrypt(b"\1", 1, "dW_A")


def test_a_repr_shows_no_key():
    assert repr(OWNER) == "KeyOwner(PublicKey(bits=256), <redacted>)"
