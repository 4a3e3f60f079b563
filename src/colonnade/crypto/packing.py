"""Slot layouts: how many masked values share one plaintext, derived from declared bounds only.

With |value| <= 2^L a slot is w = L + sigma + 2 bits: the sender adds 2^L (so that every slot is
non-negative) and a uniform mask below 2^(L+1+sigma) to *every* slot, used or not. A row of
`columns` values takes `ciphertexts_per_row` ciphertexts; narrow rows are packed across rows before
they are sent, `rows_per_ciphertext` of them into one. `slots_limit=1` gives each value a ciphertext
of its own, which costs more and lets columns be moved about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.errors import PeerError, UsageError

__all__ = ["SlotLayout"]


@dataclass(frozen=True)
class SlotLayout:
    """Slots of one product's results. All fields are public and agreed by both parties.

    value_bits, mask_bits: L and sigma; columns: values a row; modulus_bits: the key's size;
    slots_limit: most values that share a plaintext, None for as many as fit.
    """

    value_bits: int
    mask_bits: int
    columns: int
    modulus_bits: int
    slots_limit: int | None = None

    def __post_init__(self) -> None:
        if self.slots_limit is not None and self.slots_limit < 1:
            raise UsageError(f"got a limit of {self.slots_limit} slots; want at least 1, or None")
        if self.columns < 1 or self.per_plaintext < 1:
            raise UsageError(
                f"got {self.columns} columns of {self.slot_bits}-bit slots; want at least one slot "
                f"within {self.modulus_bits - 1} bits: declare smaller ranges or a longer key"
            )

    @property
    def slot_bits(self) -> int:
        """Width of a slot: w = L + sigma + 2."""
        return self.value_bits + self.mask_bits + 2

    @property
    def mask_width_bits(self) -> int:
        """Masks are uniform below 2 to this."""
        return self.value_bits + 1 + self.mask_bits

    @property
    def offset(self) -> int:
        """2^L, added to every slot."""
        return 1 << self.value_bits

    @property
    def per_plaintext(self) -> int:
        """Slots a plaintext."""
        fitting = (self.modulus_bits - 1) // self.slot_bits
        return fitting if self.slots_limit is None else min(fitting, self.slots_limit)

    @property
    def ciphertexts_per_row(self) -> int:
        """Ciphertexts for one row of `columns` values."""
        return -(-self.columns // self.per_plaintext)

    @property
    def columns_per_ciphertext(self) -> int:
        """Values of one row in one of its ciphertexts."""
        return min(self.columns, self.per_plaintext)

    @property
    def rows_per_ciphertext(self) -> int:
        """Rows packed into one ciphertext before it is sent."""
        return max(1, self.per_plaintext // self.columns)

    @property
    def slots_used(self) -> int:
        """Slots of a sent ciphertext that receive a mask."""
        return self.columns_per_ciphertext * self.rows_per_ciphertext

    def packed_count(self, rows: int) -> int:
        """Ciphertexts that `rows` rows take after packing across rows."""
        return -(-rows // self.rows_per_ciphertext) * self.ciphertexts_per_row

    def encode_row(self, row: Sequence[int]) -> list[int]:
        """Signed values of one row -> plaintext integers (signed), one per ciphertext."""
        step = self.columns_per_ciphertext
        return [
            sum(value << (self.slot_bits * j) for j, value in enumerate(row[start : start + step]))
            for start in range(0, self.columns, step)
        ]

    def join(self, slots: Sequence[int]) -> int:
        """Non-negative slot values below 2^w -> one plaintext."""
        return sum(value << (self.slot_bits * j) for j, value in enumerate(slots))

    def split(self, plaintext: int) -> list[int]:
        """One plaintext -> its `slots_used` slot values.

        Raises
            PeerError: the plaintext has bits above the last slot, which no honest sender makes.
        """
        if plaintext >> (self.slot_bits * self.slots_used):
            raise PeerError("got a packed ciphertext with bits above its last slot")
        mask = (1 << self.slot_bits) - 1
        return [(plaintext >> (self.slot_bits * j)) & mask for j in range(self.slots_used)]

    def rows_from_slots(self, slots: Sequence[Sequence[int]], rows: int) -> list[int]:
        """Slot values of all packed ciphertexts -> values in row-major (rows, columns) order."""
        if self.ciphertexts_per_row == 1:
            flat = [value for plaintext in slots for value in plaintext]
            return flat[: rows * self.columns]
        per_row, out = self.ciphertexts_per_row, []
        for row in range(rows):
            joined = [v for part in slots[row * per_row : (row + 1) * per_row] for v in part]
            out.extend(joined[: self.columns])
        return out
