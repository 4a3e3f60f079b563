"""Public data sets for benchmarks and tests, from the folder that COLONNADE_DATA names.

The files are not part of the project. Each set has a folder of its own, named as below.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colonnade.data.features import Matrix
from colonnade.data.labels import LabelMapping
from colonnade.data.readers import ReadOptions, read_table
from colonnade.data.splits import split_rows
from colonnade.data.table import Table
from colonnade.errors import DataError

__all__ = ["RealSet", "data_folder", "load_a9a", "load_connect4", "load_higgs", "load_w8a"]

_VARIABLE = "COLONNADE_DATA"
# Public, and part of every published number: sets without a test file are cut 80/20 with it.
_SPLIT_SEED = b"colonnade real data"


class RealSet(NamedTuple):
    """x: float64 (rows, columns), CSR or dense; y: int64 (rows,), 0 .. k-1."""

    x_train: Matrix
    y_train: NDArray[np.int64]
    x_test: Matrix
    y_test: NDArray[np.int64]


def data_folder() -> Path | None:
    """Return the folder that COLONNADE_DATA names, None if it is not set.

    Raises
        DataError: it is set to something that is no folder.
    """
    value = os.environ.get(_VARIABLE)
    if not value:
        return None
    if not Path(value).is_dir():
        raise DataError(f"got {_VARIABLE}={value}; want a folder; correct the variable")
    return Path(value)


def load_a9a() -> RealSet:
    """a9a: 32,561 / 16,281 rows, 123 columns of 0/1, CSR; two classes."""
    return _pair(_read("a9a/a9a", 123), _read("a9a/a9a.t", 123))


def load_w8a() -> RealSet:
    """w8a: 49,749 rows cut 80/20, 300 columns of 0/1, CSR, some rows empty; 3 % positive."""
    return _cut(_read("w8a/w8a", 300))


def load_higgs() -> RealSet:
    """A sample of HIGGS: 7,000 / 500 rows, 28 columns, dense and not scaled; two classes."""
    train, test = (_read(f"higgs/higgs.{part}.libsvm.gz", 28) for part in ("train", "test"))
    x_train, y_train, x_test, y_test = _pair(train, test)
    return RealSet(_dense(x_train), y_train, _dense(x_test), y_test)


def load_connect4() -> RealSet:
    """connect-4: 67,557 rows cut 80/20, 126 columns of 0/1, CSR; loss, draw, win as 0, 1, 2."""
    return _cut(_read("connect-4/connect-4.gz", 126))


def _read(name: str, n_columns: int) -> Table:
    folder = data_folder()
    if folder is None:
        raise DataError(f"got no {_VARIABLE}; want the folder that holds {name}; set it")
    return read_table(folder / name, format="libsvm", options=ReadOptions(n_columns=n_columns))


def _pair(train: Table, test: Table) -> RealSet:
    y_train, y_test = _labels(train), _labels(test)
    mapping = LabelMapping.fit(y_train, multiclass=True, source=train.source)
    return RealSet(
        train.sparse,
        mapping.transform(y_train, train.source, train.row_numbers),
        test.sparse,
        mapping.transform(y_test, test.source, test.row_numbers),
    )


def _cut(table: Table) -> RealSet:
    split = split_rows(len(table), 0.2, 0.0, _SPLIT_SEED)
    return _pair(table.take(split.train), table.take(split.test))


def _dense(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.toarray(), dtype=np.float64)


def _labels(table: Table) -> NDArray[np.float64]:
    if table.labels is None:
        raise DataError(f"{table.source}: got lines without labels; want one on each")
    return table.labels
