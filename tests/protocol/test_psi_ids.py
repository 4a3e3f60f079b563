"""The normal form of ids, their encoding, and duplicate policies."""

import itertools
import math
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import DataError, UsageError
from colonnade.protocol.psi import (
    IdType,
    apply_duplicate_policy,
    encode_ids,
    normal_form,
    normaliser_id,
)

TEXT, INTEGER = IdType.TEXT, IdType.INTEGER
FEW = settings(derandomize=True, max_examples=60, deadline=None)


def text(value):
    return encode_ids([[value]], [TEXT])[0]


def integer(value):
    return encode_ids([[value]], [INTEGER])[0]


def test_the_encoding_is_the_documented_one():
    assert text("7") == b"\x01" + (1).to_bytes(8, "little") + b"7"
    assert integer(7) == b"\x02" + (1).to_bytes(8, "little") + b"\x07"
    assert integer(-129) == b"\x02" + (2).to_bytes(8, "little") + b"\x7f\xff"
    assert encode_ids([["é"], [0]], [TEXT, INTEGER]) == [text("é") + integer(0)]


def test_the_normal_form_is_named_with_its_types():
    assert normaliser_id([TEXT, INTEGER]) == "colonnade-ids/1(text,integer)"
    assert normaliser_id(["integer"]) == "colonnade-ids/1(integer)"
    for types in ([], "text", ["number"], [None]):
        with pytest.raises(UsageError, match="text, integer"):
            normaliser_id(types)


@pytest.mark.parametrize(
    ("one", "other"),
    [(" 7", "7"), ("7\n", "7"), ("\u00a07\u2003", "7"), ("e\u0301", "é"), ("\u212b", "Å")],
)
def test_text_that_is_equal(one, other):
    assert text(one) == text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("007", "7"), ("a", "A"), ("ß", "ss"), ("a b", "a  b"), ("7", "7.0"), ("ﬁ", "fi"), ("0", "O")],
)
def test_text_that_differs(one, other):
    assert text(one) != text(other)


@pytest.mark.parametrize(
    "value", [7.0, np.int8(7), np.float64(7), "7", " +007 ", np.uint64(7), "7.0", " 07.", "+7.000"]
)
def test_integers_that_equal_7(value):
    assert integer(value) == integer(7)


def test_fractions_of_zeros_keep_every_digit_of_large_numbers():
    assert integer("123456789012345678901234567890.0") == integer(123456789012345678901234567890)
    assert integer("-7.0") == integer(-7) != integer("7.0")


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7)])
def test_whole_numbers_become_digits_as_text(value):
    assert text(value) == text("7")


def test_normal_forms_are_what_is_encoded():
    assert normal_form(" e\u0301", TEXT) == "é"
    assert normal_form("007.0", INTEGER) == 7
    for value in (" 7", "7.0"):
        assert text(normal_form(value, TEXT)) == text(value)
        assert integer(normal_form(value, INTEGER)) == integer(value)


def test_the_same_digits_as_text_and_as_integer_differ():
    assert text("7") != integer(7)


@pytest.mark.parametrize(
    "value",
    [None, math.nan, "", " ", "\u2003\n", 7.0, b"7", True, np.bool_(True), "\ud800", "\u0378"],
)
def test_values_refused_as_text(value):
    with pytest.raises(DataError):
        text(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            math.nan,
            math.inf,
            7.5,
            2.0**53 + 2,
            "",
            "7.5",
            "7.0.0",
            ".0",
            "seven",
            "1e3",
            "1_000",
            "٧",
            "--7",
        ),
        *(b"7", True, np.bool_(True), np.float32(7), 7 + 0j, [7], np.datetime64("2020-01-01")),
    ],
)
def test_values_refused_as_integers(value):
    with pytest.raises(DataError):
        integer(value)


def test_messages_name_file_column_and_row_but_no_value():
    with pytest.raises(DataError) as caught:
        encode_ids(
            [["a", "b"], [1, 123456.5]], [TEXT, INTEGER], "bank.csv", names=["branch", "customer"]
        )
    assert "bank.csv, column 'customer', row 1" in str(caught.value)
    assert "123456" not in str(caught.value)
    with pytest.raises(DataError, match="key column 0, row 0: the id is missing"):
        text(None)


