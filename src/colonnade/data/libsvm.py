"""The LIBSVM text format: `label index:value ...` on each line, into a sparse `Table`.

Indices ascend strictly within a line and start at 1 (or 0 where the caller says so). `#` starts a
comment. A line that is a label alone is an empty row and counts. Files without labels are read
too; there a blank line in the middle would be an empty row or nothing, so it is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from colonnade.data.table import Table
from colonnade.errors import DataError, UsageError

__all__ = ["parse_libsvm"]

# Indices are kept in 32 bits, as scipy does for matrices of any size we can train on.
_MAX_INDEX = 2**31 - 2


@dataclass
class _Rows:
    """The CSR arrays while they grow."""

    labels: list[float] = field(default_factory=list)
    line_numbers: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])
    indices: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    width: int = 0


def parse_libsvm(
    text: bytes, source: str, *, zero_based: bool = False, n_columns: int | None = None
) -> Table:
    """Parse the bytes of a LIBSVM file; `n_columns` fixes the width, else the largest index does.

    Returns a table whose `sparse` is float64 CSR in canonical form without stored zeros, and whose
    `labels` are float64, or None if no line has one. Column names are the indices as written.

    Raises
        DataError: a malformed token, indices that do not ascend or are out of range, a value that
        is not finite, `qid:`; names file, line and token.
    """
    if n_columns is not None and not 0 <= n_columns <= _MAX_INDEX:
        raise UsageError(f"got n_columns {n_columns}; want 0 to {_MAX_INDEX}")
    first = 0 if zero_based else 1
    span = range(first, _MAX_INDEX + 1 if n_columns is None else first + n_columns)
    rows, labelled, blank = _Rows(), None, 0
    for number, line in enumerate(text.split(b"\n"), start=1):
        content, comment, _ = line.partition(b"#")
        tokens = content.split()
        if not tokens:
            blank = blank or (0 if comment else number)
            continue
        has_label = b":" not in tokens[0]
        if labelled is None:
            labelled = has_label
        if has_label != labelled:
            raise DataError(f"{source}, line {number}: labels on some lines only; want all or none")
        if blank and not labelled:
            raise DataError(
                f"{source}, line {blank}: blank line before a row without label; want none"
            )
        if has_label:
            rows.labels.append(_label(tokens.pop(0), source, number))
        _append(rows, tokens, span, source, number)
        rows.line_numbers.append(number)
    return _table(rows, bool(labelled), source, first, n_columns)


def _label(token: bytes, source: str, line: int) -> float:
    try:
        label = float(token)
    except ValueError:
        label = math.nan
    if not math.isfinite(label) or b"_" in token:
        raise DataError(f"{source}, line {line}: got label {_show(token)}; want a finite number")
    return label


def _append(rows: _Rows, tokens: list[bytes], span: range, source: str, line: int) -> None:
    """Add one row; the plain loop is the fast path, `_complain` finds out what was wrong."""
    previous = span.start - 1
    for token in tokens:
        left, _, right = token.partition(b":")
        try:
            index, value = int(left), float(right)
        except ValueError:
            _complain(token, source, line, previous, span)
        # Infinity and NaN fail the comparison of their difference with themselves.
        if not previous < index < span.stop or value - value != 0.0 or b"_" in token:
            _complain(token, source, line, previous, span)
        previous = index
        if value != 0.0:
            rows.indices.append(index - span.start)
            rows.values.append(value)
    rows.width = max(rows.width, previous - span.start + 1)
    rows.ends.append(len(rows.values))


def _complain(token: bytes, source: str, line: int, previous: int, span: range) -> NoReturn:
    place = f"{source}, line {line}: got {_show(token)}"
    if token.startswith(b"qid:"):
        raise DataError(f"{place}; ranking groups are not supported; remove the qid fields")
    left, _, right = token.partition(b":")
    try:
        index, value = int(left), float(right)
    except ValueError:
        raise DataError(f"{place}; want index:value") from None
    if b"_" in token:
        raise DataError(f"{place}; want index:value")
    if not math.isfinite(value):
        raise DataError(f"{place}; want a finite value")
    if index in span:
        raise DataError(f"{place} after index {previous}; want ascending indices")
    hint = "; if they start at 0 set zero_based" if index == 0 else ""
    raise DataError(f"{place}; want indices from {span.start} to {span.stop - 1}{hint}")


def _show(token: bytes) -> str:
    return repr(token[:40].decode("utf-8", "replace"))


def _table(rows: _Rows, labelled: bool, source: str, first: int, n_columns: int | None) -> Table:
    width = rows.width if n_columns is None else n_columns
    arrays = (
        np.array(rows.values, dtype=np.float64),
        np.array(rows.indices, dtype=np.int32),
        np.array(rows.ends, dtype=np.int32),
    )
    matrix = csr_matrix(arrays, shape=(len(rows.line_numbers), width))
    return Table(
        source=source,
        row_numbers=np.array(rows.line_numbers, dtype=np.int64),
        frame=pl.DataFrame(),
        sparse=matrix,
        sparse_names=tuple(str(index) for index in range(first, first + width)),
        labels=np.array(rows.labels, dtype=np.float64) if labelled else None,
    )
