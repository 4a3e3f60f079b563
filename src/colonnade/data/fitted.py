"""What was learned from one column at fit, and how it turns cells into feature columns.

Two kinds: a number column (one feature, scaled or whole) and a categorical column (one-hot); the
columns of sparse files stand in `fitted_sparse`. They are plain data, so that prediction does
exactly what training did.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from colonnade.data.cells import category_keys, parse_numbers
from colonnade.data.features import MAX_RANGE, Matrix, next_power_of_two
from colonnade.data.schema import SourceSpec
from colonnade.data.table import Table
from colonnade.errors import DataError

__all__ = [
    "DEFAULT_RANGE",
    "Block",
    "CategoricalColumn",
    "FeatureColumn",
    "NumberColumn",
    "Range",
    "Scale",
    "clip_and_count",
]

# The range of numbers that nobody declared one for. Standard scores cannot pass 64 below 4,096
# rows and mean errors or heavy tails above; the range costs six bits in every product.
DEFAULT_RANGE = 64.0
# Below this ratio of deviation to magnitude the differences are rounding of one constant.
_CONSTANT_RATIO = 8 * float(np.finfo(np.float64).eps)

Range = Annotated[float, Meta(gt=0.0, le=MAX_RANGE)]
Scale = Annotated[float, Meta(ge=0.0)]


class FeatureColumn(NamedTuple):
    """The public declaration of one feature column; see `Features`."""

    name: str
    whole: bool
    max_abs: float


@dataclass(frozen=True, eq=False)
class Block:
    """The feature columns made from a fitted column, and what had to be done to its cells.

    values: float64 (rows, columns), dense or CSR.
    imputed, clipped, unseen: number of cells that were missing and filled, out of range and
        clipped, or of a category without a feature column of its own.
    """

    values: Matrix = field(repr=False)
    imputed: int = 0
    clipped: int = 0
    unseen: int = 0


class NumberColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="number"):
    """A column of numbers: (value - centre) / scale, within low .. max_abs.

    fill: what a missing value becomes, before scaling; None refuses missing values.
    indicator: a second feature column is 1 where the value was missing.
    scale: 0 marks a column that was constant at fit. It stays 0 at prediction too, because the
        weight of a column that never varied is still its random initial value.
    """

    name: str
    whole: bool
    fill: float | None
    indicator: bool
    centre: float
    scale: Scale
    low: float
    max_abs: Range
    clip: bool

    @classmethod
    def fit(cls, table: Table, name: str, whole: bool, spec: SourceSpec) -> NumberColumn:
        """Learn fill value, centre and scale.

        Raises
            DataError: a value is no number, missing without a policy for it, or (whole columns
            without a declared range) beyond 1; names the cell.
        """
        values = parse_numbers(table, name)
        missing = np.isnan(values)
        fill = _fill_value(values[~missing], table, name, whole, spec)
        values = _filled(values, fill, table, name)
        centre, scale, low, max_abs = 0.0, 1.0, None, DEFAULT_RANGE
        if whole:
            max_abs = 1.0
            if name not in spec.ranges:
                _check_binary(values, table, name)
        elif spec.scaling == "standard":
            centre, scale = _moments(values)
        elif spec.scaling == "minmax":
            centre, low, max_abs = float(values.min()), 0.0, 1.0
            scale = float(values.max()) - centre
        elif spec.scaling == "maxabs":
            scale, max_abs = float(np.abs(values).max()), 1.0
        max_abs = next_power_of_two(spec.ranges.get(name, max_abs))
        return cls(
            name=name,
            whole=whole,
            fill=fill,
            indicator=spec.missing_indicator and bool(missing.any()),
            centre=centre,
            scale=scale,
            low=-max_abs if low is None else low,
            max_abs=max_abs,
            clip=spec.clip or (not whole and spec.scaling in ("minmax", "maxabs")),
        )

    @property
    def source_names(self) -> tuple[str, ...]:
        """The columns of the file that this reads."""
        return (self.name,)

    def declare(self) -> list[FeatureColumn]:
        """The feature columns that `apply` returns."""
        columns = [FeatureColumn(self.name, self.whole, self.max_abs)]
        if self.indicator:
            columns.append(FeatureColumn(f"{self.name}=(missing)", True, 1.0))
        return columns

    def apply(self, table: Table) -> Block:
        """Turn the column of `table` into features; ranges are left to `Features` to check."""
        values = parse_numbers(table, self.name)
        missing = np.isnan(values)
        values = _filled(values, self.fill, table, self.name)
        values, clipped = self._scale(values)
        columns = [values, missing.astype(np.float64)] if self.indicator else [values]
        imputed = int(np.count_nonzero(missing))
        return Block(np.stack(columns, axis=1), imputed=imputed, clipped=clipped)

    def _scale(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
        if self.scale == 0.0:
            return np.zeros_like(values), 0
        with np.errstate(over="ignore"):  # infinity is clipped here or refused by Features
            values = (values - self.centre) / self.scale
        return clip_and_count(values, self.low, self.max_abs) if self.clip else (values, 0)


class CategoricalColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="category"):
    """A one-hot column: a feature for each category, one for all others, one for missing.

    missing: missing values were seen at fit and have a feature of their own; otherwise they count
        as "other". If nothing at fit fell into "other", its weight stays at its initial value.
    """

    name: str
    categories: tuple[str, ...]
    missing: bool

    @classmethod
    def fit(cls, table: Table, name: str, spec: SourceSpec) -> tuple[CategoricalColumn, int]:
        """Learn the categories; return them and the number of categories that were pooled.

        The most frequent `max_categories` with at least `min_category_rows` rows are kept.
        """
        counts = Counter(category_keys(table.column(name)))
        missing = counts.pop(None, 0) > 0
        ranked = sorted((-count, key) for key, count in counts.items() if key is not None)
        frequent = [key for count, key in ranked if -count >= spec.min_category_rows]
        kept = tuple(sorted(frequent[: spec.max_categories]))
        return cls(name=name, categories=kept, missing=missing), len(counts) - len(kept)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The columns of the file that this reads."""
        return (self.name,)

    def declare(self) -> list[FeatureColumn]:
        """The feature columns that `apply` returns."""
        keys = [*self.categories, "(other)"] + ["(missing)"] * self.missing
        return [FeatureColumn(f"{self.name}={key}", True, 1.0) for key in keys]

    def apply(self, table: Table) -> Block:
        """Turn the column of `table` into one-hot features, CSR."""
        other = len(self.categories)
        codes: dict[str | None, int] = {key: code for code, key in enumerate(self.categories)}
        if self.missing:
            codes[None] = other + 1
        keys = category_keys(table.column(self.name))
        indices = np.array([codes.get(key, other) for key in keys], dtype=np.int32)
        arrays = (np.ones(len(keys)), indices, np.arange(len(keys) + 1, dtype=np.int32))
        values = csr_matrix(arrays, shape=(len(keys), other + 1 + self.missing))
        return Block(values, unseen=int(np.count_nonzero(indices == other)))


