"""Read a file into a `Table`: CSV, Parquet or LIBSVM, plain or gzip-compressed.

CSV is read as text and interpreted later. It is read with the standard library's parser and not
with polars' because polars fills short rows with nulls without a word and cannot say on which
line a record stood; both matter more here than the last factor of speed.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, get_args

import numpy as np
import polars as pl

from colonnade.data.libsvm import parse_libsvm
from colonnade.data.table import Table
from colonnade.errors import DataError, UsageError

__all__ = ["FileFormat", "ReadOptions", "read_table"]

FileFormat = Literal["csv", "parquet", "libsvm"]

_SUFFIXES: Mapping[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".data": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".svm": "libsvm",
}
_SEPARATORS = (",", ";", "\t")
# Rows turned into columns at a time: bounds the memory that Python strings take.
_CHUNK_ROWS = 16384
_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class ReadOptions:
    """What a file does not say about itself.

    separator: between CSV fields; None finds `,`, `;` or tab from the header.
    columns: names for a CSV file without a header line; empty: the first record is the header.
    zero_based: LIBSVM indices start at 0 instead of 1.
    n_columns: LIBSVM width; None takes the largest index seen.
    """

    separator: str | None = None
    columns: tuple[str, ...] = ()
    zero_based: bool = False
    n_columns: int | None = None


def read_table(
    path: Path | str,
    *,
    format: FileFormat | None = None,  # noqa: A002 - the word that configurations have for it
    options: ReadOptions | None = None,
) -> Table:
    """Read one file; `format` None goes by the suffix (`.gz` is looked through).

    Raises
        UsageError: unknown format or suffix.
        DataError: the file is absent, unreadable or malformed; names file and line.
    """
    path, options = Path(path), options or ReadOptions()
    kind = format or _format_of(path)
    if kind not in get_args(FileFormat):
        raise UsageError(f"got format {kind!r} for {path.name}; want one of {_known_formats()}")
    try:
        if kind == "parquet":
            return _read_parquet(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            if kind == "libsvm":
                return parse_libsvm(
                    stream.read(),
                    path.name,
                    zero_based=options.zero_based,
                    n_columns=options.n_columns,
                )
            return _read_csv(stream, path.name, options)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _format_of(path: Path) -> FileFormat:
    inner = path.with_suffix("") if path.suffix == ".gz" else path
    if inner.suffix.lower() not in _SUFFIXES:
        raise UsageError(
            f"got {path.name}, whose suffix names no format; set format to one of "
            f"{_known_formats()}"
        )
    return _SUFFIXES[inner.suffix.lower()]


def _known_formats() -> str:
    return ", ".join(get_args(FileFormat))


def _read_csv(stream: IO[bytes] | gzip.GzipFile, source: str, options: ReadOptions) -> Table:
    try:
        text = io.StringIO(stream.read().decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: byte {error.start} is not UTF-8; convert the file") from None
    separator = options.separator or _find_separator(text, source)
    if len(separator) != 1 or separator in '"\r\n':
        raise UsageError(f"got the separator {separator!r}; want one character")
    records = _records(text, source, separator)
    header = list(options.columns) or next((fields for _, fields in records), [])
    names = _check_names(header, source)
    frames, row_numbers = [], []
    while chunk := list(itertools.islice(records, _CHUNK_ROWS)):
        for line, fields in chunk:
            if len(fields) != len(names):
                got = f"{len(fields)} fields"
                raise DataError(f"{source}, line {line}: got {got}; want {len(names)}")
        row_numbers += [line for line, _ in chunk]
        columns = zip(*(fields for _, fields in chunk), strict=True)
        frames.append(pl.DataFrame([pl.Series(n, c) for n, c in zip(names, columns, strict=True)]))
    empty = pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    return Table(
        source=source,
        row_numbers=np.array(row_numbers, dtype=np.int64),
        frame=pl.concat(frames) if frames else empty,
    )


def _records(text: IO[str], source: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line on which the record starts, fields), without blank lines."""
    reader = csv.reader(text, delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{source}, line {line}: malformed CSV: {error}") from None
        if fields:
            yield line, fields


def _find_separator(text: IO[str], source: str) -> str:
    """Choose the separator that cuts the header into the most fields."""
    head = text.read(_HEADER_BYTES)
    text.seek(0)
    counts = {}
    for separator in _SEPARATORS:
        reader = csv.reader(io.StringIO(head, newline=""), delimiter=separator)
        counts[separator] = len(next((fields for fields in reader if fields), []))
    best = max(counts.values())
    winners = [separator for separator, count in counts.items() if count == best]
    if best > 1 and len(winners) > 1:
        raise DataError(
            f"{source}: the header splits equally well at {winners[0]!r} and {winners[1]!r}; "
            "state the separator"
        )
    return winners[0]


def _check_names(header: Sequence[str], source: str) -> tuple[str, ...]:
    """Normalise names (Unicode NFC, no outer white space) and refuse empty and repeated ones."""
    if not header:
        raise DataError(f"{source}: got an empty file; want a header line")
    names = tuple(unicodedata.normalize("NFC", name).strip() for name in header)
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name:
            raise DataError(f"{source}: column {position} has no name; name it in the header")
        if name in seen:
            raise DataError(
                f"{source}: columns {seen[name]} and {position} are both named {name!r}; rename one"
            )
        seen[name] = position
    return names


def _read_parquet(path: Path) -> Table:
    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path.name}: not a readable Parquet file: {error}") from None
    names = _check_names(frame.columns, path.name)
    columns = [
        _plain(frame.to_series(position).rename(name), path.name)
        for position, name in enumerate(names)
    ]
    row_numbers = np.arange(1, frame.height + 1, dtype=np.int64)
    return Table(source=path.name, row_numbers=row_numbers, frame=pl.DataFrame(columns))


def _plain(column: pl.Series, source: str) -> pl.Series:
    """Reduce a Parquet column to text, whole numbers, floats or booleans."""
    kind = column.dtype
    if kind == pl.Boolean or kind == pl.String or kind.is_integer():
        return column
    if kind.is_float() or kind.is_decimal():
        return column.cast(pl.Float64)
    if kind.is_temporal() or kind in (pl.Categorical, pl.Enum, pl.Null):
        return column.cast(pl.String)
    raise DataError(
        f"{source}, column {column.name!r}: got {kind}; want text, numbers, booleans or dates; "
        "convert or drop the column"
    )
