"""From a table to features: fitted once, applied identically, everything odd named or counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.preprocessing import StandardScaler

from colonnade.data.libsvm import parse_libsvm
from colonnade.data.preprocess import Preprocessor, PreprocessReport
from colonnade.data.schema import SourceSpec
from colonnade.data.table import Table
from colonnade.errors import DataError, IntegrityError, UsageError


def table_of(columns: dict[str, list[Any]], source: str = "t.csv") -> Table:
    frame = pl.DataFrame(columns)
    numbers = np.arange(2, frame.height + 2, dtype=np.int64)
    return Table(source=source, row_numbers=numbers, frame=frame)


def spec(**changes: Any) -> SourceSpec:
    return SourceSpec(path=Path("t.csv"), **changes)


def run(
    table: Table, new: Table | None = None, **changes: Any
) -> tuple[NDArray[np.float64], PreprocessReport]:
    """Fit on `table`; return the dense features of `new` (or of `table`) and the report."""
    fitted = Preprocessor.fit(table, spec(**changes))
    features, report = fitted.transform(table if new is None else new)
    values: Any = features.values
    return (values.toarray() if issparse(values) else values), report


# ---- numbers -------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_standard_scaling_is_scikit_learns(values: list[float]) -> None:
    column = np.array(values)
    if column.std() <= 1e-9 * max(1.0, np.abs(column).max()):
        return
    got, _ = run(table_of({"x": values}))
    want = StandardScaler().fit_transform(column[:, None])
    assert np.allclose(got, want, rtol=1e-9, atol=1e-9)


def test_text_and_number_columns_give_the_same() -> None:
    text, _ = run(table_of({"x": ["1", " 2.5", "-1e1"]}))
    number, _ = run(table_of({"x": [1.0, 2.5, -10.0]}))
    assert np.array_equal(text, number)


def test_scalings_and_their_ranges() -> None:
    table, new = table_of({"x": [-4, 0, 12]}), table_of({"x": [-8, 2, 24]})
    low_high, report = run(table, new, scaling="minmax")
    assert low_high.ravel().tolist() == [0.0, 0.375, 1.0]
    assert report.clipped == {"x": 2}
    assert run(table, scaling="minmax")[1].clipped == {}
    ratio, report = run(table, new, scaling="maxabs")
    assert np.allclose(ratio.ravel(), [-8 / 12, 2 / 12, 1.0])
    assert report.clipped == {"x": 1}
    plain, _ = run(table, new, scaling="none")
    assert plain.ravel().tolist() == [-8.0, 2.0, 24.0]


@pytest.mark.parametrize("scaling", ["minmax", "maxabs"])
@settings(derandomize=True, max_examples=25, deadline=None)
@given(values=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=9))
def test_nothing_is_clipped_at_fit(scaling: str, values: list[float]) -> None:
    got, report = run(table_of({"x": values}), scaling=scaling)
    assert report.clipped == {}
    assert (np.abs(got) <= 1.0).all()


def test_ranges_are_rounded_up_and_kept() -> None:
    table = table_of({"x": [100.0, 0.5]})
    fitted = Preprocessor.fit(table, spec(scaling="none", ranges={"x": 100.0}))
    assert [tuple(column) for column in fitted.declare()] == [("x", False, 128.0)]
    assert fitted.transform(table)[0].max_abs == (128.0,)
    with pytest.raises(DataError, match=r"t\.csv, row 2, column 'x': got 100; want at most 64"):
        run(table, scaling="none")
    values, report = run(table, scaling="none", clip=True)
    assert values.ravel().tolist() == [64.0, 0.5]
    assert report.clipped == {"x": 1}


def test_standard_scores_beyond_the_range() -> None:
    table, new = table_of({"x": [0, 1]}), table_of({"x": [0.5, 1e300]}, "new.csv")
    with pytest.raises(DataError, match=r"new\.csv, row 3, column 'x'.*clip = true"):
        run(table, new)
    assert run(table, new, clip=True)[0].ravel().tolist() == [0.0, 64.0]


def test_constant_columns_become_zero_and_stay_so() -> None:
    table = table_of({"x": [0.1, 0.1, 0.1], "y": [1e300] * 3, "z": [0.3, 0.1 + 0.2, 0.3]})
    values, report = run(table)
    assert not values.any()
    assert [note.split(":")[0] for note in report.notes] == [f"column '{name}'" for name in "xyz"]
    changed = table_of({"x": [7.0], "y": [0.0], "z": [1.0]})
    assert not run(table, changed)[0].any()


def test_huge_but_allowed_values_scale_without_overflow() -> None:
    values, _ = run(table_of({"x": [1e300, -1e300, 1e299, -1e299]}))
    assert np.allclose(values.ravel(), np.array([1, -1, 0.1, -0.1]) / np.sqrt(0.505))


@pytest.mark.parametrize("policy", ["error", "mean"])
@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["1", "2", "inf"], "'inf'"),
        (["1", "2", "-1e999"], "'-1e999'"),
        (["1", "2", "2e300"], "'2e300'"),
        ([1.0, 2.0, float("-inf")], "'-inf'"),
        ([1.0, 2.0, 1.5e300], "'1.5e"),
        (["1", "2", "lots"], "'lots'"),
    ],
)
def test_cells_that_are_no_finite_number(policy: str, cells: list[Any], shown: str) -> None:
    changes: dict[str, Any] = {"types": {"größe": "numeric"}, "missing": policy}
    with pytest.raises(DataError, match=f"t.csv, row 4, column 'größe': got {shown}"):
        run(table_of({"größe": cells}), **changes)


# ---- missing numbers -----------------------------------------------------------------------


@pytest.mark.parametrize("cells", [["1", " nan", "6", "NULL", "2"], [1.0, np.nan, 6.0, None, 2.0]])
@pytest.mark.parametrize(("policy", "fill"), [("mean", 3.0), ("median", 2.0), ("zero", 0.0)])
def test_missing_numbers_are_filled_and_counted(cells: list[Any], policy: str, fill: float) -> None:
    table = table_of({"x": cells})
    values, report = run(table, missing=policy, scaling="none")
    assert values.ravel().tolist() == [1.0, fill, 6.0, fill, 2.0]
    assert report.imputed == {"x": 2}
    with pytest.raises(DataError, match=r"t\.csv, row 3, column 'x': the value is missing"):
        run(table)


def test_the_fill_value_is_the_one_of_the_fit() -> None:
    table, new = table_of({"x": ["1", "3"]}), table_of({"x": ["?"]})
    assert run(table, new, missing="mean", scaling="none")[0].tolist() == [[2.0]]
    with pytest.raises(DataError, match="is missing"):
        run(table, new)


def test_missing_indicator() -> None:
    table = table_of({"x": ["1", "?", "3"], "y": ["1", "2", "3"]})
    fitted = Preprocessor.fit(table, spec(missing="zero", missing_indicator=True))
    features, _ = fitted.transform(table)
    assert features.names == ("x", "x=(missing)", "y")
    assert features.whole == (False, True, False)
    assert np.asarray(features.values)[:, 1].tolist() == [0.0, 1.0, 0.0]


def test_a_column_without_any_value() -> None:
    table = table_of({"x": ["", "NA"]})
    with pytest.raises(DataError, match="column 'x': every value is missing, so there is no mean"):
        run(table, missing="mean")
    assert not run(table, missing="zero")[0].any()


# ---- whole numbers -------------------------------------------------------------------------


def test_whole_numbers_are_not_scaled() -> None:
    table = table_of({"n": ["0", "83", "7"], "flag": [True, False, True]})
    stated: dict[str, Any] = {"types": {"n": "whole"}, "ranges": {"n": 100}}
    features, _ = Preprocessor.fit(table, spec(**stated)).transform(table)
    assert np.asarray(features.values).tolist() == [[0, 1], [83, 0], [7, 1]]
    assert features.whole == (True, True)
    assert features.max_abs == (128.0, 1.0)


def test_whole_columns_want_a_range_and_whole_values() -> None:
    with pytest.raises(DataError, match=r"row 3, column 'n'.*ranges\.n, 128 would hold all"):
        run(table_of({"n": [0, 83, 7]}), types={"n": "whole"}, clip=True)
    with pytest.raises(DataError, match=r"row 3, column 'n': got 0\.5; want a whole number"):
        run(table_of({"n": [0.0, 0.5, 1.0]}), types={"n": "whole"})
    values, report = run(
        table_of({"n": [0, 1]}), table_of({"n": [5, -3]}), types={"n": "whole"}, clip=True
    )
    assert values.ravel().tolist() == [1.0, -1.0]
    assert report.clipped == {"n": 2}


def test_missing_whole_numbers_become_whole_numbers() -> None:
    table = table_of({"n": ["1", "?", "2", "2"]})
    values, _ = run(table, types={"n": "whole"}, ranges={"n": 2}, missing="mean")
    assert values.ravel().tolist() == [1.0, 2.0, 2.0, 2.0]


# ---- categories ----------------------------------------------------------------------------


def test_one_hot_with_missing_and_unseen() -> None:
    table = table_of({"town": ["Köln", " Bonn", "?", "Bonn "]})
    new = table_of({"town": ["Bonn", "Ulm", None, "Ko\u0308ln", "bonn"]})
    fitted = Preprocessor.fit(table, spec())
    features, report = fitted.transform(new)
    assert features.names == ("town=Bonn", "town=Köln", "town=(other)", "town=(missing)")
    assert features.whole == (True,) * 4
    assert features.max_abs == (1.0,) * 4
    values: Any = features.values
    assert issparse(values)
    assert values.toarray().argmax(axis=1).tolist() == [0, 2, 3, 1, 2]
    assert values.sum(axis=1).ravel().tolist() == [[1.0] * 5]
    assert report.unseen == {"town": 2}
    assert report.lines()[-1] == "column 'town': 2 values pooled as other"


def test_missing_is_other_where_the_fit_saw_none() -> None:
    values, report = run(table_of({"c": ["a", "b"]}), table_of({"c": ["", "b"]}))
    assert values.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert report.unseen == {"c": 1}


def test_rare_and_too_many_categories_are_pooled() -> None:
    table = table_of({"c": ["a", "b", "b", "c", "c", "c", "d"]})
    for changes in ({"max_categories": 2}, {"min_category_rows": 2}):
        fitted = Preprocessor.fit(table, spec(**changes))
        assert [column.name for column in fitted.declare()] == ["c=b", "c=c", "c=(other)"]
        _, report = fitted.transform(table)
        assert report.unseen == {"c": 2}
        assert report.notes == ("column 'c': 2 categories pooled as other",)


def test_numbers_as_categories_go_by_value() -> None:
    stated: dict[str, Any] = {"types": {"c": "categorical"}}
    values, _ = run(table_of({"c": [3, 4]}), table_of({"c": [3.0, 4.5]}), **stated)
    assert values.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert run(table_of({"c": [True, False]}), **stated)[0].tolist() == [[0, 1, 0], [1, 0, 0]]


def test_dense_or_sparse_is_a_matter_of_layout() -> None:
    many = [str(k) for k in range(20)]
    stated: dict[str, Any] = {"types": {"c": "categorical"}}
    mixed = Preprocessor.fit(table_of({"c": many, "x": many}), spec(**stated))
    features, _ = mixed.transform(table_of({"c": many[:1], "x": many[:1]}))
    assert issparse(features.values)
    features, _ = Preprocessor.fit(table_of({"c": ["a", "b"], "x": ["1", "2"]}), spec()).transform(
        table_of({"c": ["a"], "x": ["1"]})
    )
    assert not issparse(features.values)


# ---- whole tables --------------------------------------------------------------------------


def test_no_feature_columns_and_no_rows() -> None:
    table = table_of({"id": ["1", "2"], "y": ["0", "1"]})
    features, report = Preprocessor.fit(table, spec(ids=("id",), label="y", offer=())).transform(
        table
    )
    assert (len(features), features.n_columns, features.nnz) == (2, 0, 0)
    assert report.lines() == ["2 rows, 0 feature columns"]
    with pytest.raises(DataError, match=r"t\.csv: got no rows"):
        run(table_of({"x": []}))
    empty = table.take(np.array([], dtype=np.int64))
    assert run(table, empty, types={"id": "categorical"})[0].shape == (0, 4)


def test_prediction_without_the_label_and_with_columns_in_another_order() -> None:
    table = table_of({"id": [1, 2], "a": [1, 3], "b": ["x", "y"], "y": [0, 1]})
    new = table_of({"b": ["y"], "extra": ["?"], "a": [2]})
    values, _ = run(table, new, ids=("id",), label="y")
    assert values.tolist() == [[0, 0, 1, 0]]
    with pytest.raises(DataError, match=r"n\.csv: got no column 'b'"):
        run(table, table_of({"a": [1]}, "n.csv"), ids=("id",), label="y")


def test_a_statement_that_does_not_fit_is_refused_at_fit() -> None:
    with pytest.raises(UsageError, match="did you mean 'height'"):
        run(table_of({"height": [1, 2]}), offer=("heigth",))


# ---- sparse files --------------------------------------------------------------------------

SPARSE = parse_libsvm(b"1 1:1 3:-5\n-1 \n1 2:2 4:1\n", "s.libsvm")


def sparse(table: Table, new: Table | None = None, **changes: Any) -> tuple[Any, PreprocessReport]:
    features, report = Preprocessor.fit(table, spec(**({"scaling": "none"} | changes))).transform(
        table if new is None else new
    )
    assert issparse(features.values)
    return features, report


EVERY = {"ranges": {"*": 5.0}}


def test_sparse_whole_numbers_keep_to_declared_ranges() -> None:
    features, _ = sparse(SPARSE, **EVERY)
    assert features.whole == (True,) * 4
    assert features.max_abs == (8.0,) * 4
    assert (features.values != SPARSE.sparse).nnz == 0
    declared = {"3": 5.0, "2": 2.0}
    assert sparse(SPARSE, ranges=declared)[0].max_abs == (1.0, 2.0, 8.0, 1.0)
    assert sparse(SPARSE, ranges={"*": 8.0, "1": 1.0})[0].max_abs == (1.0, 8.0, 8.0, 8.0)


def test_a_sparse_range_is_never_read_off_the_values() -> None:
    zero_one = parse_libsvm(b"1 1:1 3:-1\n-1 2:1\n", "s.libsvm")
    assert sparse(zero_one)[0].max_abs == (1.0,) * 3
    message = r"s\.libsvm, row 1, column '3': got a whole number beyond 1; .* 8 would hold all"
    for changes in ({}, {"clip": True}, {"ranges": {"2": 2.0}}):
        with pytest.raises(DataError, match=message):
            sparse(SPARSE, **changes)
    with pytest.raises(DataError, match=r"row 3, column '2'.*\"\*\", 2 would hold all"):
        sparse(SPARSE, ranges={"3": 8.0})


def test_sparse_fractions_and_maxabs() -> None:
    table = parse_libsvm(b"1 1:0.5 2:-4\n1 1:0.25\n", "s.libsvm", n_columns=3)
    features, _ = sparse(table)
    assert features.whole == (False,) * 3
    assert features.max_abs == (64.0,) * 3
    scaled, _ = sparse(table, scaling="maxabs")
    assert scaled.values.toarray().tolist() == [[1.0, -1.0, 0.0], [0.5, 0.0, 0.0]]
    assert scaled.max_abs == (1.0,) * 3
    new = parse_libsvm(b"1 1:2 3:9\n", "n.libsvm")
    clipped, report = sparse(table, new, scaling="maxabs")
    assert clipped.values.toarray().tolist() == [[1.0, 0.0, 0.0]]
    assert report.clipped == {"n.libsvm": 1}


def test_sparse_columns_go_by_index() -> None:
    narrow = parse_libsvm(b"1 2:3\n", "n.libsvm")
    assert sparse(SPARSE, narrow, **EVERY)[0].values.toarray().tolist() == [[0, 3, 0, 0]]
    wide = parse_libsvm(b"1 2:3 9:1\n", "n.libsvm")
    features, report = sparse(SPARSE, wide, **EVERY)
    assert features.values.toarray().tolist() == [[0, 3, 0, 0]]
    assert report.notes == ("n.libsvm: 5 columns are not used",)
    some, _ = sparse(SPARSE, offer=("4", "2"), **EVERY)
    assert some.values.toarray().tolist() == [[0, 0], [0, 0], [1, 2]]
    assert some.values.has_canonical_format
    with pytest.raises(DataError, match=r"t\.csv: got a table with columns"):
        Preprocessor.fit(SPARSE, spec(scaling="none", **EVERY)).transform(table_of({"1": [1]}))


def test_sparse_values_outside_the_declaration() -> None:
    for text, message in (
        (b"1 1:1\n1 3:9\n", r"n\.libsvm, row 2, column '3': got 9; want at most 8"),
        (b"1 1:0.5\n", r"row 1, column '1': got 0\.5; want a whole number"),
    ):
        with pytest.raises(DataError, match=message):
            sparse(SPARSE, parse_libsvm(text, "n.libsvm"), **EVERY)
    with pytest.raises(DataError, match='set scaling = "maxabs"'):
        sparse(parse_libsvm(b"1 1:40000\n", "n.libsvm"))
    new = parse_libsvm(b"1 3:-9\n", "n.libsvm")
    features, report = sparse(SPARSE, new, clip=True, **EVERY)
    assert features.values.toarray().tolist() == [[0, 0, -8, 0]]
    assert report.clipped == {"n.libsvm": 1}


def test_sparse_tables_of_empty_rows() -> None:
    features, _ = sparse(parse_libsvm(b"1\n-1\n", "s.libsvm", n_columns=3))
    assert features.values.shape == (2, 3)
    assert features.max_abs == (1.0,) * 3


# ---- saved and applied ---------------------------------------------------------------------

MIXED = {
    "x": ["0.1", "?", "1e-7", "3"],
    "n": ["1", "0", "1", "0"],
    "c": ["ä", "b", "", "b"],
    "k": ["5", "5", "5", "5"],
}


@pytest.mark.parametrize("scaling", ["standard", "minmax", "maxabs", "none"])
def test_json_applies_identically(scaling: str) -> None:
    table = table_of(MIXED)
    stated: dict[str, Any] = {"types": {"n": "whole"}, "missing": "mean", "scaling": scaling}
    fitted = Preprocessor.fit(table, spec(**stated))
    restored = Preprocessor.from_json(fitted.to_json())
    assert restored == fitted
    assert restored.to_json() == fitted.to_json()
    first, second = fitted.transform(table)[0], restored.transform(table)[0]
    assert np.array_equal(np.asarray(first.values), np.asarray(second.values))
    assert (first.names, first.whole, first.max_abs) == (
        second.names,
        second.whole,
        second.max_abs,
    )


def test_json_of_sparse_columns() -> None:
    fitted = Preprocessor.fit(SPARSE, spec(scaling="maxabs"))
    restored = Preprocessor.from_json(fitted.to_json())
    features = restored.transform(SPARSE)[0]
    assert (features.values != fitted.transform(SPARSE)[0].values).nnz == 0


def test_bad_json() -> None:
    good = Preprocessor.fit(table_of({"x": [1.0, 2.0]}), spec()).to_json()
    sparse_json = Preprocessor.fit(SPARSE, spec(scaling="none", **EVERY)).to_json()
    for bad in (
        b"",
        good[:-1],
        good.replace(b"preprocessor/1", b"preprocessor/2"),
        good.replace(b'"number"', b'"other"'),
        good.replace(b'"clip":', b'"clap":'),
        good.replace(b'"scale":0.5', b'"scale":-0.5'),
        good.replace(b'"max_abs":64.0', b'"max_abs":1e9'),
        good.replace(b'"max_abs":64.0', b'"max_abs":1e999'),
        good.replace(b'"fill":null', b'"fill":"0"'),
        good.replace(
            b'"columns":[', b'"columns":[' + good[good.index(b"[") + 1 : good.index(b"]")] + b","
        ),
        sparse_json.replace(b'"max_abs":[8.0,', b'"max_abs":['),
    ):
        assert bad not in (good, sparse_json)
        with pytest.raises(IntegrityError, match="malformed preprocessor"):
            Preprocessor.from_json(bad)


def test_the_report_in_words() -> None:
    table = table_of(MIXED)
    fitted = Preprocessor.fit(table, spec(types={"n": "whole"}, missing="zero"))
    new = table_of({"x": ["1", "na"], "n": ["1", "0"], "c": ["new", "b"], "k": ["5", "6"]})
    assert fitted.transform(new)[1].lines() == [
        "2 rows, 7 feature columns",
        "column 'k': constant, so it is 0 everywhere; exclude it",
        "column 'x': 1 missing values filled",
        "column 'c': 1 values pooled as other",
    ]