def _fill_value(
    present: NDArray[np.float64], table: Table, name: str, whole: bool, spec: SourceSpec
) -> float | None:
    if spec.missing == "error":
        return None
    if spec.missing == "zero":
        return 0.0
    if not len(present):
        raise DataError(
            f"{table.source}, column {name!r}: every value is missing, so there is no "
            f'{spec.missing}; exclude the column or set missing = "zero"'
        )
    fill = _moments(present)[0] if spec.missing == "mean" else float(np.median(present))
    return float(np.rint(fill)) if whole else fill


def _filled(
    values: NDArray[np.float64], fill: float | None, table: Table, name: str
) -> NDArray[np.float64]:
    missing = np.isnan(values)
    if fill is None and missing.any():
        place = table.where(int(np.flatnonzero(missing)[0]), name)
        raise DataError(f"{place}: the value is missing; want a number; fill it in or set missing")
    return np.where(missing, 0.0 if fill is None else fill, values)


def _moments(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and population standard deviation, the latter 0 for a constant column."""
    largest = float(np.abs(values).max())
    if largest == 0.0:
        return 0.0, 0.0
    # Dividing by a power of two is exact and keeps the squares of large numbers finite.
    unit = float(np.exp2(np.frexp(largest)[1] - 1))
    scaled = values / unit
    deviation = float(scaled.std())
    constant = deviation <= _CONSTANT_RATIO
    return float(scaled.mean()) * unit, 0.0 if constant else deviation * unit


def _check_binary(values: NDArray[np.float64], table: Table, name: str) -> None:
    large = np.abs(values) > 1.0
    if large.any():
        bound = next_power_of_two(float(np.abs(values).max()))
        raise DataError(
            f"{table.where(int(np.flatnonzero(large)[0]), name)}: got a whole number beyond 1; "
            f"want a declared range; set ranges.{name}, {bound:g} would hold all (it is public)"
        )


def clip_and_count(
    values: NDArray[np.float64], low: Any, high: Any
) -> tuple[NDArray[np.float64], int]:
    """Clip to low .. high (numbers or arrays) and count the values that were outside."""
    return np.clip(values, low, high), int(np.count_nonzero((values < low) | (values > high)))
