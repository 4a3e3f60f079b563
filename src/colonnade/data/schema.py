"""What a party says about its file, and that statement checked against the columns found there.

`SourceSpec` is the plain statement from the configuration. `SourceSpec.check(table)` gives the
frozen `Schema`: which columns are ids, label and features, and what each feature is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from colonnade.data.cells import reads_as_numbers
from colonnade.data.features import MAX_RANGE
from colonnade.data.readers import FileFormat, ReadOptions, read_table
from colonnade.data.table import Table, nearest_name
from colonnade.errors import DataError, UsageError
from colonnade.protocol.psi.ids import DuplicatePolicy, IdType, normal_form

__all__ = [
    "EVERY_COLUMN",
    "ColumnType",
    "MissingPolicy",
    "Scaling",
    "Schema",
    "SourceSpec",
    "id_columns",
    "infer_types",
    "label_values",
    "read_source",
    "suggested_scaling",
]

ColumnType = Literal["numeric", "whole", "categorical"]
MissingPolicy = Literal["error", "mean", "median", "zero"]
Scaling = Literal["standard", "minmax", "maxabs", "none"]

# In the ranges of a LIBSVM file, whose columns are numbers: all that are not named.
EVERY_COLUMN = "*"
# What the first field of each LIBSVM line is called in a configuration.
_LIBSVM_LABEL = "label"


@dataclass(frozen=True)
class SourceSpec:
    """One party's statement about its data.

    path, format, options: the file and how to read it; format None goes by the suffix.
    ids: key columns, or "row": the record's position, for files that are aligned already.
    id_types: "text" or "integer" per key column; empty means text for all.
    label: label column; "label" names the first field of a LIBSVM line. None: no labels here.
    offer: columns used as features, "*" for all but ids and label.
    exclude: columns taken out of "*".
    types: "numeric", "whole" or "categorical" by column; inferred where silent (`infer_types`).
    ranges: largest absolute value by column, public, after scaling. Rounded up to a power of two.
        In a LIBSVM file "*" stands for all columns that have none of their own.
    scaling: of numeric columns: "standard", "minmax", "maxabs" or "none".
    missing: "error" or what a missing number becomes: "mean", "median", "zero".
    missing_indicator: add a 0/1 column for each numeric column with missing values at fit.
    clip: clip and count values out of range instead of refusing them.
    duplicates: what to do with repeated ids: "error", "first" or "refuse_all".
    max_categories, min_category_rows: further or rarer categories of a column are pooled.

    Raises
        UsageError: a field holds what it must not, or two fields contradict each other.
    """

    path: Path
    format: FileFormat | None = None
    ids: tuple[str, ...] | Literal["row"] = "row"
    id_types: tuple[IdType, ...] = ()
    label: str | None = None
    offer: tuple[str, ...] | Literal["*"] = "*"
    exclude: tuple[str, ...] = ()
    types: dict[str, ColumnType] = field(default_factory=dict)
    ranges: dict[str, float] = field(default_factory=dict)
    scaling: Scaling = "standard"
    missing: MissingPolicy = "error"
    missing_indicator: bool = False
    clip: bool = False
    duplicates: DuplicatePolicy = "error"
    max_categories: int = 1000
    min_category_rows: int = 1
    options: ReadOptions = field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        if self.format is not None:
            _check_word("format", self.format, FileFormat)
        _check_word("scaling", self.scaling, Scaling)
        _check_word("missing", self.missing, MissingPolicy)
        _check_word("duplicates", self.duplicates, DuplicatePolicy)
        for name, kind in self.types.items():
            _check_word(f"types.{name}", kind, ColumnType)
        for id_type in self.id_types:
            _check_choice("id_types", id_type, tuple(IdType))
        for key in ("max_categories", "min_category_rows"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key}: got {getattr(self, key)}; want at least 1")
        for name, bound in self.ranges.items():
            if not 0 < bound <= MAX_RANGE:
                raise UsageError(f"ranges.{name}: got {bound}; want above 0, up to {MAX_RANGE:g}")
        self._check_ids()
        self._check_roles()

    def _check_ids(self) -> None:
        if isinstance(self.ids, str):
            if self.ids != "row":
                raise UsageError(f'ids: got {self.ids!r}; want a list of columns or "row"')
            if self.id_types:
                raise UsageError('id_types: got types for ids = "row"; want none')
            return
        if not self.ids or len(set(self.ids)) != len(self.ids):
            raise UsageError(f"ids: got {list(self.ids)}; want one or more different columns")
        if self.id_types and len(self.id_types) != len(self.ids):
            raise UsageError(
                f"id_types: got {len(self.id_types)} types for {len(self.ids)} id columns; "
                "want one for each"
            )

    def _check_roles(self) -> None:
        keys = set(self.key_columns)
        if self.label in keys:
            raise UsageError(f"label: got the id column {self.label!r}; want another column")
        if isinstance(self.offer, str):
            if self.offer != "*":
                raise UsageError(f'offer: got {self.offer!r}; want a list of columns or "*"')
            return
        if len(set(self.offer)) != len(self.offer):
            raise UsageError("offer: got a column twice; name each once")
        for name in self.offer:
            if name == self.label:
                raise UsageError(f"offer: got the label column {name!r}; labels are never features")
            if name in keys:
                raise UsageError(f"offer: got the id column {name!r}; ids are never features")
            if name in self.exclude:
                raise UsageError(f"offer: got {name!r}, which exclude lists too; name it in one")

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The id columns; empty where records are identified by their position."""
        return () if isinstance(self.ids, str) else self.ids

    @property
    def key_types(self) -> tuple[IdType, ...]:
        """The declared type of each column that `id_columns` returns."""
        if isinstance(self.ids, str):
            return (IdType.INTEGER,)
        return tuple(map(IdType, self.id_types)) or (IdType.TEXT,) * len(self.ids)

    def check(self, table: Table) -> Schema:
        """Check this statement against a table.

        Raises
            UsageError: a named column does not exist (the nearest one is named), or a field does
            not apply to a column of its kind.
        """
        known = table.names
        label = () if self.label is None else (self.label,)
        if table.sparse is None:
            _check_known("ids", self.key_columns, known, table.source)
            _check_known("label", label, known, table.source)
        else:
            self._check_sparse(table.source)
        for key in ("exclude", "types"):
            _check_known(key, getattr(self, key), known, table.source)
        every = () if table.sparse is None else (EVERY_COLUMN,)
        _check_known("ranges", self.ranges, (*known, *every), table.source)
        if isinstance(self.offer, str):
            out = {*self.key_columns, *self.exclude, *label}
            features = tuple(name for name in known if name not in out)
        else:
            features = self.offer
            _check_known("offer", features, known, table.source)
        if table.sparse is not None:
            return Schema(features, dict.fromkeys(features, "numeric"))
        kinds = infer_types(table, [name for name in features if name not in self.types])
        kinds |= {name: kind for name, kind in self.types.items() if name in features}
        self._check_ranges(kinds)
        return Schema(features, kinds)

    def _check_sparse(self, source: str) -> None:
        if self.key_columns:
            got = f"ids: got columns for {source}"
            raise UsageError(f'{got}; a LIBSVM file has none; set ids = "row"')
        if self.label not in (None, _LIBSVM_LABEL):
            got = f"label: got {self.label!r} for {source}"
            raise UsageError(f'{got}; want "{_LIBSVM_LABEL}", the first field of each line')
        if self.types:
            raise UsageError(f"types: got types for {source}; LIBSVM columns are all numeric")
        if self.scaling not in ("none", "maxabs"):
            raise UsageError(
                f"scaling: got {self.scaling!r} for {source}, which would make a sparse file "
                'dense; set scaling = "none" or "maxabs"'
            )

    def _check_ranges(self, kinds: Mapping[str, ColumnType]) -> None:
        for name in self.ranges:
            kind = kinds.get(name)
            if kind == "categorical":
                raise UsageError(f"ranges.{name}: the column is categorical and needs no range")
            if kind == "numeric" and self.scaling in ("minmax", "maxabs"):
                raise UsageError(
                    f"ranges.{name}: {self.scaling} scaling already gives a range of 1"
                )


