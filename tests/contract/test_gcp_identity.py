"""How a connection to Google proves itself, and how what it may do is found out before a use."""

import dataclasses
import datetime
from collections.abc import AsyncIterator, Iterator, Mapping

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from provisioning import contract, credentials, outcomes, providers
from provisioning.gcp import calls, policy_text
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import gcp_bench, gcp_oauth
from tests.support.clouds.asking import failing, until_child_gone, until_gone
from tests.support.clouds.script import Armed, Verb

Outcome, Topic, Kind = outcomes.Outcome, outcomes.Topic, contract.ChildKind
Bench = gcp_bench.GcpBench
ISSUER = "https://enlist.example"
SUBJECT = "connection:c-1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4h1k3Wq0Vt2mC5d8f9g0h1i2j3k4l5m6n7o8p9q0r1 person"


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as opened:
        yield opened


@pytest.fixture
async def driver(bench: Bench) -> AsyncIterator[contract.Driver]:
    opened = bench.driver()
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2048)


def federated(bench: Bench, key: rsa.RSAPrivateKey, **fields: str) -> contract.Driver:
    """A driver that proves itself by our own issuer, whom the pool believes."""
    subject = fields.pop("sub", SUBJECT)
    one = gcp_oauth.Federated(issuer=ISSUER, subject=SUBJECT, key=key.public_key())
    bench.cloud.oauth.federated.append(one)

    def assertion(audience: str, /) -> str:
        now = bench.clock.now()
        until = now + datetime.timedelta(minutes=5)
        claims = {"iss": ISSUER, "sub": subject, "aud": audience,
                  "iat": int(now.timestamp()), "exp": int(until.timestamp())}  # fmt: skip
        return jwt.encode(claims, key, algorithm="RS256")

    given = {
        "project_id": gcp_oauth.PROJECT,
        "project_number": gcp_oauth.NUMBER,
        "pool_id": "enlist",
        "provider_id": "platform",
        **fields,
    }
    credential = credentials.parse(credentials.Kind.GCP_FEDERATED, given)
    opening = dataclasses.replace(bench.opening(), credential=credential, assertion=assertion)
    return providers.open_driver("gcp", opening)


async def validated(driver: contract.Driver) -> contract.Validation:
    """Asks once and closes."""
    try:
        return await driver.validate()
    finally:
        await driver.close()


# --- proofs -------------------------------------------------------------------------------------


async def test_no_address_of_a_pasted_key_is_ever_called(driver: contract.Driver) -> None:
    """The document's own token_uri leads to a port where nobody listens."""
    assert "127.0.0.1:9" in gcp_oauth.document()
    assert (await driver.validate()).principal == gcp_oauth.EMAIL


async def test_one_token_serves_many_calls_and_is_renewed_before_it_ends(
    bench: Bench, driver: contract.Driver
) -> None:
    for _ in range(3):
        await driver.inventory(bench_kit.INSTALLATION)
    assert bench.cloud.oauth.given == 1
    bench.clock.advance(0.85 * gcp_oauth.LIFE_SECONDS)
    await driver.inventory(bench_kit.INSTALLATION)
    assert bench.cloud.oauth.given == 2
    assert bench.told.names().count(calls.TOKEN.name) == 2


async def test_our_own_issuers_assertion_is_exchanged_at_the_pool(
    bench: Bench, key: rsa.RSAPrivateKey
) -> None:
    validation = await validated(federated(bench, key))
    assert (validation.missing, validation.account) == ((), gcp_oauth.PROJECT)
    assert len(bench.cloud.oauth.assertions) == 1


async def test_a_service_account_is_stood_in_for_where_one_is_named(
    bench: Bench, key: rsa.RSAPrivateKey
) -> None:
    validation = await validated(federated(bench, key, service_account=gcp_oauth.EMAIL))
    assert validation.principal == gcp_oauth.EMAIL
    doors = [one.target.partition("?")[0] for one in bench.ledger.seen if "token" in one.name]
    assert doors[1].endswith(f"serviceAccounts/{gcp_oauth.EMAIL}:generateAccessToken")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"sub": "connection:c-2"}, "invalid_grant"),
        ({"pool_id": "other"}, "invalid_target"),
        ({"service_account": "other@enlist.iam.gserviceaccount.com"}, "PERMISSION_DENIED"),
    ],
    ids=["another connection", "another pool", "another account"],
)
async def test_what_the_pool_does_not_believe_is_a_lost_credential(
    bench: Bench, key: rsa.RSAPrivateKey, fields: Mapping[str, str], code: str
) -> None:
    fault = await failing(validated(federated(bench, key, **fields)))
    assert (fault.outcome, fault.topic, fault.code) == (Outcome.AUTH_LOST, Topic.AUTH, code)


