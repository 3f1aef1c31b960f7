"""Rows as lines: every value comes back as it was, and what is none is refused."""

import sqlite3

import hypothesis
import pytest
from hypothesis import strategies

from platform_server.backup import failures, rows

VALUES = (
    strategies.none()
    | strategies.integers(-(2**63), 2**63 - 1)
    | strategies.text(strategies.characters(exclude_categories=["Cs"]))
    | strategies.binary()
)


@hypothesis.given(strategies.lists(strategies.tuples(VALUES, VALUES), max_size=5))
@hypothesis.settings(deadline=None)
def test_every_value_comes_back(values: list[tuple[object, object]]) -> None:
    made = [{"a": first, "b": second} for first, second in values]
    content = b"".join(rows.line(one, columns=["a", "b"]) for one in made)
    assert content.count(b"\n") == len(made)
    assert rows.parse(content) == made


def test_the_columns_are_those_of_the_row() -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    row = connection.execute("SELECT 1 AS one, x'00ff' AS two").fetchone()
    connection.close()
    assert rows.columns_of(row) == ["one", "two"]
    assert rows.parse(rows.line(row, columns=["one", "two"])) == [{"one": 1, "two": b"\x00\xff"}]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"1",
        b'{"a":1.5}',
        b'{"a":true}',
        b'{"a":[1]}',
        b'{"a":{}}',
        b'{"a":{"base64":1}}',
        b'{"a":{"base64":"?"}}',
        b'{"a":{"hex":"00"}}',
        b'{"a":"\xff"}',
    ],
)
def test_what_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(failures.Damaged):
        rows.parse(line + b"\n")


def test_a_value_that_no_column_holds_is_a_fault_of_ours() -> None:
    with pytest.raises(TypeError):
        rows.line({"a": 1.5}, columns=["a"])
