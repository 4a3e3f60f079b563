"""The feature party's count of outputs per row: what each label party has been given so far.

Every scoring of a row gives the label party OUT equations in the row's features; at d_A outputs a
row they determine the features up to a rotation. The count is kept by *record*, for each label
party, across jobs, broken runs and predictions, whatever the file is called. It is added
durably before the first output leaves, so that a run that breaks off is never forgotten; several
services may count in one folder at the same time.

Records are filed under a keyed hash of their id; the key stays in the same file.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from colonnade.errors import StorageError
from colonnade.party.storage import locked, on_disk, write_whole

__all__ = ["Ledger"]

_KEY_BYTES = 32
_TAG_BYTES = 16
_VERSION = "colonnade-ledger/1"


class Ledger:
    """Outputs per record given to one label party, in `ledger-<party>.safetensors`.

    folder: this party's run folder; label_party: a checked party name.
    """

    def __init__(self, folder: Path, label_party: str) -> None:
        self._path = folder / f"ledger-{label_party}.safetensors"

    def counts(self, ids: Sequence[bytes]) -> NDArray[np.int64]:
        """Outputs given so far for each encoded id, int64 (ids,).

        Raises
            StorageError: the file is damaged or cannot be read.
        """
        key, tags, counts = self._read()
        return _look_up(tags, counts, _tags(key, ids))

    def add(self, ids: Sequence[bytes], outputs: NDArray[np.int64]) -> None:
        """Count `outputs[i]` more for the distinct `ids[i]`, durably.

        Raises
            StorageError: the file is damaged, which is then not overwritten, or cannot be written.
        """
        with on_disk(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.with_suffix(".lock")):
            key, tags, counts = self._read()
            new = _tags(key, ids)
            totals = _look_up(tags, counts, new) + outputs
            kept = ~np.isin(tags, new)
            self._write(
                key,
                np.concatenate([tags[kept], new]),
                np.concatenate([counts[kept], totals]),
            )

    def _read(self) -> tuple[bytes, NDArray[np.bytes_], NDArray[np.int64]]:
        if not self._path.exists():
            empty = np.zeros(0, f"S{_TAG_BYTES}")
            return secrets.token_bytes(_KEY_BYTES), empty, np.zeros(0, np.int64)
        try:
            with on_disk(self._path):
                data = self._path.read_bytes()
            found = safetensors.numpy.load(data)
            key, tags, counts = found["key"].tobytes(), found["tags"], found["counts"]
            if (
                len(key) != _KEY_BYTES
                or tags.dtype != np.uint8
                or tags.shape != (len(counts), _TAG_BYTES)
                or counts.dtype != np.int64
                or counts.ndim != 1
                or int(counts.min(initial=0)) < 0
            ):
                raise ValueError("its arrays do not fit together")
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise StorageError(
                f"{self._path} is damaged ({error}): restore it from a backup; without it the "
                "count of outputs per row is lost"
            ) from None
        return key, np.ascontiguousarray(tags).view(f"S{_TAG_BYTES}")[:, 0], counts

    def _write(self, key: bytes, tags: NDArray[np.bytes_], counts: NDArray[np.int64]) -> None:
        order = np.argsort(tags)
        rows = np.ascontiguousarray(tags[order]).view(np.uint8).reshape(-1, _TAG_BYTES)
        arrays: dict[str, NDArray[Any]] = {
            "key": np.frombuffer(key, np.uint8),
            "tags": rows,
            "counts": counts[order],
        }
        data = safetensors.numpy.save(arrays, metadata={"version": _VERSION})
        write_whole(self._path, data)


def _tags(key: bytes, ids: Sequence[bytes]) -> NDArray[np.bytes_]:
    """Keyed 128-bit hashes as fixed strings; equal length makes their order that of the bytes."""
    hashed = (hashlib.blake2b(i, digest_size=_TAG_BYTES, key=key).digest() for i in ids)
    return np.frombuffer(b"".join(hashed), f"S{_TAG_BYTES}")


def _look_up(
    tags: NDArray[np.bytes_], counts: NDArray[np.int64], wanted: NDArray[np.bytes_]
) -> NDArray[np.int64]:
    """Counts of `wanted` in the sorted `tags`, 0 where absent."""
    if not len(tags):
        return np.zeros(len(wanted), np.int64)
    place = np.minimum(np.searchsorted(tags, wanted), len(tags) - 1)
    return np.where(tags[place] == wanted, counts[place], 0)
