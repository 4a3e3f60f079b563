"""Files of this party: written whole or not at all, for their owner only, and on the disk."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from colonnade.errors import StorageError

__all__ = ["locked", "on_disk", "sync_folder", "write_new", "write_whole"]


@contextlib.contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses inside into a `StorageError` that names `path`.

    Raises
        StorageError: instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot read or write {path}: {error.strerror or error}; see to the disk and to the "
            "permissions there"
        ) from error


def write_whole(path: Path, data: bytes) -> None:
    """Put a file with mode 0600 at `path`, in place of one that is there, and bring it to the disk.

    Raises
        StorageError: the file system refuses; what was at `path` is unchanged.
    """
    # Two processes never share a draft, and nobody else's file is taken for one.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with on_disk(path):
        try:
            _write_exclusively(draft, data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a file with mode 0600 that must not exist yet; after a failure it does not exist.

    Raises
        StorageError: it exists, or the file system refuses.
    """
    with on_disk(path):
        _write_exclusively(path, data)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk; a rename is lasting only then."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` (made where missing) against other processes and threads.

    On systems without advisory locks one process at a time must be seen to by the operator.

    Raises
        StorageError: the file system refuses.
    """
    with on_disk(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform != "win32":
            import fcntl

            with on_disk(path):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which releases the lock


def _write_exclusively(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
