"""When absence may be believed, and what is ever ours."""

import dataclasses
import datetime

import pytest

from platform_server.cloud import attempts, lookup
from provisioning import contract, providers

NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
OWNER = contract.Owner(
    installation="p-abc", infra="default", operation="0123", node="web-1", attempt=1
)
STRICT = contract.LookupRules(clean_answers=3, settle=datetime.timedelta(minutes=3))
LOCAL = contract.LookupRules(clean_answers=1, settle=datetime.timedelta())


def _attempt(*, clean: int = 0, doubted: float = 600.0, sent: float = 600.0) -> attempts.Attempt:
    return attempts.Attempt(
        operation_id="0123",
        attempt=1,
        machine_id="m",
        request=contract.Request(
            owner=OWNER,
            name="web-1-abc",
            client_token="t",
            region="here",
            size="s",
            image="i",
            first_boot="",
        ),
        enrollment_id="e",
        state=attempts.State.SENT,
        written_at=NOW,
        clean_answers=clean,
        doubted_at=NOW - datetime.timedelta(seconds=doubted),
        sent_at=NOW - datetime.timedelta(seconds=sent),
    )


def _instance(owner: contract.Owner | None, *, ref: str = "m-1") -> contract.Instance:
    return contract.Instance(
        ref=ref,
        name="web-1-abc",
        region="here",
        power=contract.Power.RUNNING,
        raw_state="running",
        owner=owner,
    )


def _judge(
    *instances: contract.Instance,
    attempt: attempts.Attempt | None = None,
    complete: bool = True,
    rules: contract.LookupRules = STRICT,
) -> object:
    sightings = contract.Sightings(instances=instances, is_complete=complete)
    return lookup.judge(sightings, attempt=attempt or _attempt(), rules=rules, now=NOW)


def test_what_carries_our_ids_is_found_whatever_else_is_there() -> None:
    mine = _instance(OWNER, ref="m-2")
    found = _judge(_instance(None), mine)
    assert found == lookup.Found(mine)


@pytest.mark.parametrize("field", ["installation", "operation", "attempt"])
def test_a_matching_name_with_other_ids_is_not_ours(field: str) -> None:
    changed: object = 2 if field == "attempt" else "other"
    owner = dataclasses.replace(OWNER, **{field: changed})  # type: ignore[arg-type]
    assert _judge(_instance(owner)) == lookup.Unsettled(1)


def test_absence_takes_so_many_clean_answers_over_so_long() -> None:
    assert _judge(attempt=_attempt(clean=1)) == lookup.Unsettled(2)
    assert _judge(attempt=_attempt(clean=2)) == lookup.Absent()
    assert _judge(attempt=_attempt(clean=9, doubted=179.0)) == lookup.Unsettled(10)


def test_a_partial_answer_is_no_clean_one_and_begins_anew() -> None:
    assert _judge(attempt=_attempt(clean=9), complete=False) == lookup.Unsettled(0)


def test_our_very_name_without_tags_may_still_get_them() -> None:
    assert _judge(_instance(None), attempt=_attempt(clean=9)) == lookup.Unsettled(0)


def test_a_call_that_was_cut_off_may_still_be_at_work() -> None:
    rules = dataclasses.replace(STRICT, clean_answers=1, settle=datetime.timedelta(seconds=1))
    young = _attempt(clean=5, doubted=60.0, sent=89.0)
    assert _judge(attempt=young, rules=rules) == lookup.Unsettled(6)
    assert _judge(attempt=_attempt(sent=1.0, doubted=0.0), rules=LOCAL) == lookup.Absent()


def test_of_two_that_carry_the_same_ids_the_first_is_taken_and_the_other_named() -> None:
    first = dataclasses.replace(_instance(OWNER, ref="b"), created_at=NOW)
    second = dataclasses.replace(
        _instance(OWNER, ref="a"), created_at=NOW + datetime.timedelta(seconds=1)
    )
    assert _judge(second, first) == lookup.Found(first, (second,))


def test_no_absence_is_believed_while_a_create_call_may_still_run() -> None:
    """However the limits are set, what a driver may still send counts as not answered."""
    for connect in (0.5, 10.0, 60.0):
        for create in (60.0, 120.0, 600.0):
            limits = providers.TimeLimits(connect=connect, create=create)
            assert limits.longest_change.total_seconds() >= connect + create + 60
    longest = providers.TimeLimits().longest_change.total_seconds()
    rules = contract.LookupRules(clean_answers=1, settle=datetime.timedelta(seconds=30))
    early = _judge(attempt=_attempt(clean=9, sent=longest - 1), rules=rules)
    assert isinstance(early, lookup.Unsettled)
    late = _judge(attempt=_attempt(clean=9, sent=longest), rules=rules)
    assert isinstance(late, lookup.Absent)
