"""Plain Python integers in and out of the compiled batches, for the tests of this folder."""

import math
import random

import pytest

from colonnade.native import Modulus, Residues, cpu_features

# What each kernel needs of the processor, slowest first.
NEEDS = {
    "portable": (),
    "adx": ("adx", "bmi2"),
    "avx2": ("avx2", "fma"),
    "ifma": ("avx512ifma",),
}
RUNNABLE = [kernel for kernel, needs in NEEDS.items() if all(cpu_features()[x] for x in needs)]
FASTEST = RUNNABLE[-1]
KERNELS = [*RUNNABLE, "ifma-emulated"]

# Those that compute on several numbers at a time, in limbs of 52 bits, and their blocks of limbs.
LANE_BLOCKS = {"avx2": 4, "ifma": 10, "ifma-emulated": 10}

# 64 and 65 bits leave three padded limbs; 1090 leaves two and a part; 8192 is the largest. Up to
# 206 and 518 bits the lanes' limbs need one block of 4 and of 10, from there on two.
SIZES = [64, 65, 206, 207, 512, 518, 519, 1024, 1090, 2048, 3072, 4096, 6144, 8192]

each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_size = pytest.mark.parametrize("bits", SIZES)


def odd_number(bits: int, seed: int = 0) -> int:
    return random.Random(bits * 1000 + seed).getrandbits(bits) | 1 << (bits - 1) | 1


def modulus_of(n: int, kernel: str | None = None) -> Modulus:
    return Modulus(n.to_bytes((n.bit_length() + 7) // 8, "little"), kernel=kernel)


def stored_bytes(n: int, kernel: str) -> int:
    """The memory that one number takes."""
    bits, limb_bits, block = n.bit_length(), 64, 4
    if kernel in LANE_BLOCKS:
        bits, limb_bits, block = bits + 2, 52, LANE_BLOCKS[kernel]
    return -(-bits // (limb_bits * block)) * block * 8


def batch(modulus: Modulus, numbers: list[int], threads: int = 1) -> Residues:
    data = b"".join(x.to_bytes(modulus.bytes, "little") for x in numbers)
    return modulus.from_bytes(data, threads)


def integers(residues: Residues) -> list[int]:
    data, width = residues.to_bytes(), residues.modulus.bytes
    assert len(data) == len(residues) * width
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]


def samples(n: int, count: int, seed: int = 0) -> list[int]:
    """Edge values, numbers with long runs of ones, then uniform ones."""
    rng = random.Random(seed)
    ones = (1 << (n.bit_length() - 1)) - 1
    edges = [0, 1, 2, n - 1, n - 2, n // 2, ones, ones ^ ((1 << 64) - 1)]
    return (edges + [rng.randrange(n) for _ in range(count)])[:count]


def units(n: int, count: int, seed: int = 0) -> list[int]:
    """Numbers that have an inverse, the first of them 1 and n - 1."""
    rng = random.Random(seed)
    found = [1, n - 1]
    while len(found) < count:
        x = rng.randrange(n)
        if math.gcd(x, n) == 1:
            found.append(x)
    return found[:count]
