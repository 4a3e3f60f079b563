"""CSV and Parquet files as people have them, read without changing or losing anything."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from colonnade.data.readers import ReadOptions, read_table
from colonnade.errors import DataError, UsageError


def write(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_cells_stay_the_text_they_were(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "id,amount\n007,1.50\n 7,\n7.0,NA\n"))
    assert table.column("id").to_list() == ["007", " 7", "7.0"]
    assert table.column("amount").to_list() == ["1.50", "", "NA"]
    assert table.row_numbers.tolist() == [2, 3, 4]


def test_byte_order_mark_crlf_quotes_and_trailing_blank_lines(tmp_path: Path) -> None:
    text = (
        b'\xef\xbb\xbf"customer id","note"\r\n1,"a ""b"", c"\r\n2,"two\r\nlines"\r\n3,x\r\n\r\n\r\n'
    )
    table = read_table(write(tmp_path, text))
    assert table.names == ("customer id", "note")
    assert table.column("note").to_list() == ['a "b", c', "two\r\nlines", "x"]
    assert table.row_numbers.tolist() == [2, 3, 5], "the line on which each record starts"


def test_unicode_names_are_normalised(tmp_path: Path) -> None:
    decomposed = "cafe\u0301"
    table = read_table(write(tmp_path, f"{decomposed}, größe ,年齢\n1,2,3\n"))
    assert table.names == ("caf\u00e9", "größe", "年齢")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_found_in_the_header(tmp_path: Path, separator: str) -> None:
    text = separator.join(["a", '"b,c;d\te"', "f"]) + "\n" + separator.join("123") + "\n"
    assert read_table(write(tmp_path, text)).names == ("a", "b,c;d\te", "f")


def test_a_stated_separator_and_names_for_a_file_without_header(tmp_path: Path) -> None:
    options = ReadOptions(separator="|", columns=("x", "y"))
    table = read_table(write(tmp_path, "1|2\n3|4\n"), options=options)
    assert table.frame.rows() == [("1", "2"), ("3", "4")]
    assert table.row_numbers.tolist() == [1, 2]


def test_no_rows_and_one_column(tmp_path: Path) -> None:
    assert len(read_table(write(tmp_path, "a,b\n"))) == 0
    assert read_table(write(tmp_path, "only\n1\n\n2\n")).column("only").to_list() == ["1", "2"]


def test_many_rows_cross_the_chunk_border(tmp_path: Path) -> None:
    count = 40_000
    table = read_table(write(tmp_path, "n\n" + "\n".join(map(str, range(count)))))
    assert table.column("n").to_list() == [str(n) for n in range(count)]
    assert table.row_numbers[-1] == count + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", r"bad\.csv, line 3: got 1 fields; want 2"),
        ("a,b\n1,2,3\n", r"bad\.csv, line 2: got 3 fields; want 2"),
        ("a,b,a\n1,2,3\n", r"columns 1 and 3 are both named 'a'"),
        ("a,\n1,2\n", r"column 2 has no name"),
        ("", r"empty file"),
        ('a,b\n1,"open\n', r"line 2: malformed CSV"),
        ('a,b\n1,"x"y\n', r"line 2: malformed CSV"),
        (b"a,b\n1,\xff\n", r"byte 6 is not UTF-8"),
        ("a,b;c\n1,2;3\n", r"splits equally well at ',' and ';'"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path, text, "bad.csv"))


def test_gzip_and_its_faults(tmp_path: Path) -> None:
    packed = gzip.compress(b"a,b\n1,2\n")
    assert len(read_table(write(tmp_path, packed, "t.csv.gz"))) == 1
    for broken in (packed[:-6], b"not gzip", packed[:12] + b"\x00\x00" + packed[14:]):
        with pytest.raises(DataError, match=r"b\.csv\.gz: cannot be read"):
            read_table(write(tmp_path, broken, "b.csv.gz"))


def test_absent_files_and_unknown_formats(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="suffix names no format"):
        read_table(write(tmp_path, "", "t.xlsx"))
    with pytest.raises(UsageError, match="want one of csv, parquet, libsvm"):
        read_table(write(tmp_path, ""), format="excel")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="one character"):
        read_table(write(tmp_path, "a\n"), options=ReadOptions(separator="::"))


def test_parquet_keeps_types(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    frame = pl.DataFrame(
        {"n": [1, None], "x": [0.5, 2.0], "b": [True, False], "s": ["007", None]},
        schema={"n": pl.Int64, "x": pl.Float32, "b": pl.Boolean, "s": pl.String},
    )
    frame.with_columns(pl.Series("d", ["2020-01-31"] * 2).str.to_date()).write_parquet(path)
    table = read_table(path)
    assert table.frame.dtypes == [pl.Int64, pl.Float64, pl.Boolean, pl.String, pl.String]
    assert table.column("d").to_list() == ["2020-01-31"] * 2
    assert table.row_numbers.tolist() == [1, 2]


def test_bad_parquet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_table(write(tmp_path, "nonsense", "t.parquet"))
    nested = tmp_path / "n.parquet"
    pl.DataFrame({"l": [[1], [2]]}).write_parquet(nested)
    with pytest.raises(DataError, match=r"n\.parquet, column 'l'"):
        read_table(nested)


def test_take_and_unknown_columns(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "name,x\na,1\nb,2\nc,3\n"))
    taken = table.take(table.row_numbers[[2, 0]] - 2)
    assert taken.frame.rows() == [("c", "3"), ("a", "1")]
    assert taken.row_numbers.tolist() == [4, 2]
    with pytest.raises(DataError, match="did you mean 'name'"):
        table.column("nmae")
    with pytest.raises(UsageError, match="outside the 3 rows"):
        table.take(table.row_numbers)
