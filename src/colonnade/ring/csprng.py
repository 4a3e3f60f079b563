"""Cryptographic randomness: ChaCha20 keystreams keyed by the operating system.

A stream is keyed fresh when it is made, re-keyed after a fork and after 1 GiB of output, and can
neither be stored nor resumed: what it produced is a mask for one value in one message, ever.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from colonnade.errors import UsageError
from colonnade.ring.fixed import encode_z128
from colonnade.ring.z128 import Z128

__all__ = ["Csprng", "Streams"]

# ChaCha20's block counter must not wrap (256 GiB); re-keying long before costs nothing.
_REKEY_BYTES = 1 << 30


class Csprng:
    """One stream of secret randomness. Make it with `from_os`; use it from one thread at a time."""

    def __init__(self, seed: bytes | None) -> None:
        self._seed = seed
        self._generation = 0
        self._rekey()

    @classmethod
    def from_os(cls) -> Csprng:
        """Make a stream keyed by the operating system's generator."""
        return cls(None)

    @classmethod
    def from_seed_for_tests(cls, seed: str) -> Csprng:
        """Make a reproducible stream: whoever knows `seed` knows every mask."""
        return cls(seed.encode())

    def __repr__(self) -> str:
        return "Csprng(<redacted>)"

    def __reduce__(self) -> str:
        raise UsageError("a stream of masks cannot be stored or copied")

    def _rekey(self) -> None:
        self._pid = os.getpid()
        if self._seed is None:
            key = os.urandom(32)
        else:
            key = hashlib.sha256(self._generation.to_bytes(8, "little") + self._seed).digest()
        self._generation += 1
        self._left = _REKEY_BYTES
        self._stream: CipherContext = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def bytes(self, count: int) -> bytes:
        """Return `count` uniform bytes."""
        if os.getpid() != self._pid or count > self._left:
            self._rekey()
        self._left -= count
        return self._stream.update(bytes(count))

    def uniform_bits(self, count: int, bits: int) -> NDArray[np.uint8]:
        """Draw `count` uniform integers below 2^bits as little-endian rows.

        Returns
            uint8 (count, ceil(bits / 8)).
        """
        width = (bits + 7) // 8
        rows = np.frombuffer(self.bytes(count * width), dtype=np.uint8).reshape(count, width)
        rows = rows.copy()
        if bits % 8:
            rows[:, -1] &= (1 << (bits % 8)) - 1
        return rows

    def integers_below(self, bound: int, count: int) -> list[int]:
        """Draw `count` uniform integers in [0, bound) by rejection."""
        bits = max(1, (bound - 1).bit_length())
        width = (bits + 7) // 8
        out: list[int] = []
        while len(out) < count:
            block = self.uniform_bits(count - len(out) + 1, bits).tobytes()
            for i in range(0, len(block), width):
                value = int.from_bytes(block[i : i + width], "little")
                if value < bound and len(out) < count:
                    out.append(value)
        return out

    def normal_z128(self, shape: tuple[int, ...], std: float, scale_bits: int) -> Z128:
        """Draw N(0, std²) at fixed-point scale `scale_bits` (Box-Muller on 53-bit uniforms)."""
        count = int(np.prod(shape, dtype=np.int64))
        raw = np.frombuffer(self.bytes(16 * count), dtype="<u8").reshape(2, count) >> np.uint64(11)
        uniform = (raw.astype(np.float64) + 0.5) * 2.0**-53
        radius = np.sqrt(-2.0 * np.log(uniform[0]))
        normal = radius * np.cos(2.0 * np.pi * uniform[1])
        return encode_z128((std * normal).reshape(shape), scale_bits, "initial weights")


@dataclass(frozen=True)
class Streams:
    """The independent secret streams of one party in one session.

    Masks are separate from encryption randomness, so that every engine draws the same masks from
    the same injected streams. What a background thread may draw (`peer_randomisers`) is a stream of
    its own: a stream serves one thread.
    """

    masks: Csprng
    weights: Csprng
    randomisers: Csprng
    peer_randomisers: Csprng

    @classmethod
    def from_os(cls) -> Streams:
        """Fresh streams, keyed by the operating system."""
        return cls(*(Csprng.from_os() for _ in range(4)))

    @classmethod
    def from_seed_for_tests(cls, seed: str) -> Streams:
        """Reproducible streams for tests; no secrecy."""
        return cls(
            *(
                Csprng.from_seed_for_tests(f"{seed}/{use}")
                for use in ("masks", "weights", "rand", "peer")
            )
        )
