"""One party's file made ready for a session: rows, ids, features, labels."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.data.features import Features
from colonnade.data.fitted import CategoricalColumn
from colonnade.data.labels import LabelMapping
from colonnade.data.preprocess import Preprocessor
from colonnade.data.schema import SourceSpec, id_columns, label_values, read_source
from colonnade.data.table import Table
from colonnade.errors import DataError, UsageError
from colonnade.party.job import ColumnChoice
from colonnade.protocol.psi import (
    IdType,
    KeptRows,
    apply_duplicate_policy,
    encode_ids,
    normaliser_id,
)
from colonnade.ring import FixedMatrix

__all__ = ["NotOfferedError", "Source", "load_source", "normaliser"]

_PLACES_NAMED = 5


class NotOfferedError(UsageError):
    """A job asks for columns that this party does not offer; names them, for its operator."""


@dataclass(frozen=True)
class Source:
    """A party's records, one distinct id each.

    ids: encoded; features: float64 with declared ranges; matrix: the same in fixed point;
    labels: int64 codes, empty without a label; notes: what preprocessing reports.
    """

    table: Table = field(repr=False)
    ids: list[bytes] = field(repr=False)
    features: Features = field(repr=False)
    matrix: FixedMatrix = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    mapping: LabelMapping | None
    preprocessor: Preprocessor = field(repr=False)
    columns: tuple[str, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def independent_columns(self) -> int:
        """An upper bound of the features that vary on their own in this file.

        A constant column tells nothing about a row, and of the varying features of one category
        column the last one follows from the others: their sum is 1.
        """
        cells = self.matrix.csr()
        varies = (cells.max(axis=0) != cells.min(axis=0)).toarray()[0] if len(self) else []
        count = int(np.count_nonzero(varies))
        start = 0
        for column in self.preprocessor.columns:
            end = start + len(column.declare())
            if isinstance(column, CategoricalColumn) and np.any(varies[start:end]):
                count -= 1
            start = end
        return count


def load_source(
    spec: SourceSpec,
    *,
    path: Path | None = None,
    preprocessor: Preprocessor | None = None,
    choice: ColumnChoice = "offered",
    with_labels: bool = False,
) -> Source:
    """Read a party's file (or another of the same form) and prepare it.

    preprocessor: the fitted one of a model; None fits a new one on this file.
    choice: the columns that a peer's job asks for.

    Raises
        UsageError, DataError: naming file, column and row.
        NotOfferedError: the job asks for a column that is not offered.
    """
    whole = read_source(spec, path)
    spec = _chosen(spec, choice, whole)
    columns = id_columns(whole, spec)
    encoded = encode_ids(columns, id_types(spec), whole.source, names=spec.key_columns)
    kept = _distinct(encoded, spec, whole)
    notes = [f"{whole.source}: {len(whole)} records"]
    if kept.dropped_rows:
        notes.append(
            f"{whole.source}: dropped {kept.dropped_rows} records of {kept.repeated_ids} repeated "
            f"ids (duplicates = {spec.duplicates})"
        )
    table = whole.take(kept.rows)
    codes, mapping = np.zeros(0, np.int64), None
    if with_labels:
        cells = label_values(table, spec)
        mapping = LabelMapping.fit(cells, source=table.source, row_numbers=table.row_numbers)
        codes = mapping.transform(cells, table.source, table.row_numbers)
        notes.append(f"labels: {mapping}")
    if preprocessor is None:
        preprocessor = Preprocessor.fit(table, spec)
    features, report = preprocessor.transform(table)
    notes += report.lines()
    matrix = FixedMatrix.encode(
        features.values,
        features.whole,
        features.max_abs,
        features.names,
        features.source,
        features.row_numbers,
    )
    used = tuple(name for column in preprocessor.columns for name in column.source_names)
    ids = [encoded[row] for row in kept.rows]
    return Source(table, ids, features, matrix, codes, mapping, preprocessor, used, tuple(notes))


def _chosen(spec: SourceSpec, choice: ColumnChoice, table: Table) -> SourceSpec:
    """The source with only the columns that a job asks for.

    Which of the names are not offered is for this side's operator: a peer could try names.
    """
    if choice == "offered":
        return spec
    private = {*spec.key_columns, *spec.exclude, spec.label}
    offered = set(table.names if spec.offer == "*" else spec.offer) - private
    unknown = [name for name in choice if name not in offered]
    if unknown:
        shown = ", ".join(repr(name[:60]) for name in unknown[:_PLACES_NAMED])
        raise NotOfferedError(
            f"the job asks for {len(unknown)} columns that are not offered ({shown}); tell the "
            "label party the names, or offer them in [data]"
        )
    return dataclasses.replace(spec, offer=tuple(choice), exclude=())


def _distinct(encoded: list[bytes], spec: SourceSpec, table: Table) -> KeptRows:
    """Apply the duplicate policy; the refusal names places in the file, never an id."""
    if spec.duplicates == "error":
        counts = Counter(encoded)
        repeated = [row for row, code in enumerate(encoded) if counts[code] > 1]
        if repeated:
            numbers = ", ".join(str(table.row_numbers[row]) for row in repeated[:_PLACES_NAMED])
            more = ", ..." if len(repeated) > _PLACES_NAMED else ""
            raise DataError(
                f"{table.source}, rows {numbers}{more}, id column {', '.join(spec.key_columns)}: "
                f"got {len(repeated)} records with repeated ids; want every id once; correct the "
                'file, or set duplicates = "first" or "refuse_all"'
            )
    return apply_duplicate_policy(encoded, spec.duplicates)


def id_types(spec: SourceSpec) -> list[IdType]:
    """The declared type of each key column, for the alignment."""
    return [IdType(kind) for kind in spec.key_types]


def normaliser(spec: SourceSpec) -> str:
    """The normal form of ids in use, for the hello."""
    kind = normaliser_id(id_types(spec))
    return f"{kind} over row numbers" if spec.ids == "row" else kind
