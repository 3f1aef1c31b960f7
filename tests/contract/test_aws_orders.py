"""What only EC2 has: tokens per zone, lags, groups, and refusals that look like something else.

Against moto behind the proxy of `tests.support.clouds.aws`; what only a live account confirms
stands in docs/providers/aws.md.
"""

import dataclasses
import urllib.parse
from collections.abc import AsyncIterator, Iterator

import pytest

from provisioning import contract, naming, outcomes
from tests.support.clouds import aws_bench
from tests.support.clouds.asking import until_gone
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic
RUN = "ec2:RunInstances"


@pytest.fixture
def bench() -> Iterator[aws_bench.AwsBench]:
    with aws_bench.AwsBench() as opened:
        yield opened


@pytest.fixture
async def driver(bench: aws_bench.AwsBench) -> AsyncIterator[contract.Driver]:
    opened = bench.driver()
    try:
        yield opened
    finally:
        await opened.close()


async def settled(driver: contract.Driver, request: contract.Request) -> contract.Request:
    plan = await driver.plan(request)
    assert plan.refusals == ()
    assert plan.settled is not None
    return plan.settled


async def failing(doing: object) -> outcomes.Fault:
    with pytest.raises(outcomes.Fault) as caught:
        await doing  # type: ignore[misc]
    return caught.value


def sent(bench: aws_bench.AwsBench) -> list[dict[str, str]]:
    """The orders as EC2 got them."""
    return [
        dict(urllib.parse.parse_qsl(one.body.decode()))
        for one in bench.ledger.seen
        if one.name == RUN
    ]


# --- tokens and lags ----------------------------------------------------------------------------


async def test_b02_an_empty_look_up_in_the_lag_is_settled_by_sending_the_same_order_again(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    bench.script.list_lag = 20
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on=RUN)
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert seen.instances == ()  # so an empty answer alone proves nothing here
    assert driver.lookup.replays
    assert driver.lookup.clean_answers > 1
    created = await driver.create(request)
    assert [one.ref for one in bench.ledger.living()] == [created.ref]


async def test_b04_a_launch_not_visible_for_a_minute_and_a_half_is_waited_for(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    bench.script.describe_lag = 90
    created = await driver.create(await settled(driver, bench.request()))
    told = []
    for _ in range(4):
        told.append(await driver.poll(created))
        bench.clock.advance(30)
    assert told == [contract.Progress.RUNNING] * 3 + [contract.Progress.DONE]
    assert len(bench.ledger.machines) == 1


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "SomethingNewExceeded"])
async def test_a_poll_that_is_refused_is_no_end_of_the_order(
    bench: aws_bench.AwsBench, driver: contract.Driver, code: str
) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code=code), on="ec2:DescribeInstances")
    fault = await failing(driver.poll(created))
    assert (fault.outcome, fault.code) == (Outcome.UNKNOWN, code)
    assert await driver.poll(created) is contract.Progress.DONE


