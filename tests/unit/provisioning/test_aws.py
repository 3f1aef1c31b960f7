"""EC2 without a server: codes, sessions, trust policies, what to set up, how an order looks."""

import dataclasses
import datetime
import json
from typing import Any

import botocore.exceptions
import botocore.parsers
import pytest

from provisioning import contract, credentials, outcomes, providers
from provisioning.aws import errors, identity, link, orders, policy_text, trust, values
from runtime_kit import clock as clock_kit
from runtime_kit import secret

NOW = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
CLOCK = clock_kit.ManualClock(NOW)
Outcome, Topic = outcomes.Outcome, outcomes.Topic


def answered(code: str, status: int) -> outcomes.Fault:
    response = {
        "Error": {"Code": code, "Message": "as the test says"},
        "ResponseMetadata": {
            "HTTPStatusCode": status,
            "HTTPHeaders": {"date": "Tue, 01 Dec 2026 12:00:00 GMT"},
        },
    }
    error = botocore.exceptions.ClientError(response, "RunInstances")  # type: ignore[arg-type]
    return errors.fault_of(error, what="ec2:RunInstances", clock=CLOCK)


@pytest.mark.parametrize(
    ("code", "status", "outcome", "topic"),
    [
        pytest.param(
            "InsufficientInstanceCapacity",
            500,
            Outcome.NOT_DONE_RETRYABLE,
            Topic.CAPACITY,
            id="sold out comes with 500",
        ),
        pytest.param(
            "RequestLimitExceeded",
            503,
            Outcome.NOT_DONE_RETRYABLE,
            Topic.RATE,
            id="a throttle comes with 503 and nothing was done",
        ),
        pytest.param(
            "VcpuLimitExceeded", 400, Outcome.NOT_DONE_PERMANENT, Topic.QUOTA, id="a quota"
        ),
        pytest.param(
            "SomethingNewExceeded",
            400,
            Outcome.NOT_DONE_PERMANENT,
            Topic.OTHER,
            id="B48: an unknown code below 500",
        ),
        pytest.param(
            "SomethingNew", 500, Outcome.UNKNOWN, Topic.NETWORK, id="an unknown code from 500"
        ),
        pytest.param("InternalError", 500, Outcome.UNKNOWN, Topic.NETWORK, id="EC2's own fault"),
        pytest.param("502", 502, Outcome.UNKNOWN, Topic.NETWORK, id="a page of some proxy"),
        pytest.param(
            "UnauthorizedOperation",
            403,
            Outcome.NOT_DONE_PERMANENT,
            Topic.RIGHTS,
            id="a right that is lacking is no lost credential",
        ),
        pytest.param("AuthFailure", 401, Outcome.AUTH_LOST, Topic.AUTH, id="a lost credential"),
        pytest.param(
            "OperationNotPermitted",
            400,
            Outcome.NOT_DONE_PERMANENT,
            Topic.PROTECTED,
            id="a protection against ending",
        ),
    ],
)
def test_codes_come_before_statuses(
    code: str, status: int, outcome: outcomes.Outcome, topic: outcomes.Topic
) -> None:
    fault = answered(code, status)
    assert (fault.outcome, fault.topic, fault.code) == (outcome, topic, code)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (botocore.exceptions.ConnectTimeoutError(endpoint_url="x"), Outcome.NOT_DONE_RETRYABLE),
        (botocore.exceptions.ReadTimeoutError(endpoint_url="x"), Outcome.UNKNOWN),
        (botocore.exceptions.ConnectionClosedError(endpoint_url="x"), Outcome.UNKNOWN),
        (botocore.parsers.ResponseParserError("not XML"), Outcome.UNKNOWN),
        (botocore.exceptions.NoCredentialsError(), Outcome.AUTH_LOST),
    ],
    ids=["never connected", "no answer in time", "cut", "unreadable", "no identity"],
)
def test_what_left_no_answer_is_unknown_once_it_was_sent(
    error: Exception, outcome: outcomes.Outcome
) -> None:
    assert errors.fault_of(error, what="a call", clock=CLOCK).outcome is outcome


@pytest.mark.parametrize(("seconds", "is_fresh"), [(0, True), (2879, True), (2880, False)])
def test_a_session_is_renewed_at_four_fifths_of_its_life(seconds: int, *, is_fresh: bool) -> None:
    session = identity.Session(
        keys=link.Keys("a", "b", "c"), since=NOW, until=NOW + datetime.timedelta(hours=1)
    )
    assert session.is_fresh(NOW + datetime.timedelta(seconds=seconds)) is is_fresh


def test_keys_print_without_their_secrets() -> None:
    assert "hidden-word" not in repr(link.Keys("AKIA", "hidden-word", "hidden-word-too"))


def test_external_ids_are_ours_and_never_the_same() -> None:
    first, second = trust.new_external_id(), trust.new_external_id()
    assert first != second
    assert len(first) > 32


