"""Google's references, codes, images and operations, read without a wire."""

import uuid

import pytest

from provisioning import contract, naming, outcomes
from provisioning.gcp import bodies, calls, errors, places, reading

Outcome, Topic = outcomes.Outcome, outcomes.Topic
LINK = "https://www.googleapis.com/compute/v1/projects/p-1/zones/us-central1-a/instances/n-1"
OWNER = contract.Owner(installation="i-1", infra="default", operation="o-1", node="n-1", attempt=1)


def error(status: str, *reasons: str, details: tuple[str, ...] = ()) -> dict[str, object]:
    """An error with all the words that Google may use at once."""
    return {
        "error": {
            "code": 403,
            "message": "words",
            "status": status,
            "errors": [{"reason": one} for one in reasons],
            "details": [{"reason": one} for one in details],
        }
    }


CODES = {
    "the closest known word counts": (
        error("PERMISSION_DENIED", "forbidden", details=("SERVICE_DISABLED",)),
        "SERVICE_DISABLED",
    ),
    "a reason before the status": (error("RESOURCE_EXHAUSTED", "quotaExceeded"), "quotaExceeded"),
    "the status where nothing else is known": (
        error("UNAVAILABLE", "somethingNew"),
        "UNAVAILABLE",
    ),
    "the first where none is known": (error("NEW_STATUS", "somethingNew"), "somethingNew"),
    "a page of some proxy": ("<html>", ""),
    "an answer of the token door": ({"error": "invalid_grant"}, ""),
}


@pytest.mark.parametrize(("body", "code"), CODES.values(), ids=CODES.keys())
def test_of_many_words_the_closest_that_is_known_counts(body: object, code: str) -> None:
    assert errors.read(body)[0] == code


def test_a_link_and_a_reference_are_taken_apart_alike() -> None:
    spot = places.spot_of(LINK)
    assert spot == places.spot_of(spot.ref)
    assert (spot.zone, spot.region, spot.name) == ("us-central1-a", "us-central1", "n-1")


@pytest.mark.parametrize(
    "ref",
    [
        "zones/../instances/x",
        "zones/a/instances/x?y",
        "zones/a/instances/X",
        "zones/a/images/x",
        "instances/x",
        "",
    ],
)
def test_what_is_no_reference_leads_nowhere(ref: str) -> None:
    with pytest.raises(ValueError, match="is no reference"):
        places.spot_of(ref)


IMAGES = {
    "a family": ("debian-cloud/debian-12", "projects/debian-cloud/global/images/family/debian-12"),
    "an image": ("projects/p/global/images/x-1", "projects/p/global/images/x-1"),
    "a family by its path": (
        "projects/p/global/images/family/x",
        "projects/p/global/images/family/x",
    ),
}


@pytest.mark.parametrize(("wanted", "source"), IMAGES.values(), ids=IMAGES.keys())
def test_an_image_is_given_by_family_or_path(wanted: str, source: str) -> None:
    assert bodies.image(wanted, project="p-1") == {"sourceImage": source}


def test_a_snapshot_of_ours_is_taken_from_our_own_project() -> None:
    assert bodies.image("global/snapshots/s-1", project="p-1") == {
        "sourceSnapshot": "projects/p-1/global/snapshots/s-1"
    }


@pytest.mark.parametrize("wanted", ["debian-12", "a/b/c", "projects/p/zones/z/x", "https://x/y"])
def test_what_is_no_image_is_said_with_the_forms_there_are(wanted: str) -> None:
    with pytest.raises(ValueError, match="PROJECT/FAMILY"):
        bodies.image(wanted, project="p-1")


def test_a_request_id_is_a_uuid_that_only_the_token_decides() -> None:
    tokens = [naming.client_token(OWNER, zone=zone) for zone in ("a", "a", "b")]
    ids = [uuid.UUID(bodies.request_id(token)) for token in tokens]
    assert ids[0] == ids[1] != ids[2]
    assert all(one.version == 4 for one in ids)


def test_a_finished_operation_tells_cause_alternatives_and_where_to_mend_it() -> None:
    operation = {
        "status": "DONE",
        "error": {
            "errors": [
                {
                    "code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                    "message": "no room",
                    "errorDetails": [
                        {"errorInfo": {"metadatas": {"zonesAvailable": "z-b, z-c"}}},
                        {"help": {"links": [{"url": "javascript:x"}, {"url": "https://help"}]}},
                    ],
                }
            ]
        },
    }
    fault = errors.of_an_operation("POST x", operation)
    assert fault is not None
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    assert (fault.hints, fault.link) == (("z-b", "z-c"), "https://help")
    assert errors.of_an_operation("POST x", {"status": "DONE"}) is None


def test_a_firewall_rule_is_ours_only_by_what_its_description_says() -> None:
    request = contract.Request(
        owner=OWNER,
        name="n-1",
        client_token="t",
        region="r",
        size="s",
        image="a/b",
        first_boot="#cloud-config\n",
    )
    rule = bodies.rule(request, name="n-1-security-group", sources=("192.0.2.0/24",))
    assert reading.owner_of(rule) == OWNER
    assert reading.owner_of({**rule, "description": "n-1-security-group"}) is None
    assert reading.owner_of({**rule, "description": "[]"}) is None


def test_every_call_that_is_no_reading_of_google_is_announced_as_a_change() -> None:
    told = {call.name for call in calls.CALLS if not call.changes}
    reading_calls = {call.name for call in calls.CALLS if call.name.startswith("GET ")}
    assert told == reading_calls | {calls.TOKEN.name, calls.TEST_RIGHTS.name}
