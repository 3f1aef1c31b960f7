"""The strings that people copy: enrollment tokens, join tokens, pins, node ids."""

import base64
import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire_protocol import enrollment_token, ids, join_token, pins

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
PIN = pins.Pin("sha256:" + "ab" * 32)


def a_join_token() -> join_token.JoinToken:
    return join_token.JoinToken(
        url="https://p.example:8444",
        node_id=ids.NodeId("web-1"),
        token=enrollment_token.new(),
        pins=(PIN,),
        trust_key_ids=(ids.KeyId("0" * 16),),
        expires_at=NOW,
    )


def test_a_token_reads_back_as_it_was_made() -> None:
    token = enrollment_token.new()
    assert enrollment_token.parse(token.text()) == token
    assert len(token.text()) == enrollment_token.LENGTH


def test_every_single_typing_error_in_a_token_is_noticed() -> None:
    text = enrollment_token.new().text()
    for place in range(len(text)):
        wrong = text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]
        with pytest.raises(ValueError, match="token"):
            enrollment_token.parse(wrong)


def test_a_token_prints_neither_its_secret_nor_itself() -> None:
    token = enrollment_token.new()
    assert token.secret_hex not in repr(token)
    with pytest.raises(ValueError, match="enrollment token") as caught:
        enrollment_token.parse(token.text()[:-1])
    assert token.secret_hex not in str(caught.value)


def test_a_join_token_reads_back_as_it_was_made() -> None:
    join = a_join_token()
    assert join_token.decode(join_token.encode(join)) == join


@pytest.mark.parametrize("around", ["{}\n", " '{}' ", '"{}"', "\ufeff{}\r\n", "\t{}  \n\n"])
def test_a_join_token_survives_what_pasting_puts_around_it(around: str) -> None:
    join = a_join_token()
    assert join_token.decode(around.format(join_token.encode(join))) == join


def test_an_unknown_form_of_join_token_asks_for_an_update() -> None:
    raw = base64.urlsafe_b64encode(json.dumps({"v": 2}).encode()).rstrip(b"=").decode()
    with pytest.raises(join_token.NewerJoinToken, match="update Enlist on this machine"):
        join_token.decode("enj_" + raw)


@pytest.mark.parametrize(
    "broken",
    ["", "enj_", "enj_!!", "enj_e30", "enj_bnVsbA", "ent_" + "0" * 20, "enj_" + "A" * 5000],
)
def test_a_broken_join_token_is_refused_with_a_sentence(broken: str) -> None:
    with pytest.raises(ValueError, match="join token"):
        join_token.decode(broken)


@given(st.binary(max_size=200))
def test_no_text_at_all_breaks_the_join_token_reader(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        join_token.decode("enj_" + content.decode("latin-1"))


@pytest.mark.parametrize(
    "written",
    [
        "sha256:" + "AB" * 32,
        "SHA256:" + ":".join(["ab"] * 32),
        "sha256//" + base64.b64encode(bytes.fromhex("ab" * 32)).decode(),
        "  sha256:" + "ab" * 32 + "\n",
        "sha256 Fingerprint=" + ":".join(["AB"] * 32),
    ],
)
def test_a_pin_is_read_in_every_way_people_write_it(written: str) -> None:
    assert pins.parse_pin(written) == PIN


@pytest.mark.parametrize(
    "broken", ["", "sha256:", "sha256:" + "ab" * 31, "sha1:" + "ab" * 20, "g" * 64]
)
def test_a_pin_out_of_shape_is_refused_with_the_right_form(broken: str) -> None:
    with pytest.raises(ValueError, match="64 hex digits"):
        pins.parse_pin(broken)


@pytest.mark.parametrize(
    ("written", "read"),
    [("web-1", "web-1"), ("WEB-1", "web-1"), ("w1.", "w1"), ("a", "a"), ("a" * 63, "a" * 63)],
)
def test_a_node_id_ignores_case_and_one_trailing_dot(written: str, read: str) -> None:
    assert ids.parse_node_id(written) == read


@pytest.mark.parametrize(
    "broken",
    [
        "",
        ".",
        "-a",
        "a-",
        "a..",
        "a.b",
        "a_b",
        "ä",
        "\u212a",
        "a" * 64,
        "a\n",
        " a",
        "a/b",
        "a\x00",
    ],
)
def test_a_node_id_out_of_shape_is_refused_with_the_right_form(broken: str) -> None:
    with pytest.raises(ValueError, match="1 to 63 letters"):
        ids.parse_node_id(broken)