async def test_b06_the_token_of_a_machine_that_has_ended_is_over_for_good(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    created = await driver.create(request)
    await driver.delete(created.ref, region=request.region)
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.NOT_DONE_PERMANENT
    assert fault.code == "IdempotentInstanceTerminated"
    second = await settled(driver, bench.request(attempt=2))
    assert second.client_token != request.client_token
    again = await driver.create(second)
    assert [one.ref for one in bench.ledger.living()] == [again.ref]


async def test_an_order_is_bound_to_one_zone_and_carries_the_token_of_that_zone(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    assert request.zone is not None
    assert request.client_token == naming.client_token(request.owner, zone=request.zone)
    assert (await driver.plan(request)).settled == request


async def test_the_next_attempt_goes_to_another_zone(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    zones = [(await settled(driver, bench.request(attempt=number))).zone for number in range(1, 4)]
    assert len(set(zones)) == 3


async def test_the_same_order_with_its_token_in_another_zone_would_be_a_second_machine(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    first = await settled(driver, bench.request(attempt=1))
    other = await settled(driver, bench.request(attempt=2))
    await driver.create(first)
    moved = dataclasses.replace(first, subnet=other.subnet, zone=other.zone)
    second = await driver.create(moved)  # which is why the zone is settled before it is written
    assert len(bench.ledger.living()) == 2
    await driver.delete(second.ref, region=moved.region)
    await until_gone(bench, driver, second.ref, moved.region)


async def test_a_token_used_with_other_parameters_finds_what_it_was_used_for(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    created = await driver.create(request)
    changed = dataclasses.replace(request, first_boot="#cloud-config\n{}\n")
    fault = await failing(driver.create(changed))
    assert (fault.outcome, fault.ref) == (Outcome.EXISTS_MINE, created.ref)
    assert len(bench.ledger.machines) == 1


async def test_a_token_that_somebody_else_used_is_foreign(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    foreign = dataclasses.replace(request.owner, installation="in-ffff")
    await driver.create(dataclasses.replace(request, owner=foreign))
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.EXISTS_FOREIGN


# --- how an order looks -------------------------------------------------------------------------


async def test_an_order_is_tagged_encrypted_and_without_metadata_for_strangers(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    await driver.create(request)
    [order] = sent(bench)
    kinds = {order[f"TagSpecification.{number}.ResourceType"] for number in (1, 2, 3)}
    assert kinds == {"instance", "network-interface", "volume"}
    assert order["MetadataOptions.HttpTokens"] == "required"
    assert order["BlockDeviceMapping.1.Ebs.Encrypted"] == "true"
    assert order["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert order["NetworkInterface.1.DeleteOnTermination"] == "true"
    assert order["NetworkInterface.1.SubnetId"] == request.subnet
    assert (order["MinCount"], order["MaxCount"]) == ("1", "1")
    assert "IamInstanceProfile.Name" not in order


async def test_the_same_attempt_is_sent_byte_for_byte_the_same(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    await driver.create(request)
    await driver.create(request)
    first, second = sent(bench)
    assert first == second


async def test_the_librarys_own_retries_and_addresses_are_off_whatever_the_environment_says(
    bench: aws_bench.AwsBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_MAX_ATTEMPTS": "5",
        "AWS_RETRY_MODE": "adaptive",
        "AWS_PROFILE": "no-such-profile",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    driver = bench.driver()
    request = await settled(driver, bench.request())
    armed = Armed(verb=Verb.FAIL_CODE, code="InsufficientInstanceCapacity", status=500)
    bench.script.arm_always(armed, on=RUN)
    fault = await failing(driver.create(request))
    await driver.close()
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    assert bench.ledger.count(RUN) == 1


@pytest.mark.parametrize("code", ["SignatureDoesNotMatch", "RequestExpired", "AuthFailure"])
@pytest.mark.parametrize("minutes", [-10, 10])
async def test_b80_a_clock_that_is_off_is_said_in_minutes_and_is_no_bad_credential(
    bench: aws_bench.AwsBench, driver: contract.Driver, code: str, minutes: int
) -> None:
    bench.script.clock = -60 * minutes
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code=code, status=403), on="sts:GetCallerIdentity")
    fault = await failing(driver.validate())
    assert fault.outcome is Outcome.CLOCK
    assert f"{abs(minutes)} minutes {'ahead' if minutes > 0 else 'behind'}" in str(fault)


async def test_b78_a_full_quota_is_said_as_such_with_the_page_where_it_is_raised(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code="VcpuLimitExceeded"), on=RUN)
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)
    assert fault.link is not None
    assert "servicequotas" in fault.link


# --- networks -----------------------------------------------------------------------------------


async def test_a_missing_default_network_is_said_before_anything_is_ordered(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    admin = bench.admin()
    for subnet in admin.describe_subnets()["Subnets"]:
        admin.delete_subnet(SubnetId=subnet["SubnetId"])
    for network in admin.describe_vpcs()["Vpcs"]:
        admin.delete_vpc(VpcId=network["VpcId"])
    [refusal] = (await driver.plan(bench.request())).refusals
    assert "no default VPC" in refusal
    assert "--network" in refusal
    fault = await failing(driver.create(bench.request()))
    assert fault.outcome is Outcome.NOT_DONE_PERMANENT
    assert bench.ledger.count(RUN) == 0


async def test_a_machine_goes_into_the_network_and_subnet_that_were_named(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    admin = bench.admin()
    network = admin.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    subnet = admin.create_subnet(
        VpcId=network, CidrBlock="10.7.1.0/24", AvailabilityZone="eu-west-1c"
    )["Subnet"]["SubnetId"]
    named = dataclasses.replace(bench.request(), network=network, subnet=subnet)
    request = await settled(driver, named)
    assert (request.subnet, request.zone) == (subnet, "eu-west-1c")
    created = await driver.create(request)
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    assert machine.zone == "eu-west-1c"


async def test_a_region_that_is_not_watched_is_refused(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    plan = await driver.plan(dataclasses.replace(bench.request(), region="ap-south-1"))
    assert "not watched" in plan.refusals[0]


async def test_b56_a_volume_elsewhere_is_refused_with_both_places_named(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    admin = bench.admin()
    volume = admin.create_volume(AvailabilityZone="eu-west-1b", Size=1)["VolumeId"]
    subnet = admin.describe_subnets(
        Filters=[{"Name": "availability-zone", "Values": ["eu-west-1a"]}]
    )["Subnets"][0]["SubnetId"]
    request = dataclasses.replace(bench.request(), subnet=subnet, volumes=(volume,))
    [refusal] = (await driver.plan(request)).refusals
    assert "eu-west-1a" in refusal
    assert f"{volume} is in eu-west-1b" in refusal


async def test_a_machine_is_placed_where_its_volume_is_and_gets_it_when_it_runs(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    volume = bench.admin().create_volume(AvailabilityZone="eu-west-1b", Size=1)["VolumeId"]
    request = await settled(driver, dataclasses.replace(bench.request(), volumes=(volume,)))
    assert request.zone == "eu-west-1b"
    created = await driver.create(request)
    assert await driver.poll(created) is contract.Progress.DONE
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    [kept] = [one for one in machine.children if one.keep]
    assert (kept.kind, kept.ref) == (contract.ChildKind.VOLUME, volume)


async def test_an_address_that_another_machine_has_is_not_taken_from_it(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    first = await driver.create(await settled(driver, bench.request()))
    second = await driver.create(await settled(driver, bench.request(operation="op-2")))
    owner = dataclasses.replace(bench.request().owner, operation="op-address")
    address = await driver.create_child(
        contract.ChildKind.ADDRESS, owner=owner, name="front", region=bench.region
    )
    await driver.attach(address, to=first.ref)
    await driver.attach(address, to=first.ref)
    fault = await failing(driver.attach(address, to=second.ref))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    now = await driver.describe_child(address)
    assert now is not None
    assert now.attached_to == first.ref


async def test_a_machines_snapshot_is_an_image_from_which_the_next_is_ordered(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    created = await driver.create(request)
    owner = dataclasses.replace(request.owner, operation="op-snapshot")
    asked = {"owner": owner, "name": "golden", "region": request.region, "of": created.ref}
    snapshot = await driver.create_child(contract.ChildKind.SNAPSHOT, **asked)  # type: ignore[arg-type]
    again = await driver.create_child(contract.ChildKind.SNAPSHOT, **asked)  # type: ignore[arg-type]
    assert again.ref == snapshot.ref  # no token exists for it: looked up by its tags
    wish = dataclasses.replace(bench.request(operation="op-2", node="two"), image=snapshot.ref)
    second = await driver.create(await settled(driver, wish))
    machine = await driver.describe(second.ref, region=request.region)
    assert machine is not None
    assert machine.image == snapshot.ref
    refused = dataclasses.replace(bench.request(), image="snap-0123456789abcdef0")
    assert "cannot be booted" in (await driver.plan(refused)).refusals[0]


async def test_what_can_nest_machines_is_what_is_bare_metal(driver: contract.Driver) -> None:
    offer = await driver.offer()
    nesting = {one.name for one in offer.sizes if one.nested_virt}
    assert "c5n.metal" in nesting
    assert all("metal" in name for name in nesting)


# --- who may reach it ---------------------------------------------------------------------------


async def test_the_shared_group_is_put_back_to_no_inbound_before_each_use(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    await driver.create(await settled(driver, bench.request()))
    admin = bench.admin()
    wanted = [{"Name": "tag:enlist-purpose", "Values": ["no-inbound"]}]
    [group] = admin.describe_security_groups(Filters=wanted)["SecurityGroups"]
    admin.authorize_security_group_ingress(
        GroupId=group["GroupId"],
        IpPermissions=[
            {
                "IpProtocol": "tcp",
                "FromPort": 22,
                "ToPort": 22,
                "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
            }
        ],
    )
    await driver.create(await settled(driver, bench.request(operation="op-2", node="two")))
    [after] = admin.describe_security_groups(Filters=wanted)["SecurityGroups"]
    assert after["GroupId"] == group["GroupId"]
    assert after["IpPermissions"] == []


async def test_ssh_opens_from_the_named_addresses_alone_in_a_group_of_the_machines_own(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = aws_bench.with_ssh(await settled(driver, bench.request()))
    created = await driver.create(request)
    [group] = [one for one in created.children if one.kind is contract.ChildKind.SECURITY_GROUP]
    [found] = bench.admin().describe_security_groups(GroupIds=[group.ref])["SecurityGroups"]
    [rule] = found["IpPermissions"]
    assert (rule["FromPort"], rule["ToPort"]) == (22, 22)
    assert [one["CidrIp"] for one in rule["IpRanges"]] == ["192.0.2.0/28"]
    tags = {one["Key"]: one["Value"] for one in found["Tags"]}
    assert tags["enlist-ssh-until"] == "2026-12-01T14:00:00Z"
    assert tags[naming.OPERATION] == request.owner.operation


async def test_a_way_in_is_shut_at_once_and_gone_with_the_machine(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = aws_bench.with_ssh(await settled(driver, bench.request()))
    created = await driver.create(request)
    ways = (contract.ChildKind.SECURITY_GROUP, contract.ChildKind.SSH_KEY)
    own = [one for one in created.children if one.kind in ways]
    assert {one.kind for one in own} == set(ways)
    group = next(one for one in own if one.kind is contract.ChildKind.SECURITY_GROUP)
    fault = await failing(driver.delete_child(group))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    [found] = bench.admin().describe_security_groups(GroupIds=[group.ref])["SecurityGroups"]
    assert found["IpPermissions"] == []
    await driver.delete(created.ref, region=request.region)
    for child in own:
        await driver.delete_child(child)
        assert await driver.describe_child(child) is None


async def test_an_order_that_came_to_nothing_leaves_no_group_and_no_key(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = aws_bench.with_ssh(await settled(driver, bench.request()))
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code="InsufficientInstanceCapacity"), on=RUN)
    await failing(driver.create(request))
    assert bench.ledger.living_things() == []
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert seen.instances == ()


async def test_what_was_made_before_the_order_was_sent_is_found_as_half_made(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = aws_bench.with_ssh(await settled(driver, bench.request()))
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=500), on=RUN)
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    [half] = seen.instances
    assert half.power is contract.Power.FAILED
    assert half.owner == request.owner
    await driver.delete(half.ref, region=request.region)
    assert await driver.describe(half.ref, region=request.region) is None
    for child in half.children:
        await driver.delete_child(child)
    assert bench.ledger.living_things() == []


async def test_an_order_cut_off_after_its_group_was_made_goes_on_with_it(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = aws_bench.with_ssh(await settled(driver, bench.request()))
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=500), on=RUN)
    await failing(driver.create(request))
    created = await driver.create(request)
    kinds = [one.kind for one in bench.ledger.living_things()]
    assert sorted(kinds) == ["security-group", "ssh-key"]
    assert len(bench.ledger.living()) == 1
    assert {one.kind for one in created.children} >= {contract.ChildKind.SECURITY_GROUP}


async def test_a_group_of_somebody_elses_with_our_name_is_not_touched(
    bench: aws_bench.AwsBench, driver: contract.Driver
) -> None:
    request = aws_bench.with_ssh(await settled(driver, bench.request()))
    name = naming.child_name(request.owner, contract.ChildKind.SECURITY_GROUP)
    bench.admin().create_security_group(GroupName=name, Description="theirs", VpcId=request.network)
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.EXISTS_FOREIGN
    assert bench.ledger.count(RUN) == 0
