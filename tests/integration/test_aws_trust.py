"""Roles, ExternalIds and assertions, judged by a server that judges trust policies (ministack).

EC2 itself is moto; only STS and IAM are ministack's. Nothing here proves what AWS's own policies
engine does with conditions; that a live account confirms.
"""

import dataclasses
import datetime
import json
import pathlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from platform_server.cloud.issuer import keys as issuer_keys
from platform_server.cloud.issuer import signers
from provisioning import contract, credentials, outcomes, providers
from provisioning.aws import policy_text, trust
from runtime_kit import clock as clock_kit
from runtime_kit import secret as secret_kit
from tests.support.clouds import aws_bench, ministack_process
from tests.support.clouds.ministack_process import ACCOUNT, Ministack

EXTERNAL_ID = "enlist-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
ISSUER = "https://issuer.example/enlist"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/enlist"


@pytest.fixture
async def iam(tmp_path: pathlib.Path) -> AsyncIterator[Ministack]:
    async with ministack_process.running(tmp_path) as server:
        yield server


@pytest.fixture
def bench() -> Iterator[aws_bench.AwsBench]:
    with aws_bench.AwsBench() as opened:
        yield opened


@dataclasses.dataclass(frozen=True)
class Ourselves:
    """The Platform's own identity at AWS: a user who may take on roles and nothing else."""

    arn: str
    access_key_id: str
    secret: str


@pytest.fixture
def ourselves(iam: Ministack) -> Ourselves:
    return a_user(iam, "platform")


def a_user(iam: Ministack, name: str) -> Ourselves:
    client = iam.client("iam")
    arn = client.create_user(UserName=name)["User"]["Arn"]
    may = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}
    client.put_user_policy(
        UserName=name,
        PolicyName="assume",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [may]}),
    )
    made = client.create_access_key(UserName=name)["AccessKey"]
    return Ourselves(arn, made["AccessKeyId"], made["SecretAccessKey"])


def a_role(iam: Ministack, trusting: Any, policy: Any = None) -> None:
    client = iam.client("iam")
    client.create_role(RoleName="enlist", AssumeRolePolicyDocument=json.dumps(trusting))
    client.put_role_policy(
        RoleName="enlist",
        PolicyName="enlist",
        PolicyDocument=json.dumps(policy or policy_text.least_privilege()),
    )


def through(ours: Ourselves, *, external_id: str = EXTERNAL_ID) -> credentials.AwsKeys:
    return credentials.AwsKeys(
        access_key_id=ours.access_key_id,
        secret_access_key=secret_kit.Secret(ours.secret),
        role_arn=ROLE,
        external_id=external_id,
    )


def driver_of(
    bench: aws_bench.AwsBench,
    iam: Ministack,
    credential: credentials.Credential,
    *,
    assertion: providers.Assertion | None = None,
    clock: clock_kit.Clock | None = None,
    memory: dict[str, Any] | None = None,
) -> contract.Driver:
    opening = dataclasses.replace(
        bench.opening(),
        credential=credential,
        assertion=assertion,
        clock=clock or clock_kit.SystemClock(),
        endpoints={"": bench.address, "sts": iam.address, "iam": iam.address},
        memory={} if memory is None else memory,
    )
    return providers.open_driver("aws", opening)


async def refused(driver: contract.Driver) -> outcomes.Fault:
    with pytest.raises(outcomes.Fault) as caught:
        await driver.validate()
    await driver.close()
    return caught.value


# --- roles with an ExternalId -------------------------------------------------------------------


