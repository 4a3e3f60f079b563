"""What a party says about its file, checked; ids and labels taken out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from colonnade.data.libsvm import parse_libsvm
from colonnade.data.readers import ReadOptions
from colonnade.data.schema import (
    Schema,
    SourceSpec,
    id_columns,
    infer_types,
    label_values,
    read_source,
    suggested_scaling,
)
from colonnade.data.table import Table
from colonnade.errors import DataError, UsageError
from colonnade.protocol.psi import IdType, encode_ids

PATH = Path("people.csv")


def table_of(**columns: list[Any]) -> Table:
    frame = pl.DataFrame(columns)
    numbers = np.arange(2, frame.height + 2, dtype=np.int64)
    return Table(source="people.csv", row_numbers=numbers, frame=frame)


PEOPLE = table_of(
    id=["007", " 7", "8"],
    age=["31", "?", "40"],
    town=["Köln", "", "Bonn"],
    member=[True, False, True],
    income=[10.0, 20.5, None],
    bought=["yes", "no", "yes"],
)


def spec(**changes: Any) -> SourceSpec:
    return SourceSpec(**({"path": PATH, "ids": ("id",), "label": "bought"} | changes))


def test_everything_but_ids_and_label_is_offered_and_typed() -> None:
    assert spec().check(PEOPLE) == Schema(
        ("age", "town", "member", "income"),
        {"age": "numeric", "town": "categorical", "member": "whole", "income": "numeric"},
    )


def test_offer_exclude_and_stated_types() -> None:
    stated = spec(exclude=("income", "member"), types={"age": "categorical", "income": "whole"})
    assert stated.check(PEOPLE).kinds == {"age": "categorical", "town": "categorical"}
    assert spec(offer=("town", "age")).check(PEOPLE).features == ("town", "age")
    assert spec(offer=()).check(PEOPLE).features == (), "a label party without features"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offer": ("age", "bought")}, "offer: got the label column 'bought'"),
        ({"offer": ("id",)}, "offer: got the id column 'id'"),
        ({"offer": ("age", "age")}, "offer: got a column twice"),
        ({"offer": "age"}, "offer: got 'age'"),
        ({"offer": ("age",), "exclude": ("age",)}, "offer: got 'age', which exclude lists too"),
        ({"label": "id"}, "label: got the id column 'id'"),
        ({"ids": ()}, "ids: got"),
        ({"ids": "id"}, 'want a list of columns or "row"'),
        ({"ids": ("id", "id")}, "ids: got"),
        ({"id_types": ("text", "text")}, "got 2 types for 1 id columns"),
        ({"id_types": ("number",)}, "id_types: got 'number'; want one of text, integer"),
        ({"ids": "row", "id_types": ("text",)}, "got types for ids"),
        ({"scaling": "standart"}, "did you mean 'standard'"),
        ({"missing": "drop"}, "missing: got 'drop'"),
        ({"duplicates": "last"}, "duplicates: got 'last'"),
        ({"types": {"age": "number"}}, "types.age: got 'number'"),
        ({"ranges": {"age": 0.0}}, "ranges.age: got 0.0"),
        ({"ranges": {"age": float("nan")}}, "ranges.age: got nan"),
        ({"ranges": {"age": 40_000.0}}, "ranges.age: got 40000.0"),
        ({"format": "xls"}, "format: got 'xls'"),
        ({"max_categories": 0}, "max_categories: got 0"),
    ],
)
def test_statements_that_contradict_themselves(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": "baught"}, r"label: got 'baught', .* people\.csv; did you mean 'bought'"),
        ({"ids": ("idd",)}, "ids: got 'idd'.*did you mean 'id'"),
        ({"offer": ("agee",)}, "offer: got 'agee'.*did you mean 'age'"),
        ({"exclude": ("tawn",)}, "exclude: got 'tawn'.*did you mean 'town'"),
        ({"types": {"incom": "numeric"}}, "types: got 'incom'.*did you mean 'income'"),
        ({"ranges": {"ages": 3.0}}, "ranges: got 'ages'.*did you mean 'age'"),
        ({"ranges": {"town": 3.0}}, "ranges.town: the column is categorical"),
        ({"ranges": {"age": 3.0}, "scaling": "minmax"}, "already gives a range of 1"),
    ],
)
def test_statements_that_the_table_contradicts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec(**changes).check(PEOPLE)


def test_sparse_tables() -> None:
    table = parse_libsvm(b"1 1:1 3:2\n-1 2:1\n", "s.libsvm")
    sparse = SourceSpec(path=PATH, label="label", scaling="none", exclude=("2",))
    assert sparse.check(table).features == ("1", "3")
    assert label_values(table, sparse) == [1.0, -1.0]
    assert id_columns(table, sparse) == [[1, 2]]
    assert suggested_scaling(table) == "none"
    with pytest.raises(UsageError, match='set scaling = "none" or "maxabs"'):
        SourceSpec(path=PATH).check(table)
    with pytest.raises(UsageError, match="all numeric"):
        SourceSpec(path=PATH, scaling="none", types={"1": "whole"}).check(table)
    with pytest.raises(UsageError, match='has none; set ids = "row"'):
        SourceSpec(path=PATH, scaling="none", ids=("1",)).check(table)
    with pytest.raises(UsageError, match='want "label", the first field'):
        SourceSpec(path=PATH, scaling="none", label="target").check(table)
    with pytest.raises(DataError, match="lines without labels"):
        label_values(parse_libsvm(b"1:1\n", "s.libsvm"), sparse)


def test_a_range_for_every_column_is_for_sparse_tables() -> None:
    table = parse_libsvm(b"1 1:1 3:2\n", "s.libsvm")
    assert SourceSpec(path=PATH, scaling="none", ranges={"*": 2.0}).check(table).features
    with pytest.raises(UsageError, match=r"ranges: got '\*', which is no column of people\.csv"):
        spec(ranges={"*": 2.0}).check(PEOPLE)


def test_type_inference() -> None:
    table = table_of(
        a=["1", " 2.5 ", "-1e3"],
        b=["1", "NA", "null"],
        c=["1", "x", "2"],
        d=["1", "1,5", "2"],
        e=[" nan", "?", ""],
        f=[1, 2, 3],
        g=["0x10", "1", "1"],
        h=["true", "false", "true"],
    )
    kinds = infer_types(table)
    assert [name for name, kind in kinds.items() if kind == "categorical"] == ["c", "d", "g", "h"]
    assert suggested_scaling(table) == "standard"


def test_text_ids_are_the_files_own() -> None:
    table = table_of(id=["007", " 7", "7", "7.0"], n=[7, 8, 9, 10])
    two = SourceSpec(path=PATH, ids=("id", "n"))
    assert id_columns(table, two) == [["007", " 7", "7", "7.0"], ["7", "8", "9", "10"]]


def test_integer_ids_go_by_value() -> None:
    text = table_of(id=["007", " 7", "7", "7.0", "-12"])
    floats = table_of(id=[7.0, 8.0])
    keys = SourceSpec(path=PATH, ids=("id",), id_types=("integer",))
    assert id_columns(text, keys) == [[7, 7, 7, 7, -12]]
    assert id_columns(floats, keys) == [[7, 8]]
    assert keys.key_types == (IdType.INTEGER,)


def test_a_value_is_an_id_here_exactly_where_it_has_a_normal_form() -> None:
    values = ["007", " 7 ", "7.0", "7.5", "x", "", None, 7, 7.0, 7.5, True, float("nan")]
    for kind in IdType:
        for value in values:
            columns = table_of(id=pl.Series([value]))
            keys = SourceSpec(path=PATH, ids=("id",), id_types=(kind,))
            try:
                want = encode_ids([[value]], [kind])
            except DataError:
                with pytest.raises(DataError, match="row 2, column 'id'"):
                    id_columns(columns, keys)
            else:
                assert encode_ids(id_columns(columns, keys), [kind]) == want


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("integer", ["1", "7.5"]),
        ("integer", ["1", "secret"]),
        ("integer", [1.0, 2.0**60]),
        ("integer", [True, False]),
        ("text", [1.5, 2.0]),
        ("text", ["1", " "]),
        ("text", ["1", None]),
        ("text", [1.0, float("nan")]),
    ],
)
def test_bad_ids_are_named_by_place_and_never_shown(kind: str, cells: list[Any]) -> None:
    keys = spec(id_types=(kind,), label=None)
    with pytest.raises(DataError, match=r"people\.csv, row [23], column 'id'") as caught:
        id_columns(table_of(id=cells), keys)
    assert "secret" not in str(caught.value)


def test_labels_and_reading_by_statement(tmp_path: Path) -> None:
    assert label_values(PEOPLE, spec()) == ["yes", "no", "yes"]
    with pytest.raises(UsageError, match="label: got none"):
        label_values(PEOPLE, spec(label=None))
    path = tmp_path / "raw.data"
    path.write_text("1|a\n")
    options = ReadOptions(separator="|", columns=("id", "x"))
    table = read_source(SourceSpec(path=path, ids=("id",), options=options))
    assert table.frame.rows() == [("1", "a")]
