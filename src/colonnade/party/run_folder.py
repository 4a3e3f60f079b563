"""Run folders: what a run leaves on disk, finished whole or plainly marked as not finished.

A run works in `<run>.partial/`. `finish` writes a manifest with the SHA-256 of every file, brings
everything to the disk and renames the folder to `<run>/` in one step; a run that stops on an error
leaves `<run>.failed/` with `error.txt`. So a folder without suffix is complete, and a file that
changed or vanished since is noticed when it is read. Folders are for their owner only (0700, files
0600): model shares lie in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from colonnade.errors import ColonnadeError, StorageError, UsageError
from colonnade.party.parsing import RUN_NAME
from colonnade.party.progress import printable
from colonnade.party.storage import on_disk, sync_folder, write_whole

__all__ = ["ERROR", "FAILED", "RunEntry", "RunFolder", "list_runs"]

MANIFEST = "manifest.json"
ERROR = "error.txt"
PARTIAL = ".partial"
FAILED = ".failed"
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MANIFEST_FORMAT = 1


@dataclass(frozen=True)
class RunEntry:
    """One run found on disk."""

    run_id: str
    state: Literal["finished", "partial", "failed"]
    path: Path


class RunFolder:
    """The folder of one run; make one with `create`, read a finished one with `open`.

    As a context manager it finishes when the block ends and fails when the block raises.
    """

    def __init__(self, path: Path, run_id: str, manifest: Mapping[str, str] | None) -> None:
        self._path = path
        self._run_id = run_id
        self._manifest = manifest  # file -> SHA-256 once finished, None while being written
        self._failed = False

    @classmethod
    def create(cls, base: Path, run_id: str) -> RunFolder:
        """Start the run `run_id` in `<base>/<run_id>.partial/`.

        Raises
            UsageError: the id is not a usable name, or a run of that id exists in any state.
            StorageError: the folder cannot be made.
        """
        if re.fullmatch(RUN_NAME, run_id) is None:
            raise UsageError(f"got run id {run_id!r}; want letters, digits, hyphens, underscores")
        for suffix in ("", PARTIAL, FAILED):
            if (base / f"{run_id}{suffix}").exists():
                raise UsageError(
                    f"got run id {run_id!r}, but {base / (run_id + suffix)} exists; "
                    "want a new run; choose another id or move that folder away"
                )
        path = base / f"{run_id}{PARTIAL}"
        with on_disk(path):
            base.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        return cls(path, run_id, None)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a finished run for reading.

        Raises
            StorageError: there is no such finished run, its manifest is damaged, or a file that
                it lists is missing.
        """
        path = path.resolve()
        unfinished = [path.with_name(path.name + suffix) for suffix in (PARTIAL, FAILED)]
        beside = not path.exists() and any(folder.exists() for folder in unfinished)
        if beside or (path.suffix in (PARTIAL, FAILED) and path.exists()):
            raise StorageError(
                f"got {path}, a run that did not finish; want a finished run; see "
                f"{ERROR} in the folder ending in {FAILED} and start the run again"
            )
        manifest = _parse_manifest(_read(path / MANIFEST), path / MANIFEST)
        for name in manifest:
            if not (path / name).is_file():
                raise StorageError(f"{path / name} is missing; restore it from a backup")
        return cls(path, path.name, manifest)

    @property
    def path(self) -> Path:
        """Where the files are now; changes when the run finishes or fails."""
        return self._path

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    @property
    def finished(self) -> bool:
        """Whether the folder is complete and read-only."""
        return self._manifest is not None

    # --- writing -------------------------------------------------------------------------------

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write one file whole or not at all, readable by its owner only.

        Raises
            UsageError: the run is over, or `name` is not a plain file name.
            StorageError: the file system refuses; an older file of that name is unchanged.
        """
        if self.finished or self._failed:
            raise UsageError(f"got {name!r} for run {self._run_id!r}, which is over; want none")
        if _FILE_NAME.fullmatch(name) is None or name == MANIFEST:
            raise UsageError(f"got file name {name!r}; want letters, digits, dots, hyphens")
        write_whole(self._path / name, data)
        return self._path / name

    def write_text(self, name: str, text: str) -> Path:
        """Write a UTF-8 text file; see `write_bytes`."""
        return self.write_bytes(name, text.encode())

    def write_json(self, name: str, value: object) -> Path:
        """Write dicts with text keys, lists, text, finite numbers, booleans and None as JSON.

        Raises
            UsageError: anything else is in `value`; names where. See also `write_bytes`.
        """
        _check_plain(value, name)
        return self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_tensors(
        self, name: str, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Path:
        """Write arrays of numbers (any shape, little-endian on disk) and text about them.

        Raises
            UsageError: an array's dtype is not boolean, integer or float. See also `write_bytes`.
        """
        plain = {}
        for key, tensor in tensors.items():
            if tensor.dtype.kind not in "biuf":
                raise UsageError(f"{name}: got dtype {tensor.dtype} for {key!r}; want numbers")
            native = tensor.astype(tensor.dtype.newbyteorder("="), copy=False)
            plain[key] = np.ascontiguousarray(native).reshape(tensor.shape)
        return self.write_bytes(name, safetensors.numpy.save(plain, metadata=dict(metadata)))

    # --- ending --------------------------------------------------------------------------------

    def finish(self) -> Path:
        """Complete the run: manifest, fsync, and one rename. Returns the final folder.

        Raises
            UsageError: the run is over already.
            StorageError: the final folder appeared meanwhile, or the file system refuses.
        """
        if self.finished or self._failed:
            raise UsageError(f"run {self._run_id!r} is over already; finish it once")
        final = self._path.with_name(self._run_id)
        if final.exists():
            raise StorageError(f"{final} appeared while {self._path} was written; move it away")
        with on_disk(self._path):
            digests = self._digests()
        manifest = {"format": _MANIFEST_FORMAT, "sha256": digests}
        write_whole(self._path / MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
        self._rename(final)
        self._manifest = digests
        return final

    def fail(self, reason: str) -> Path:
        """Mark the run as failed: `error.txt` holds `reason`. Returns the `.failed` folder.

        Raises
            UsageError: the run is over already. StorageError: the file system refuses.
        """
        self.write_text(ERROR, printable(reason).rstrip("\n") + "\n")
        self._rename(self._path.with_name(self._run_id + FAILED))
        self._failed = True
        return self._path

    def _digests(self) -> dict[str, str]:
        """SHA-256 of every file, after all of them are on the disk."""
        digests = {}
        for file in sorted(path for path in self._path.rglob("*") if path.is_file()):
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                os.fsync(stream.fileno())
            digests[file.relative_to(self._path).as_posix()] = digest
        for folder in (path for path in self._path.rglob("*") if path.is_dir()):
            sync_folder(folder)
        return digests

    def _rename(self, target: Path) -> None:
        with on_disk(target):
            self._path.rename(target)
            sync_folder(target.parent)
        self._path = target

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.finished or self._failed:
            return
        if error is None:
            self.finish()
            return
        reason = "".join(traceback.format_exception(error))
        if isinstance(error, ColonnadeError):
            reason = f"{type(error).__name__}: {error}"
        elif isinstance(error, KeyboardInterrupt):
            reason = "stopped by the operator"
        # On a full disk the folder stays partial; the error that brought us here matters more.
        with contextlib.suppress(StorageError):
            self.fail(reason)

    # --- reading -------------------------------------------------------------------------------

    def read_bytes(self, name: str) -> bytes:
        """Read one file; in a finished run, exactly as it was when the run finished.

        Raises
            StorageError: the file is missing, not part of the run, or changed.
        """
        data = _read(self._path / name)
        if self._manifest is not None and self._manifest.get(name) != _digest(data):
            raise StorageError(
                f"{self._path / name} is not the file that this run wrote; restore it from a backup"
            )
        return data

    def read_text(self, name: str) -> str:
        """Read a UTF-8 text file; see `read_bytes`."""
        return self.read_bytes(name).decode()

    def read_json(self, name: str) -> Any:
        """Read a file of `write_json`.

        Raises
            StorageError: as `read_bytes`, or the file is not JSON.
        """
        return _parse_json(self.read_bytes(name), self._path / name)

    def read_tensors(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """Read a file of `write_tensors`: the arrays and the metadata.

        Raises
            StorageError: as `read_bytes`, or the file is not in safetensors format.
        """
        data = self.read_bytes(name)
        try:
            tensors = safetensors.numpy.load(data)
        except SafetensorError as error:
            raise StorageError(f"{self._path / name} is damaged: {error}") from None
        # The format: 8 bytes of length, that much JSON (checked by `load` just now), the arrays.
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return tensors, header.get("__metadata__", {})


def list_runs(base: Path) -> tuple[RunEntry, ...]:
    """All runs in `base`, by id; other folders are left out."""
    if not base.is_dir():
        return ()
    entries = []
    for path in sorted(path for path in base.iterdir() if path.is_dir()):
        if path.name.endswith(PARTIAL):
            entries.append(RunEntry(path.name.removesuffix(PARTIAL), "partial", path))
        elif path.name.endswith(FAILED):
            entries.append(RunEntry(path.name.removesuffix(FAILED), "failed", path))
        elif (path / MANIFEST).is_file():
            entries.append(RunEntry(path.name, "finished", path))
    return tuple(sorted(entries, key=lambda entry: entry.run_id))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}; want a file of a finished run"
        ) from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parse_json(data: bytes, path: Path) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is not JSON: {error}; restore it from a backup") from None


def _parse_manifest(data: bytes, path: Path) -> dict[str, str]:
    manifest = _parse_json(data, path)
    if not isinstance(manifest, dict) or manifest.get("format") != _MANIFEST_FORMAT:
        raise StorageError(f"{path} is not a manifest of format {_MANIFEST_FORMAT}")
    digests = manifest.get("sha256")
    if not isinstance(digests, dict) or not all(isinstance(d, str) for d in digests.values()):
        raise StorageError(f"{path} lists no digests; restore it from a backup")
    return digests


def _check_plain(value: object, place: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise UsageError(f"{place}: got key {key!r}; want text")
            _check_plain(item, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{place}[{index}]")
    elif type(value) is float:
        if not math.isfinite(value):
            raise UsageError(f"{place}: got {value}; want a finite number or None")
    elif value is not None and type(value) not in (str, int, bool):
        raise UsageError(f"{place}: got a {type(value).__name__}; want plain JSON types")
