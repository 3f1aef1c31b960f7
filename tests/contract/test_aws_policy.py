"""The least-privilege text against what EC2 was really asked: no right too few, none too many."""

import dataclasses
import json
from collections.abc import Iterator

import pytest

from provisioning import contract
from provisioning.aws import calls, policy_text
from tests.support.clouds import aws_bench

KIND = contract.ChildKind


@pytest.fixture
def bench() -> Iterator[aws_bench.AwsBench]:
    with aws_bench.AwsBench() as opened:
        yield opened


async def a_whole_life(bench: aws_bench.AwsBench, driver: contract.Driver) -> None:
    """Everything that the driver can do, once."""
    await driver.validate()
    await driver.offer()
    plan = await driver.plan(bench.request())
    assert plan.settled is not None
    request = aws_bench.with_ssh(plan.settled)
    created = await driver.create(request)
    await driver.poll(created)
    await driver.find(request.owner, name=request.name, region=request.region)
    await driver.console(created.ref, region=request.region)
    await driver.reboot(created.ref, region=request.region)
    kept = []
    for number, (kind, of) in enumerate(
        (
            (KIND.VOLUME, created.ref),
            (KIND.ADDRESS, None),
            (KIND.SNAPSHOT, created.ref),
        )
    ):
        owner = dataclasses.replace(request.owner, operation=f"op-{number}")
        kept.append(
            await driver.create_child(
                kind, owner=owner, name=f"kept-{number}", region=request.region, of=of
            )
        )
    volume, address, _ = kept
    owner = dataclasses.replace(request.owner, operation="op-9")
    kept.append(
        await driver.create_child(
            KIND.SNAPSHOT, owner=owner, name="kept-9", region=request.region, of=volume.ref
        )
    )
    for child in (volume, address):
        await driver.attach(child, to=created.ref)
        await driver.detach(child)
    await driver.inventory(request.owner.installation)
    await driver.delete(created.ref, region=request.region)
    for child in (*created.children, *kept):
        await driver.describe_child(child)
        await driver.delete_child(child)


async def test_the_policy_grants_what_a_whole_life_used_and_nothing_more(
    bench: aws_bench.AwsBench,
) -> None:
    driver = bench.driver()
    await a_whole_life(bench, driver)
    await driver.close()
    rows = {row.name: row for row in calls.ALL}
    used = {rows[name].right for name in bench.ledger.names() if rows[name].right}
    granted = {
        action
        for statement in policy_text.least_privilege()["Statement"]
        for action in statement["Action"]
    }
    # setting tags needs a right and is no call
    assert granted - used == {calls.TAGGING}
    assert used - granted == set()


def test_a_policy_for_machines_alone_grants_nothing_for_the_rest() -> None:
    document = json.dumps(policy_text.least_privilege([contract.Feature.MACHINES]))
    for right in ("Address", "CreateSnapshot", "ImportKeyPair", "AttachVolume"):
        assert right not in document.replace("DescribeAddresses", "")


def test_nothing_that_is_there_may_be_touched_without_our_tag() -> None:
    for statement in policy_text.least_privilege(installation="in-1")["Statement"]:
        reading = {row.right for row in calls.ALL if not row.changes and "Describe" in row.name}
        reading |= {"ec2:GetConsoleOutput", *(row.right for row in calls.EXPLAINING)}
        makes = {row.name for row in calls.TAGGED_AT_CREATE}
        if set(statement["Action"]) - reading - makes - {calls.TAGGING}:
            assert statement["Condition"] == {
                "StringEquals": {"aws:ResourceTag/enlist-installation": "in-1"}
            }


def test_tags_may_be_set_only_while_something_is_made() -> None:
    [statement] = [
        one for one in policy_text.least_privilege()["Statement"] if calls.TAGGING in one["Action"]
    ]
    assert "RunInstances" in statement["Condition"]["StringEquals"]["ec2:CreateAction"]


def test_a_sessions_own_policy_fits_what_sts_takes() -> None:
    policy = policy_text.session_policy(installation="x" * 64)
    assert len(policy) <= policy_text.MOST_SESSION_POLICY_BYTES
    assert json.loads(policy)["Version"] == "2012-10-17"


def test_a_sessions_own_policy_leaves_every_right_that_is_used() -> None:
    allowed = {
        action
        for statement in json.loads(policy_text.session_policy())["Statement"]
        for action in statement["Action"]
    }
    for right in policy_text.rights(policy_text.EVERYTHING):
        assert right in allowed or (right.startswith("ec2:Describe") and "ec2:Describe*" in allowed)