@pytest.mark.parametrize(
    "fields",
    [{"pool_id": "../evil"}, {"service_account": "a@b/../../x?y"}, {"project_id": "p/../q"}],
    ids=["pool", "account", "project"],
)
async def test_fields_that_would_lead_elsewhere_are_refused_at_the_door(
    bench: Bench, key: rsa.RSAPrivateKey, fields: Mapping[str, str]
) -> None:
    with pytest.raises(providers.Refused):
        federated(bench, key, **fields)


async def test_a_deleted_key_is_lost_at_once_and_asked_for_once(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.oauth.is_key_deleted = True
    fault = await failing(driver.validate())
    assert (fault.outcome, fault.code) == (Outcome.AUTH_LOST, "invalid_grant")
    assert bench.ledger.count(calls.TOKEN.name) == 1
    assert gcp_oauth.private_key().splitlines()[1] not in str(fault)


async def test_a_token_door_that_is_away_is_asked_once_and_is_no_lost_credential(
    bench: Bench, driver: contract.Driver
) -> None:
    """google-auth by itself would ask three times, and wait in between."""
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=503), on=calls.TOKEN.name)
    assert (await failing(driver.validate())).outcome is Outcome.UNKNOWN
    assert bench.ledger.count(calls.TOKEN.name) == 1


async def test_b80_a_clock_that_is_off_is_said_in_minutes_and_is_no_bad_credential(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.clock = -15 * 60.0
    fault = await failing(driver.validate())
    assert fault.outcome is Outcome.CLOCK
    assert "15 minutes ahead" in str(fault)


async def test_openings_of_one_credential_share_its_token_and_a_check_proves_it_anew(
    bench: Bench,
) -> None:
    opening = bench.opening()
    for _ in range(3):
        driver = providers.open_driver("gcp", opening)
        await driver.inventory(bench_kit.INSTALLATION)
        await driver.close()
    assert bench.cloud.oauth.given == 1
    await validated(providers.open_driver("gcp", opening))
    assert bench.cloud.oauth.given == 2


# --- rights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", ["compute.instances.create", "compute.subnetworks.useExternalIp"])
async def test_each_missing_permission_is_named_and_nothing_is_made(
    bench: Bench, driver: contract.Driver, right: str
) -> None:
    bench.cloud.missing_rights = {right}
    assert (await driver.validate()).missing == (right,)
    assert bench.ledger.machines == {}


async def test_the_published_role_is_enough_for_everything_and_every_call_was_made(
    bench: Bench, driver: contract.Driver
) -> None:
    await driver.validate()
    await driver.offer()
    ssh = contract.Ssh(public_key=KEY, sources=("198.51.100.0/24",))
    plan = await driver.plan(dataclasses.replace(bench.request(), ssh=ssh, subnet="default"))
    request = plan.settled
    assert request is not None
    bench.cloud.held["global/networks/default"].body["name"] = "default"
    created = await driver.create(request)
    bench.settle()
    await driver.poll(created)
    await driver.reboot(created.ref, region=bench.region)
    await driver.console(created.ref, region=bench.region)
    owner = dataclasses.replace(request.owner, operation="op-2")
    made = [
        await driver.create_child(
            kind, owner=owner, name=f"x-{kind}", region=bench.region, size_gigabytes=8, of=of
        )
        for kind, of in ((Kind.VOLUME, None), (Kind.SNAPSHOT, created.ref), (Kind.ADDRESS, None))
    ]
    bench.settle()
    for child in (made[0], made[2]):
        await driver.attach(child, to=created.ref)
        bench.settle()
    await driver.inventory(bench_kit.INSTALLATION)
    for child in (made[0], made[2]):
        await driver.detach(child)
        bench.settle()
    await driver.delete(created.ref, region=bench.region)
    await until_gone(bench, driver, created.ref, bench.region)
    for child in (*made, *created.children):
        await until_child_gone(bench, driver, child)
    absent = await driver.find(request.owner, name=request.name, region=request.region)
    assert absent.instances == ()
    network = dataclasses.replace(bench.request(operation="op-3"), network="default")
    await driver.plan(network)
    published = set(policy_text.least_privilege()["includedPermissions"])
    assert bench.cloud.asked_rights <= published
    assert {call.name for call in calls.CALLS} <= set(bench.told.names())
    assert {call.right for call in calls.CALLS if call.right} == bench.cloud.asked_rights


async def test_a_service_that_is_switched_off_is_named_with_the_command(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.service = "DISABLED"
    (warning,) = (await driver.validate()).warnings
    assert "gcloud services enable compute.googleapis.com" in warning


def test_the_setup_text_names_issuer_subject_and_role() -> None:
    text = policy_text.setup_text(
        {
            "kind": credentials.Kind.GCP_FEDERATED,
            "project_id": "p-1",
            "project_number": "42",
            "pool_id": "pool-1",
            "provider_id": "prov-1",
            "subject": SUBJECT,
            "issuer_url": ISSUER,
        }
    )
    assert f"--issuer-uri {ISSUER}" in text
    assert f"assertion.sub=='{SUBJECT}'" in text
    assert "compute.instances.create" in text
