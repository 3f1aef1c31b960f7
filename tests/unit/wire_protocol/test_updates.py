"""Orders that change which release runs: every field within its bounds, and no field beside."""

from typing import Any

import pytest

from wire_protocol import helper_protocol as helper
from wire_protocol import orders, statements, strict_json, updates

UPDATE = updates.Update(
    version="0.2.0",
    release="0.2.0-0123456789ab",
    archive_sha256="ab" * 32,
    size=12_345,
    urls=("https://platform.example:8446/bundles/sha256/" + "ab" * 32, "https://[2001:db8::1]/a"),
)

WRONG: dict[str, dict[str, Any]] = {
    "a version out of shape": {"version": "two"},
    "a release of another version": {"release": "0.3.0-0123456789ab"},
    "a release that climbs folders": {"release": "../0.2.0-0123456789ab"},
    "a release with too short a hash": {"release": "0.2.0-0123456789a"},
    "a hash in capitals": {"archive_sha256": "AB" * 32},
    "a hash with a line end": {"archive_sha256": "ab" * 32 + "\n"},
    "an empty archive": {"size": 0},
    "an archive without bound": {"size": updates.MOST_ARCHIVE_BYTES + 1},
    "a size that is true": {"size": True},
    "no address": {"urls": []},
    "an http address": {"urls": ["http://platform.example/a"]},
    "an address with a user name": {"urls": ["https://root@platform.example/a"]},
    "an address with a fragment": {"urls": ["https://platform.example/a#b"]},
    "an address with a line end": {"urls": ["https://platform.example/a\r\nHost: b"]},
    "an address without a host": {"urls": ["https:///a"]},
    "an address with no port there is": {"urls": ["https://platform.example:99999/a"]},
    "too many addresses": {"urls": ["https://platform.example/a"] * 9},
    "a field beside": {"command": "true"},
}


def test_an_update_is_read_as_it_was_written() -> None:
    assert updates.parse_update(UPDATE.to_content()) == UPDATE


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_an_update_out_of_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(strict_json.Malformed):
        updates.parse_update({**UPDATE.to_content(), **change})


@pytest.mark.parametrize("field", UPDATE.to_content())
def test_no_field_may_be_missing(field: str) -> None:
    content = UPDATE.to_content()
    del content[field]
    with pytest.raises(strict_json.Malformed, match=field):
        updates.parse_update(content)


def test_a_roll_back_says_nothing_more() -> None:
    updates.require_roll_back({})
    with pytest.raises(strict_json.Malformed, match="release"):
        updates.require_roll_back({"release": UPDATE.release})


def test_a_request_to_the_helper_is_read_as_it_was_written() -> None:
    signed = orders.SignedOrder(
        content=b'{"a":1}',
        signatures=(statements.Signature(key_id=_key_id(), signature=b"s" * 64),),
    )
    verb, fields = helper.parse_verb(helper.write_order(helper.Verb.UPDATE, signed))
    assert verb is helper.Verb.UPDATE
    assert helper.parse_order(fields) == signed


def test_a_request_without_a_known_verb_is_refused() -> None:
    with pytest.raises(strict_json.Malformed):
        helper.parse_verb(b'{"verb":"shell"}\n')


def test_the_helpers_answers_are_read_as_they_were_written() -> None:
    assert helper.parse_staged(helper.write_staged(UPDATE.release)).release == UPDATE.release
    with pytest.raises(helper.Refused, match=r"Not signed\.") as refused:
        helper.parse_staged(helper.write_refusal("not-signed", "Not signed."))
    assert refused.value.code == "not-signed"


def test_an_answer_that_says_neither_is_no_answer() -> None:
    with pytest.raises(strict_json.Malformed):
        helper.parse_staged(b'{"state":"done"}\n')


def _key_id() -> Any:
    return "0123456789abcdef"