@dataclass(frozen=True)
class Schema:
    """A checked statement: the feature columns in order, and the type of each."""

    features: tuple[str, ...]
    kinds: Mapping[str, ColumnType]


def read_source(spec: SourceSpec, path: Path | None = None) -> Table:
    """Read the file of `spec`, or another one of the same form (records to predict)."""
    return read_table(path or spec.path, format=spec.format, options=spec.options)


def infer_types(table: Table, names: Iterable[str] | None = None) -> dict[str, ColumnType]:
    """Guess the type of columns (all of them by default) of a table that is not sparse.

    Booleans are "whole"; numbers, and text that parses as a number in every row that is not
    missing, are "numeric"; everything else is "categorical". Codes that look like numbers (postal
    codes) come out numeric: the configuration should say otherwise.
    """
    kinds: dict[str, ColumnType] = {}
    for name in table.frame.columns if names is None else names:
        column = table.column(name)
        if column.dtype == pl.Boolean:
            kinds[name] = "whole"
        else:
            kinds[name] = "numeric" if reads_as_numbers(column) else "categorical"
    return kinds


def suggested_scaling(table: Table) -> Scaling:
    """Return the scaling that a new configuration should state for this table."""
    return "standard" if table.sparse is None else "none"


def id_columns(table: Table, spec: SourceSpec) -> list[list[object]]:
    """Return the values of each key column: `str` for text, `int` for integer columns.

    Every value has a normal form (`colonnade.protocol.psi.ids`); text is still exactly the file's.

    Raises
        DataError: a value is missing or has no normal form; names the cell, never the value.
    """
    if isinstance(spec.ids, str):
        return [list(range(1, len(table) + 1))]
    return [
        [_id_value(cell, kind, table, position, name) for position, cell in enumerate(cells)]
        for name, kind in zip(spec.ids, spec.key_types, strict=True)
        for cells in [table.column(name).to_list()]
    ]


def label_values(table: Table, spec: SourceSpec) -> list[object]:
    """Return the cells of the label column, for `LabelMapping`.

    Raises
        UsageError: `spec` names no label column.
        DataError: the table lacks it.
    """
    if spec.label is None:
        raise UsageError("label: got none; name the label column")
    if table.sparse is None:
        return table.column(spec.label).to_list()
    if table.labels is None:
        raise DataError(f"{table.source}: got lines without labels; want one on each")
    return list(table.labels.tolist())


def _id_value(cell: object, kind: IdType, table: Table, position: int, name: str) -> object:
    try:
        normal = normal_form(cell, kind)
    except DataError as error:
        raise DataError(f"{table.where(position, name)}: {error}") from None
    return cell if isinstance(normal, str) and isinstance(cell, str) else normal


def _check_word(key: str, word: str, choices: object) -> None:
    _check_choice(key, word, get_args(choices))


def _check_choice(key: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        hint = nearest_name(str(word), allowed)
        raise UsageError(f"{key}: got {word!r}; want one of {', '.join(allowed)}{hint}")


def _check_known(key: str, names: Iterable[str], known: Iterable[str], source: str) -> None:
    known = tuple(known)
    columns = frozenset(known)
    for name in names:
        if name not in columns:
            hint = nearest_name(name, known)
            raise UsageError(f"{key}: got {name!r}, which is no column of {source}{hint}")