async def test_a_role_with_the_trust_policy_that_we_give_lets_us_in_and_nobody_without_the_id(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    a_role(iam, trust.trust_policy(principal_arn=ourselves.arn, external_id=EXTERNAL_ID))
    driver = driver_of(bench, iam, through(ourselves))
    validation = await driver.validate()
    await driver.close()
    assert validation.account == ACCOUNT
    assert validation.principal == f"arn:aws:sts::{ACCOUNT}:assumed-role/enlist/enlist"
    assert [one for one in validation.warnings if "ExternalId" in one] == []
    assert bench.told.names().count("sts:AssumeRole") == 3  # with it, without it, with a wrong one


async def test_a_role_that_lets_us_in_without_its_external_id_is_warned_of(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    document = json.loads(
        json.dumps(trust.trust_policy(principal_arn=ourselves.arn, external_id=EXTERNAL_ID))
    )
    del document["Statement"][0]["Condition"]
    a_role(iam, document)
    driver = driver_of(bench, iam, through(ourselves))
    warnings = (await driver.validate()).warnings
    await driver.close()
    [warning] = [one for one in warnings if "ExternalId" in one]
    assert "confused deputy" in warning
    assert "update-assume-role-policy" in warning


async def test_a_role_that_does_not_trust_us_names_whom_it_has_to_trust(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    stranger = a_user(iam, "stranger")
    a_role(iam, trust.trust_policy(principal_arn=stranger.arn, external_id=EXTERNAL_ID))
    fault = await refused(driver_of(bench, iam, through(ourselves)))
    assert fault.outcome is outcomes.Outcome.AUTH_LOST
    assert ourselves.arn in str(fault)
    assert EXTERNAL_ID in str(fault)
    assert fault.hints == (ourselves.arn,)


async def test_a_wrong_external_id_is_refused(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    a_role(iam, trust.trust_policy(principal_arn=ourselves.arn, external_id="enlist-other"))
    fault = await refused(driver_of(bench, iam, through(ourselves)))
    assert fault.outcome is outcomes.Outcome.AUTH_LOST


async def test_a_role_is_taken_on_with_what_this_host_finds_by_itself(
    bench: aws_bench.AwsBench,
    iam: Ministack,
    ourselves: Ourselves,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ourselves.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ourselves.secret)
    a_role(iam, trust.trust_policy(principal_arn=ourselves.arn, external_id=EXTERNAL_ID))
    role = credentials.AwsRole(role_arn=ROLE, external_id=EXTERNAL_ID)
    driver = driver_of(bench, iam, role)
    validation = await driver.validate()
    await driver.close()
    assert "assumed-role/enlist" in validation.principal


async def test_a_session_is_renewed_when_four_fifths_of_its_life_have_passed(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    a_role(iam, trust.trust_policy(principal_arn=ourselves.arn, external_id=EXTERNAL_ID))
    clock = clock_kit.ManualClock(datetime.datetime.now(datetime.UTC))
    driver = driver_of(bench, iam, through(ourselves), clock=clock)
    counted = []
    for seconds in (0, 2800, 100):  # 80 % of an hour are 2880 seconds
        clock.advance(seconds)
        await driver.inventory("in-none")
        counted.append(bench.told.names().count("sts:AssumeRole"))
    await driver.close()
    assert counted == [1, 1, 2]


async def test_a_session_is_shared_by_openings_and_proved_anew_by_a_check(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    a_role(iam, trust.trust_policy(principal_arn=ourselves.arn, external_id=EXTERNAL_ID))
    memory: dict[str, Any] = {}
    counted = []
    for _ in range(2):
        driver = driver_of(bench, iam, through(ourselves), memory=memory)
        await driver.inventory("in-none")
        await driver.close()
        counted.append(bench.told.names().count("sts:AssumeRole"))
    assert counted == [1, 1]
    iam.client("iam").update_assume_role_policy(
        RoleName="enlist",
        PolicyDocument=json.dumps(
            trust.trust_policy(principal_arn=ourselves.arn, external_id="enlist-other")
        ),
    )
    fault = await refused(driver_of(bench, iam, through(ourselves), memory=memory))
    assert fault.outcome is outcomes.Outcome.AUTH_LOST


# --- missing rights -----------------------------------------------------------------------------


def without_conditions() -> Any:
    """Our policy as this simulation can judge it: it is told of tags and does not look at them."""
    policy = json.loads(json.dumps(policy_text.least_privilege()))
    for statement in policy["Statement"]:
        statement.pop("Condition", None)
    return policy


async def test_the_least_privilege_policy_lacks_nothing(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    a_role(
        iam,
        trust.trust_policy(principal_arn=ourselves.arn, external_id=EXTERNAL_ID),
        without_conditions(),
    )
    driver = driver_of(bench, iam, through(ourselves))
    validation = await driver.validate()
    await driver.close()
    assert (validation.missing, validation.unproved) == ((), ())


async def test_each_missing_right_is_named_and_nothing_is_made(
    bench: aws_bench.AwsBench, iam: Ministack, ourselves: Ourselves
) -> None:
    policy = without_conditions()
    for statement in policy["Statement"]:
        statement["Action"] = [
            one for one in statement["Action"] if one != "ec2:TerminateInstances"
        ]
    a_role(iam, trust.trust_policy(principal_arn=ourselves.arn, external_id=EXTERNAL_ID), policy)
    bench.cloud.refuse = {"ec2:RunInstances"}  # what EC2 itself would refuse to rehearse
    driver = driver_of(bench, iam, through(ourselves))
    validation = await driver.validate()
    await driver.close()
    assert validation.missing == ("ec2:RunInstances", "ec2:TerminateInstances")
    assert bench.ledger.living() == []
    assert [call.name for call in bench.told.calls if call.changes] == []


# --- web identity -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signer() -> signers.Signer:
    private = issuer_keys.make_private()
    return signers.Signer(url=ISSUER, key_id="k1", private=private)


def asserting(signer: signers.Signer, *, connection: str) -> providers.Assertion:
    def make(audience: str, /) -> str:
        return signer.assertion(
            subject=signers.subject_of(connection),
            audience=audience,
            now=datetime.datetime.now(datetime.UTC),
        )

    return make


@pytest.mark.parametrize("connection", ["c-ours", "c-another"])
async def test_a_role_believes_the_assertions_of_one_connection_alone(
    bench: aws_bench.AwsBench, iam: Ministack, signer: signers.Signer, connection: str
) -> None:
    a_role(
        iam,
        trust.web_identity_trust_policy(
            account=ACCOUNT, issuer_url=ISSUER, subject=signers.subject_of("c-ours")
        ),
    )
    driver = driver_of(
        bench,
        iam,
        credentials.AwsWebIdentity(role_arn=ROLE),
        assertion=asserting(signer, connection=connection),
    )
    if connection == "c-ours":
        assert "assumed-role/enlist" in (await driver.validate()).principal
        await driver.close()
    else:
        assert (await refused(driver)).outcome is outcomes.Outcome.AUTH_LOST
    assert set(bench.told.names()) & {"sts:AssumeRole"} == set()


async def test_without_an_issuer_a_web_identity_says_what_to_set(
    bench: aws_bench.AwsBench, iam: Ministack
) -> None:
    fault = await refused(driver_of(bench, iam, credentials.AwsWebIdentity(role_arn=ROLE)))
    assert "[cloud] issuer_url" in str(fault)