@pytest.mark.parametrize(
    "arn",
    ["", "arn:aws:iam::1234:role/x", "arn:aws:iam::123456789012:user/x", "role/x"],
)
def test_what_is_no_role_is_refused_with_an_example(arn: str) -> None:
    with pytest.raises(trust.Unusable, match="arn:aws:iam::123456789012:role/NAME"):
        trust.role_of(arn)


def test_a_session_of_a_role_is_named_by_its_role() -> None:
    assert (
        trust.principal_of("arn:aws:sts::123456789012:assumed-role/host/i-1")
        == "arn:aws:iam::123456789012:role/host"
    )
    user = "arn:aws:iam::123456789012:user/enlist"
    assert trust.principal_of(user) == user


def test_the_set_up_of_a_role_names_our_principal_and_the_external_id() -> None:
    text = policy_text.setup_text(
        {
            "kind": "aws-role",
            "role_arn": "arn:aws:iam::123456789012:role/enlist",
            "external_id": "enlist-1",
            "base_principal": "arn:aws:iam::999999999999:role/host",
            "installation": "in-1",
        }
    )
    assert "arn:aws:iam::999999999999:role/host" in text
    assert '"sts:ExternalId": "enlist-1"' in text
    assert '"aws:ResourceTag/enlist-installation": "in-1"' in text


def test_the_set_up_of_a_web_identity_names_issuer_subject_and_audience() -> None:
    facts = {
        "kind": "aws-web-identity",
        "role_arn": "arn:aws:iam::123456789012:role/enlist",
        "subject": "connection:c-1",
    }
    assert "[cloud] issuer_url" in policy_text.setup_text(facts)
    text = policy_text.setup_text({**facts, "issuer_url": "https://id.example/e"})
    assert "create-open-id-connect-provider --url https://id.example/e" in text
    assert '"id.example/e:sub": "connection:c-1"' in text
    assert '"id.example/e:aud": "sts.amazonaws.com"' in text
    assert "arn:aws:iam::123456789012:oidc-provider/id.example/e" in text


REQUEST = contract.Request(
    owner=contract.Owner(
        installation="in-1", infra="default", operation="op-1", node="demo", attempt=1
    ),
    name="demo-0123456789",
    client_token="t" * 64,
    region="eu-west-1",
    size="t3.small",
    image="ami-1",
    first_boot="#cloud-config\n{}\n",
    zone="eu-west-1a",
    subnet="subnet-1",
)
IMAGE = {"RootDeviceName": "/dev/xvda", "BlockDeviceMappings": [{"Ebs": {"VolumeSize": 8}}]}


def ordered(request: contract.Request, *, has_ipv6: bool = False) -> dict[str, Any]:
    return orders.parameters(request, image=IMAGE, groups=("sg-1",), key=None, has_ipv6=has_ipv6)


def test_first_boot_data_are_handed_over_as_text_and_encoded_by_the_library_alone() -> None:
    assert ordered(REQUEST)["UserData"] == REQUEST.first_boot


def test_the_same_request_gives_the_same_order() -> None:
    assert json.dumps(ordered(REQUEST)) == json.dumps(ordered(dataclasses.replace(REQUEST)))


def test_a_disk_is_never_smaller_than_its_image() -> None:
    large = {"BlockDeviceMappings": [{"Ebs": {"VolumeSize": 40}}]}
    assert orders.disk_gigabytes(REQUEST, large) == 40
    assert orders.disk_gigabytes(dataclasses.replace(REQUEST, disk_gigabytes=100), large) == 100


def test_an_address_is_asked_for_only_where_the_subnet_has_it() -> None:
    [interface] = ordered(REQUEST)["NetworkInterfaces"]
    assert "Ipv6AddressCount" not in interface
    [interface] = ordered(REQUEST, has_ipv6=True)["NetworkInterfaces"]
    assert interface["Ipv6AddressCount"] == 1


def test_what_is_terminated_is_not_there() -> None:
    assert not values.is_there({"State": {"Name": "terminated"}})
    assert values.is_there({"State": {"Name": "shutting-down"}})


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"region": "eu west"}, id="a blank"),
        pytest.param({"region": "evil.example/x"}, id="a host"),
        pytest.param({"region": "eu-west-1", "regions": "a,,b"}, id="an empty one"),
    ],
)
def test_a_region_goes_into_addresses_and_is_looked_at_first(settings: dict[str, str]) -> None:
    opening = providers.Opening(
        settings=settings,
        credential=_keys(),
        observer=_nobody,
        clock=CLOCK,
    )
    with pytest.raises(providers.Refused, match="no region of AWS"):
        providers.open_driver("aws", opening)


def _keys() -> credentials.AwsKeys:
    return credentials.AwsKeys(access_key_id="AKIA", secret_access_key=secret.Secret("x"))


async def _nobody(call: contract.ApiCall, /) -> None:
    raise AssertionError(call)
