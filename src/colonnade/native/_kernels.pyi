"""Types of the compiled module; `colonnade.native` says what the words mean.

Bytes are little-endian. Integer arrays are C-contiguous and of exactly the dtype named; anything
else is a `TypeError`. A value out of range, or numbers of two moduli, are a `ValueError`.
`threads` is at most how many threads share the work; 1 or less runs in the calling thread.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]
_Int64: TypeAlias = npt.NDArray[np.int64]

class Modulus:
    """An odd modulus n of 64 to 8192 bits, with its Montgomery constants.

    `kernel` overrides `selected_kernel()` for numbers of this modulus. Numbers of two kernels do
    not mix.
    """

    def __new__(cls, n: _Bytes, *, kernel: str | None = None) -> Modulus: ...
    @property
    def bits(self) -> int:
        """The bit length of n."""

    @property
    def bytes(self) -> int:
        """The bytes of one number, ceil(bits / 8)."""

    @property
    def kernel(self) -> str:
        """The name of the kernel that computes."""

    def from_bytes(self, data: _Bytes, threads: int = 1) -> Residues:
        """Numbers of `bytes` bytes each. Raises ValueError with the first that is not below n."""

    def ones(self, count: int) -> Residues:
        """`count` times the number one."""

class Residues:
    """An immutable batch of numbers modulo n, in a layout of the kernel's own."""

    def __len__(self) -> int: ...
    @property
    def modulus(self) -> Modulus: ...
    def to_bytes(self, threads: int = 1) -> bytes:
        """The numbers, each below n, in `modulus.bytes` bytes each."""

    def take(self, indices: _Int64) -> Residues:
        """The numbers at `indices`, 0 to len - 1, in that order; repeats are allowed."""

    @staticmethod
    def concat(parts: Sequence[Residues]) -> Residues:
        """One batch of all the parts' numbers; at least one part, all of one modulus."""

class FixedBaseTable:
    """Every window's powers of each base, so that a power needs no squarings.

    Holds bases * ceil(exponent_bits / window) * 2^window numbers, at most 1 GiB; `window` is 1 to
    12. Wiped when freed.
    """

    def __init__(
        self,
        modulus: Modulus,
        bases: Residues,
        exponent_bits: int,
        window: int,
        threads: int = 1,
    ) -> None: ...
    def __len__(self) -> int:
        """The number of bases."""

    @property
    def exponent_bits(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def power_secret(
        self, exponents: _Bytes, width: int, threads: int = 1, *, base: int = 0
    ) -> Residues:
        """Base `base` to each exponent of `width` bytes; neither time nor addresses tell them."""

    def power_vartime(
        self, exponents: _Bytes, width: int, threads: int = 1, *, base: int = 0
    ) -> Residues:
        """The same for exponents that may show in the timing."""

class ProductTable:
    """The powers 0 to 2^digit_bits - 1 of every base, for products of one power of each.

    Holds bases * 2^digit_bits numbers, at most 1 GiB; `digit_bits` is 1 to 8.
    """

    def __init__(
        self, modulus: Modulus, bases: Residues, digit_bits: int = 8, threads: int = 1
    ) -> None: ...
    def __len__(self) -> int:
        """The number of bases."""

    @property
    def memory_bytes(self) -> int: ...
    def products_vartime(self, digits: npt.NDArray[np.uint8], threads: int = 1) -> Residues:
        """For each row of `digits` (count x bases) the product of base_i^digit_i."""

def mul(a: Residues, b: Residues, threads: int = 1) -> Residues:
    """Elementwise product; a batch of one number meets every number of the other."""

def square_times(a: Residues, k: int, threads: int = 1) -> Residues:
    """a^(2^k)."""

def invert(a: Residues, threads: int = 1) -> Residues:
    """1/a, with one inversion for the batch; variable time in a.

    Raises ValueError with the first number that has no inverse.
    """

def horner_pack(a: Residues, group: int, shift: int, threads: int = 1) -> Residues:
    """For each run of `group` numbers the product of its j-th to the power 2^(shift * j).

    The last run may be shorter.
    """

def pow_secret(a: Residues, exponent: _Bytes, bits: int, threads: int = 1) -> Residues:
    """Every number to one secret exponent of at most `bits` bits, which are public.

    Neither time nor addresses depend on the exponent or on a.
    """

def pow_vartime(a: Residues, exponents: _Bytes, width: int, threads: int = 1) -> Residues:
    """a[i] to the i-th exponent of `width` bytes, or to the only one given."""

def multiexp_csr_vartime(
    bases: Residues,
    indptr: _Int64,
    indices: _Int64,
    values: _Int64,
    threads: int = 1,
    groups: int = 1,
    *,
    table_bytes: int = 64 << 20,
) -> Residues:
    """X @ bases in the exponent, X a CSR matrix of signed 64-bit integers.

    Base k stands for `groups` consecutive numbers. Result row i * groups + g is the product over
    the entries e of row i of bases[indices[e] * groups + g]^values[e]; an empty row gives ones.
    Tables of the bases' powers take at most `table_bytes`. Raises ValueError where a base with a
    negative value has no inverse.
    """

def cpu_features() -> dict[str, bool]:
    """Which of the instruction sets that kernels are written for this processor has."""

def selected_kernel() -> str:
    """The kernel in use: the one COLONNADE_KERNEL names, else the fastest that runs here."""
