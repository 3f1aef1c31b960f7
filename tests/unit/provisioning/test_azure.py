"""Azure's rights, references, codes and moments, read without a wire."""

import datetime

import pytest

from provisioning import contract, naming, outcomes, providers
from provisioning.azure import bodies, calls, errors, places, reading, rights

PLACE = places.Place(subscription="s-1", group="enlist")
VM = "/subscriptions/s-1/resourceGroups/enlist/providers/Microsoft.Compute/virtualMachines/n-1"

HELD = {
    "a star holds everything": (["*"], [], True),
    "a star in the middle stands for anything, slashes too": (
        ["Microsoft.Network/*/read"],
        [],
        True,
    ),
    "case does not count": (["microsoft.network/PUBLICIPADDRESSES/read"], [], True),
    "an exception takes it away": (["*"], ["Microsoft.Network/publicIPAddresses/*"], False),
    "another kind's exception does not": (["*"], ["Microsoft.Network/routeTables/*"], True),
    "a prefix is no right": (["Microsoft.Network/publicIPAddresses"], [], False),
    "a dot stands for a dot": (["MicrosoftXNetwork/publicIPAddresses/read"], [], False),
    "nothing holds nothing": ([], [], False),
}


@pytest.mark.parametrize(("actions", "exceptions", "held"), HELD.values(), ids=HELD.keys())
def test_a_grant_holds_what_its_actions_say_less_its_exceptions(
    actions: list[str], exceptions: list[str], *, held: bool
) -> None:
    grants = rights.grants_of([{"actions": actions, "notActions": exceptions}])
    right = "Microsoft.Network/publicIPAddresses/read"
    assert rights.missing([right], grants=grants) == (() if held else (right,))


def test_an_exception_of_one_role_takes_nothing_from_another() -> None:
    grants = rights.grants_of(
        [{"actions": ["*"], "notActions": ["a/b/write"]}, {"actions": ["a/b/write"]}, "noise"]
    )
    assert rights.missing(["a/b/write"], grants=grants) == ()


def test_a_reference_is_one_whatever_case_azure_writes_it_in() -> None:
    shouted = VM.replace("enlist", "ENLIST").replace("Compute", "compute")
    assert PLACE.same(shouted) == VM


@pytest.mark.parametrize(
    "ref",
    [
        VM.replace("s-1", "s-2"),
        VM.replace("enlist", "production"),
        VM.replace("virtualMachines", "galleries"),
        f"{VM}/extensions/x",
        f"{VM}?x",
        "n-1",
        "",
    ],
)
def test_a_reference_that_is_not_ours_leads_nowhere(ref: str) -> None:
    with pytest.raises(ValueError, match=r"is no|is not|is of"):
        PLACE.same(ref)


@pytest.mark.parametrize("subscription", ["../x", "a b", ""])
def test_a_subscription_that_would_lead_elsewhere_is_refused(subscription: str) -> None:
    with pytest.raises(providers.Refused):
        places.Place.checked(subscription=subscription, group="enlist")


def test_two_attempts_of_a_long_node_id_share_no_part() -> None:
    refs = set()
    for attempt in (1, 2):
        owner = contract.Owner(
            installation="i", infra="default", operation="o", node="n" * 63, attempt=attempt
        )
        refs |= {PLACE.child(owner, kind) for kind in places.CHAIN}
        assert all(len(PLACE.parts(ref)[1]) <= naming.LONGEST_NAME for ref in refs)
    assert len(refs) == 2 * len(places.CHAIN)


def test_code_and_message_are_found_in_both_of_arms_forms() -> None:
    assert errors.read({"error": {"code": "C", "message": "m"}}) == ("C", "m")
    assert errors.read({"code": "C", "message": "m"}) == ("C", "m")
    assert errors.read({"error": "invalid_client"}) == ("", "")
    assert errors.read([1]) == ("", "")


def test_in_use_and_over_quota_are_one_word_and_told_apart_by_what_was_asked() -> None:
    fault = outcomes.Fault(
        "Disk x is attached.",
        outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
        topic=outcomes.Topic.QUOTA,
        code="OperationNotAllowed",
    )
    read = errors.of_a_delete(fault)
    assert (read.outcome, read.topic) == (
        outcomes.Outcome.NOT_DONE_RETRYABLE,
        outcomes.Topic.STATE,
    )


def test_an_operation_that_failed_with_a_word_nobody_knows_is_over_for_good() -> None:
    fault = errors.of_an_operation("PUT x", {"error": {"code": "New", "message": "words"}})
    assert (fault.outcome, fault.code) == (outcomes.Outcome.NOT_DONE_PERMANENT, "New")


@pytest.mark.parametrize("wanted", ["debian-12", "a:b:c", "a:b::d", "https://x/y.vhd"])
def test_what_is_no_image_is_said_with_where_to_find_one(wanted: str) -> None:
    with pytest.raises(ValueError, match="az vm image list"):
        bodies.image(wanted)


@pytest.mark.parametrize(
    "told",
    ["2026-12-01T12:00:00.1234567+00:00", "2026-12-01T12:00:00.1234567Z", "2026-12-01T12:00:00Z"],
)
def test_moments_are_read_with_as_many_digits_as_azure_writes(told: str) -> None:
    found = reading.moment(told)
    assert found is not None
    assert found.replace(microsecond=0) == datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)


def test_what_is_out_of_shape_is_read_as_nothing_rather_than_failing() -> None:
    vm = {"name": "n-1", "properties": {"networkProfile": [], "storageProfile": {"osDisk": 1}}}
    seen = reading.instance_of(vm, place=PLACE)
    assert (seen.power, seen.owner) == (contract.Power.UNKNOWN, None)
    assert reading.interface_refs(vm, place=PLACE) == ()
    assert reading.disk_refs(vm, place=PLACE) == (None, ())


def test_every_call_that_is_no_reading_of_azure_is_announced_as_a_change() -> None:
    told = {call.name for call in calls.CALLS if not call.changes}
    assert told == {c.name for c in calls.CALLS if c.name.startswith("GET ")} | {calls.TOKEN.name}
