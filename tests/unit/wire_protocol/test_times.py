"""Times from outside: whatever the text, it is a moment in UTC or a `ValueError`, nothing else."""

import datetime

import hypothesis
import pytest
from hypothesis import strategies as st

from operator_cli import moments
from platform_server.endpoints import audit_log
from wire_protocol import enrollment_token, health, ids, join_token, strict_json, times

OUT_OF_RANGE = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59"]

_OFFSETS = st.timedeltas(
    min_value=datetime.timedelta(hours=-23, minutes=-59),
    max_value=datetime.timedelta(hours=23, minutes=59),
).map(datetime.timezone)
ANY_TEXT = st.one_of(
    st.text(max_size=50),
    st.from_regex(r"[0-9TWZ:+.,\-]{1,45}", fullmatch=True),
    st.datetimes(timezones=_OFFSETS).map(datetime.datetime.isoformat),
    st.sampled_from(OUT_OF_RANGE),
)


@hypothesis.given(text=ANY_TEXT)
def test_no_text_makes_anything_but_a_value_error(text: str) -> None:
    try:
        moment = times.from_rfc3339(text)
    except ValueError:
        return
    assert times.from_rfc3339(times.to_rfc3339(moment)) == moment
    assert moment.utcoffset() == datetime.timedelta(0)


@hypothesis.given(text=ANY_TEXT)
def test_a_person_is_shown_any_text_that_stands_for_a_time(text: str) -> None:
    moments.local(text)
    moments.ago(text, now=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))


@pytest.mark.parametrize("text", OUT_OF_RANGE)
def test_a_moment_that_has_no_utc_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="outside of the years 1 to 9999"):
        times.from_rfc3339(text)


@pytest.mark.parametrize("text", OUT_OF_RANGE)
def test_an_agent_whose_time_is_none_has_answered_wrongly(text: str) -> None:
    said = health.AgentHealth(
        node_id=ids.NodeId("w1"),
        agent_id=ids.AgentId("agent-w1"),
        version="0.1.0",
        now=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        trust_keys=(),
    )
    body = said.to_bytes().replace(b"2026-01-01T00:00:00Z", text.encode())
    with pytest.raises(strict_json.Malformed, match=r"health\.now"):
        health.parse(body)


@pytest.mark.parametrize("text", OUT_OF_RANGE)
def test_the_log_of_actions_is_not_searched_from_a_time_that_is_none(text: str) -> None:
    with pytest.raises(Exception, match="since") as refused:
        audit_log._moment(text)
    assert "invalid" in repr(vars(refused.value))


@pytest.mark.parametrize("text", OUT_OF_RANGE)
def test_a_join_token_whose_end_is_no_time_is_out_of_shape(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = join_token.JoinToken(
        url="https://p.example:8444",
        node_id=ids.NodeId("w1"),
        token=enrollment_token.new(),
        pins=(),
        trust_key_ids=(),
        expires_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    )
    with monkeypatch.context() as patch:
        patch.setattr(times, "to_rfc3339", lambda _moment: text)
        written = join_token.encode(join)
    with pytest.raises(ValueError, match="outside of the years"):
        join_token.decode(written)
