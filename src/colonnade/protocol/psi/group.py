"""The group of the intersection protocol: ristretto255 (prime order, RFC 9496) through libsodium.

Elements and scalars are 32-byte little-endian encodings. Many elements travel *packed*: one `bytes`
of 32 bytes each. libsodium's multiplication is constant-time in the scalar and rejects whatever is
no canonical encoding of an element other than the identity, so received elements are checked by
the multiplication itself; ctypes releases the GIL meanwhile, so threads of the caller scale.

The library is opened at the first use: the system's libsodium if it has the group, else the copy
that `rbcl` carries. Two hazards of `rbcl` shape the loader: its import writes a 2.8 MB library into
the temporary folder and leaves it there (removed here once it is open, where the system allows
that), and it fails where nothing may be executed from that folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import hashlib
import importlib
import os
import secrets
from collections.abc import Sequence

from colonnade.errors import PeerError, UsageError

__all__ = [
    "ELEMENT_BYTES",
    "GROUP_ORDER",
    "SCALAR_BYTES",
    "expand_message",
    "from_uniform_bytes",
    "hash_and_multiply_all",
    "hash_to_group",
    "is_valid",
    "multiply_all",
    "open_libsodium",
    "random_scalar",
]

ELEMENT_BYTES = 32
SCALAR_BYTES = 32
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493

_IDENTITY = bytes(ELEMENT_BYTES)
_UNIFORM_BYTES = 64  # two field elements' worth, RFC 9496 section 4.3.4
_HASH_BYTES = 64  # SHA-512 output
_HASH_BLOCK_BYTES = 128  # SHA-512 input block: the length of Z_pad

_PROTOTYPES = {
    "crypto_core_ristretto255_is_valid_point": 1,
    "crypto_core_ristretto255_from_hash": 2,
    "crypto_scalarmult_ristretto255": 3,
}


def open_libsodium() -> ctypes.CDLL:
    """Open and initialise libsodium: the system's if it has ristretto255, else the one of `rbcl`.

    Raises
        UsageError: neither can be used; says what to install or set.
    """
    library = _system_libsodium() or _bundled_libsodium()
    if library.sodium_init() < 0:
        raise UsageError("libsodium refuses to start: no usable source of randomness; want one")
    for name, arguments in _PROTOTYPES.items():
        getattr(library, name).argtypes = [ctypes.c_char_p] * arguments
    return library


def _system_libsodium() -> ctypes.CDLL | None:
    for name in ("sodium", "libsodium"):  # the second is the name on Windows
        path = ctypes.util.find_library(name)
        if path is None:
            continue
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            if all(hasattr(library, function) for function in _PROTOTYPES):
                return library
    return None


def _bundled_libsodium() -> ctypes.CDLL:
    try:
        bundle = importlib.import_module("rbcl._sodium")
        # Our own wrapper around its handle, since prototypes are set on the wrapper.
        library = ctypes.CDLL(bundle.lib_path, handle=bundle._sodium._handle)
    except (ImportError, OSError) as error:
        raise UsageError(
            f"got no usable libsodium ({error}); want the system's, 1.0.18 or newer, or the one of"
            " rbcl; install libsodium, or set TMPDIR to a folder that allows execution"
        ) from None
    with contextlib.suppress(OSError):  # Windows keeps an open library from being removed
        os.unlink(bundle.lib_path)
    return library


_library = functools.cache(open_libsodium)


def random_scalar() -> bytes:
    """A fresh secret scalar, uniform in 1 … order - 1, from the operating system."""
    return (1 + secrets.randbelow(GROUP_ORDER - 1)).to_bytes(SCALAR_BYTES, "little")


def is_valid(element: bytes) -> bool:
    """Whether `element` is 32 bytes, a canonical encoding, and not the identity."""
    return (
        len(element) == ELEMENT_BYTES
        and element != _IDENTITY  # which libsodium itself takes for a valid point
        and _library().crypto_core_ristretto255_is_valid_point(element) == 1
    )


def expand_message(message: bytes, dst: bytes, length: int) -> bytes:
    """Hash `message` to `length` uniform bytes under the domain separation tag `dst`.

    Raises
        UsageError: `dst` is not 1 … 255 bytes long, or `length` not 1 … 255 · 64.

    Source: RFC 9380, section 5.3.1, expand_message_xmd with SHA-512.
    """
    if not 0 < len(dst) < 256:
        raise UsageError(f"got a domain separation tag of {len(dst)} bytes; want 1 to 255")
    blocks = -(-length // _HASH_BYTES)
    if not 0 < blocks < 256:
        raise UsageError(f"got a length of {length} bytes; want 1 to {255 * _HASH_BYTES}")
    dst_prime = dst + bytes([len(dst)])
    head = bytes(_HASH_BLOCK_BYTES) + message + length.to_bytes(2, "big") + b"\0" + dst_prime
    b_0 = hashlib.sha512(head).digest()
    b_i = bytes(_HASH_BYTES)
    uniform = b""
    for i in range(1, blocks + 1):
        mixed = bytes(x ^ y for x, y in zip(b_0, b_i, strict=True)) if i > 1 else b_0
        b_i = hashlib.sha512(mixed + bytes([i]) + dst_prime).digest()
        uniform += b_i
    return uniform[:length]


def from_uniform_bytes(uniform: bytes) -> bytes:
    """Map 64 uniform bytes to a uniform element.

    Raises
        UsageError: `uniform` has another length.

    Source: RFC 9496, section 4.3.4.
    """
    if len(uniform) != _UNIFORM_BYTES:
        raise UsageError(f"got {len(uniform)} uniform bytes; want {_UNIFORM_BYTES}")
    element = ctypes.create_string_buffer(ELEMENT_BYTES)
    _library().crypto_core_ristretto255_from_hash(element, uniform)
    return element.raw


def hash_to_group(message: bytes, dst: bytes) -> bytes:
    """Hash `message` to an element whose discrete logarithm nobody knows.

    Source: RFC 9380, appendix B, hash_to_ristretto255 with expand_message_xmd and SHA-512.
    """
    return from_uniform_bytes(expand_message(message, dst, _UNIFORM_BYTES))


def multiply_all(scalar: bytes, elements: bytes) -> bytes:
    """Multiply every packed element by the secret `scalar`; the result is packed likewise.

    Raises
        PeerError: some element is no canonical encoding, or the identity; names its position.
        UsageError: `scalar` is not in 1 … order - 1.

    Cost: one multiplication (about 50-90 µs of one core) per element.
    """
    if len(scalar) != SCALAR_BYTES or not 0 < int.from_bytes(scalar, "little") < GROUP_ORDER:
        raise UsageError("got an unusable scalar; want 32 bytes, 1 to the group order - 1")
    if len(elements) % ELEMENT_BYTES:
        raise PeerError(
            f"got {len(elements)} bytes of group elements; want a multiple of {ELEMENT_BYTES}"
        )
    multiply = _library().crypto_scalarmult_ristretto255
    product = ctypes.create_string_buffer(ELEMENT_BYTES)
    products = bytearray()
    for start in range(0, len(elements), ELEMENT_BYTES):
        if multiply(product, scalar, elements[start : start + ELEMENT_BYTES]) != 0:
            raise PeerError(
                f"got bytes that are no usable group element at position {start // ELEMENT_BYTES};"
                " want a canonical ristretto255 encoding other than the identity"
            )
        products += product.raw
    return bytes(products)


def hash_and_multiply_all(scalar: bytes, dst: bytes, messages: Sequence[bytes]) -> bytes:
    """Hash every message to the group and multiply it by `scalar`; the result is packed.

    Cost: one hash (about 20 µs) and one multiplication per message.
    """
    return multiply_all(scalar, b"".join(hash_to_group(message, dst) for message in messages))
