"""Bodies and queries: strict, bounded, and refused by the name of the field."""

import string
from typing import Annotated

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_server.endpoints import cursors, mutations, parsing, refusals, routes
from wire_protocol import admin


class _Query(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    number: Annotated[int, pydantic.Field(ge=0)] = 0
    words: list[str] = []


@pytest.mark.parametrize(
    ("raw", "code", "field"),
    {
        "nothing": (b"", "malformed", None),
        "half an object": (b'{"name":', "malformed", None),
        "NaN, which no field takes": (b'{"name": NaN}', "invalid", "name"),
        "not UTF-8": (b'{"name":"\xff"}', "malformed", None),
        "a lone surrogate": (b'{"name":"\\ud800"}', "malformed", None),
        "a deep nest": (b"[" * 5000, "malformed", None),
        "a list": (b"[]", "invalid", None),
        "a NUL": (b'{"name":"a\\u0000"}', "invalid", None),
        "a missing field": (b'{"name":"a"}', "invalid", "permissions"),
        "a number for a text": (b'{"name":1,"permissions":["nodes.view"]}', "invalid", "name"),
        "an unknown field": (
            b'{"name":"a","permissions":["nodes.view"],"uses":5}',
            "invalid",
            "uses",
        ),
    }.values(),
)
def test_a_body_out_of_shape_is_refused_by_name(raw: bytes, code: str, field: str | None) -> None:
    with pytest.raises(refusals.Refusal) as refused:
        parsing.read_body(raw, model=admin.CreateApiTokenRequest)
    assert (refused.value.code, refused.value.members.get("field")) == (code, field)


@given(raw=st.binary(max_size=200))
def test_no_body_is_a_fault_of_ours(raw: bytes) -> None:
    with pytest.raises(refusals.Refusal):
        parsing.read_body(raw, model=admin.CreateApiTokenRequest)


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(refusals.Refusal) as refused:
        parsing.read_body(b'{"name":"s3cret\\n","permissions":[]}', model=admin.IssueRequest)
    assert "s3cret" not in refused.value.detail


def test_a_query_reads_numbers_and_lists() -> None:
    query = parsing.read_query([("number", "7"), ("words", "a"), ("words", "b")], model=_Query)
    assert query == _Query(number=7, words=["a", "b"])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ([("number", "x")], "number"),
        ([("number", "-1")], "number"),
        ([("number", "1"), ("number", "1")], "number"),
        ([("color", "red")], "color"),
    ],
)
def test_a_query_out_of_shape_is_refused_by_name(fields: list[tuple[str, str]], field: str) -> None:
    with pytest.raises(refusals.Refusal) as refused:
        parsing.read_query(fields, model=_Query)
    assert refused.value.members["field"] == field


def test_a_query_that_a_route_does_not_know_is_refused() -> None:
    with pytest.raises(refusals.Refusal):
        parsing.read_query([("check", "true")], model=routes.NoQuery)


@given(
    number=st.integers(min_value=0, max_value=10**18 - 1),
    name=st.text(alphabet=string.ascii_lowercase + string.digits + "-", min_size=1, max_size=64),
)
def test_a_cursor_is_read_as_it_was_written(number: int, name: str) -> None:
    assert cursors.decode(cursors.encode(number, name), kinds=(int, str)) == (number, name)


@given(text=st.text(alphabet=string.printable + "ü\u0662", max_size=80))
def test_a_cursor_is_read_back_whole_or_refused_by_name(text: str) -> None:
    try:
        key = cursors.decode(text, kinds=(int, str))
    except refusals.Refusal as refused:
        fault = refused.members["field"]
    else:
        fault = None
        assert cursors.encode(*key) == text
    assert fault in (None, "cursor")


@pytest.mark.parametrize("text", ["", "a b", "ü", "x" * 129, "a\n"])
def test_an_idempotency_key_out_of_shape_is_refused(text: str) -> None:
    with pytest.raises(refusals.Refusal) as refused:
        mutations.read_key(text)
    assert refused.value.members["field"] == "Idempotency-Key"