def test_columns_types_and_names_must_fit():
    for columns, types, names in [
        ([["a"], ["b"]], [TEXT], ()),
        ([["a"], ["b", "c"]], [TEXT, TEXT], ()),
        ([["a"]], [TEXT], ["x", "y"]),
        ([], [], ()),
    ]:
        with pytest.raises(UsageError):
            encode_ids(columns, types, names=names)
    assert encode_ids([[], []], [TEXT, INTEGER]) == []


def test_composite_keys_never_meet_by_separators():
    tuples = [("a,b", "c"), ("a", "b,c"), ("ab", "c"), ("a", "bc"), ("c", "ab"), ("b,c", "a")]
    tuples += [('a","b', "c"), ("a", 'b","c'), ("a\x00", "b"), ("a", "\x00b"), ("a|b", "c")]
    encoded = encode_ids(list(zip(*tuples, strict=True)), [TEXT, TEXT])
    assert len(set(encoded)) == len(tuples)
    # A component may even hold the encoding of another one.
    inner = "\x01\x01\x00\x00\x00\x00\x00\x00\x00b"
    assert encode_ids([["a" + inner], ["c"]], [TEXT, TEXT]) != encode_ids(
        [["a"], ["b"], ["c"]], [TEXT, TEXT, TEXT]
    )


def parse(code: bytes) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    while code:
        size = int.from_bytes(code[1:9], "little")
        data = code[9 : 9 + size]
        assert len(data) == size
        parts.append(data.decode() if code[0] == 1 else int.from_bytes(data, "little", signed=True))
        code = code[9 + size :]
    return tuple(parts)


letters = st.text(st.characters(codec="utf-8", exclude_categories=("Cn", "Cs"))).filter(str.strip)


@FEW
@given(st.lists(st.tuples(letters, st.integers(), letters), min_size=1, max_size=8))
def test_the_encoding_parses_back_to_the_normal_form(rows):
    encoded = encode_ids(list(zip(*rows, strict=True)), [TEXT, INTEGER, TEXT])
    for (one, number, other), code in zip(rows, encoded, strict=True):
        normal = [unicodedata.normalize("NFC", value).strip() for value in (one, other)]
        assert parse(code) == (normal[0], number, normal[1])


@FEW
@given(letters)
def test_normalising_twice_changes_nothing(value):
    normal = parse(text(value))[0]
    assert text(normal) == text(value)


@FEW
@given(st.lists(st.sampled_from([b"a", b"b", b"c", b""]), max_size=12))
def test_duplicate_policies_against_their_definition(encoded):
    first = apply_duplicate_policy(encoded, "first")
    expected = [row for row, code in enumerate(encoded) if code not in encoded[:row]]
    assert first.rows.dtype == np.int64
    assert first.rows.tolist() == expected
    assert first.dropped_rows == len(encoded) - len(expected)
    none = apply_duplicate_policy(encoded, "refuse_all")
    assert none.rows.tolist() == [r for r, code in enumerate(encoded) if encoded.count(code) == 1]
    repeated = sum(encoded.count(code) > 1 for code in set(encoded))
    assert first.repeated_ids == none.repeated_ids == repeated
    assert none.dropped_rows == len(encoded) - len(none.rows)
    if repeated:
        with pytest.raises(DataError, match=f"got {repeated} repeated ids"):
            apply_duplicate_policy(encoded, "error")
    else:
        assert apply_duplicate_policy(encoded, "error").rows.tolist() == list(range(len(encoded)))


def test_the_error_policy_names_the_first_rows_and_no_id():
    codes = encode_ids([["secret-x", "y"] * 4], [TEXT])
    with pytest.raises(DataError) as caught:
        apply_duplicate_policy(codes, "error")
    assert "2 repeated ids in 8 rows (0, 1, 2, 3, 4, …)" in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match="refuse_all"):
        apply_duplicate_policy(codes, "last")


def test_all_pairs_of_look_alikes_have_different_codes():
    values = ["1", "01", "1.0", "1e0", "+1", "١", "l", "I", "NULL", "NA", "nan", "None", "null"]
    codes = [text(value) for value in values]
    assert all(one != other for one, other in itertools.combinations(codes, 2))
