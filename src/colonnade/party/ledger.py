"""The feature party's count of outputs per row: what label parties have been given so far.

Every scoring of a row gives the label party OUT equations in the row's features; at d_A outputs a
row they determine the features up to a rotation (design.md §7). The count is kept across jobs on
the same data, aborted runs and predictions. It is an upper bound: a job counts for all rows of the
file, and is counted before it starts, so that a run that breaks off is never forgotten.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from colonnade.errors import IntegrityError

__all__ = ["Ledger"]

_FILE = "ledger.json"


class _Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    outputs_per_row: dict[str, dict[str, Annotated[int, msgspec.Meta(ge=0)]]]


class Ledger:
    """Outputs per row by label party and data file, in `ledger.json` of the run folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    def count(self, label_party: str, data: str) -> int:
        """Outputs per row given to `label_party` from this file so far."""
        return self._read().outputs_per_row.get(label_party, {}).get(data, 0)

    def add(self, label_party: str, data: str, outputs: int) -> None:
        """Count `outputs` more per row, durably."""
        book = self._read().outputs_per_row
        files = book.setdefault(label_party, {})
        files[data] = files.get(data, 0) + outputs
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({"version": 1, "outputs_per_row": book}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)

    def _read(self) -> _Book:
        if not self._path.exists():
            return _Book(1, {})
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Book, strict=True)
        except msgspec.DecodeError as error:
            raise IntegrityError(
                f"{self._path} is damaged ({error}): restore it from a backup; without it the "
                "count of outputs per row is lost"
            ) from None
