"""How a connection to Azure proves itself, and how what it may do is found out before a use."""

import dataclasses
import datetime
import pathlib
from collections.abc import AsyncIterator, Iterator, Mapping

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from provisioning import contract, credentials, federation, outcomes, providers
from provisioning.azure import calls, policy_text
from tests.support.clouds import azure_bench, azure_entra, azure_things
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.asking import failing, ordered, until_child_gone, until_gone

Outcome, Topic, Kind = outcomes.Outcome, outcomes.Topic, contract.ChildKind
Bench = azure_bench.AzureBench
ISSUER = "https://enlist.example"
SUBJECT = "connection:c-1"
MINUTE = datetime.timedelta(minutes=1)


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


def asserted(bench: Bench, key: rsa.RSAPrivateKey, **claims: object) -> str:
    """An assertion as our issuer signs it, by the test's clock."""
    now = bench.clock.now()
    told = {
        "iss": ISSUER,
        "sub": SUBJECT,
        "aud": federation.AZURE_AUDIENCE,
        "iat": int(now.timestamp()),
        "exp": int((now + 5 * MINUTE).timestamp()),
    }
    return jwt.encode({**told, **claims}, key, algorithm="RS256")


def believe(bench: Bench, key: rsa.RSAPrivateKey) -> None:
    """Registers our issuer as a federated credential."""
    one = azure_entra.Federated(issuer=ISSUER, subject=SUBJECT, key=key.public_key())
    bench.cloud.entra.federated.append(one)


def opened_with(
    bench: Bench, kind: credentials.Kind, fields: Mapping[str, str], **changed: object
) -> contract.Driver:
    """A driver with another proof."""
    credential = credentials.parse(
        kind,
        {
            "tenant_id": azure_entra.TENANT,
            "client_id": azure_entra.CLIENT,
            "subscription_id": azure_things.SUBSCRIPTION,
            **fields,
        },
    )
    opening = dataclasses.replace(bench.opening(), credential=credential, **changed)  # type: ignore[arg-type]
    return providers.open_driver("azure", opening)


async def validated(driver: contract.Driver) -> contract.Validation:
    """Asks once and closes."""
    try:
        return await driver.validate()
    finally:
        await driver.close()


# --- proofs -------------------------------------------------------------------------------------


async def test_one_token_serves_many_calls_and_is_renewed_before_it_ends(
    bench: Bench, driver: contract.Driver
) -> None:
    for _ in range(5):
        await driver.inventory(bench_kit.INSTALLATION)
    assert bench.cloud.entra.given == 1
    bench.clock.advance(0.81 * azure_entra.LIFE_SECONDS)
    await driver.inventory(bench_kit.INSTALLATION)
    assert bench.cloud.entra.given == 2


async def test_our_own_issuers_assertion_is_exchanged_and_no_secret_is_needed(
    bench: Bench, key: rsa.RSAPrivateKey
) -> None:
    believe(bench, key)
    driver = opened_with(
        bench,
        credentials.Kind.AZURE_FEDERATED,
        {},
        assertion=lambda audience: asserted(bench, key, aud=audience),
    )
    assert (await validated(driver)).missing == ()
    assert len(bench.cloud.entra.assertions) == 1


@pytest.mark.parametrize("claims", [{"sub": "connection:c-2"}, {"iss": "https://evil.example"}])
async def test_another_connections_assertion_is_not_believed(
    bench: Bench, key: rsa.RSAPrivateKey, claims: Mapping[str, str]
) -> None:
    believe(bench, key)
    driver = opened_with(
        bench,
        credentials.Kind.AZURE_FEDERATED,
        {},
        assertion=lambda _: asserted(bench, key, **claims),
    )
    fault = await failing(validated(driver))
    assert (fault.outcome, fault.code) == (Outcome.AUTH_LOST, "AADSTS700213")


async def test_without_an_issuer_the_next_step_is_named(bench: Bench) -> None:
    driver = opened_with(bench, credentials.Kind.AZURE_FEDERATED, {})
    assert "issuer_url" in str(await failing(validated(driver)))


async def test_the_token_file_is_read_again_for_each_exchange(
    bench: Bench, key: rsa.RSAPrivateKey, tmp_path: pathlib.Path
) -> None:
    believe(bench, key)
    file = tmp_path / "token"
    file.write_text(asserted(bench, key) + "\n")
    driver = opened_with(
        bench,
        credentials.Kind.AZURE_TOKEN_FILE,
        {"federated_token_file": str(file)},
        token_folder=tmp_path,
    )
    try:
        await driver.inventory(bench_kit.INSTALLATION)
        bench.clock.advance(2 * azure_entra.LIFE_SECONDS)  # the first one is long over
        file.write_text(asserted(bench, key, jti="second"))
        await driver.inventory(bench_kit.INSTALLATION)
        first, second = bench.cloud.entra.assertions
        assert first != second
        bench.clock.advance(2 * azure_entra.LIFE_SECONDS)
        file.unlink()
        fault = await failing(driver.inventory(bench_kit.INSTALLATION))
        assert fault.outcome is Outcome.AUTH_LOST
        assert str(file) in str(fault)
    finally:
        await driver.close()


async def test_an_expired_secret_is_told_by_its_number_and_never_repeated(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.entra.is_secret_expired = True
    fault = await failing(driver.validate())
    assert (fault.outcome, fault.topic, fault.code) == (
        Outcome.AUTH_LOST,
        Topic.AUTH,
        "AADSTS7000222",
    )
    assert azure_entra.SECRET not in str(fault)


async def test_a_token_that_was_revoked_is_refused_once_and_then_fetched_anew(
    bench: Bench, driver: contract.Driver
) -> None:
    await driver.inventory(bench_kit.INSTALLATION)
    bench.cloud.entra.revoke()
    fault = await failing(driver.inventory(bench_kit.INSTALLATION))
    assert fault.outcome is Outcome.AUTH_LOST
    await driver.inventory(bench_kit.INSTALLATION)


async def test_b80_a_clock_that_is_off_is_said_in_minutes_and_is_no_bad_credential(
    bench: Bench, key: rsa.RSAPrivateKey
) -> None:
    believe(bench, key)
    bench.script.clock = 20 * 60.0
    driver = opened_with(
        bench,
        credentials.Kind.AZURE_FEDERATED,
        {},
        assertion=lambda _: asserted(bench, key),
    )
    fault = await failing(validated(driver))
    assert fault.outcome is Outcome.CLOCK
    assert "20 minutes behind" in str(fault)


async def test_openings_of_one_credential_share_its_token_and_a_check_proves_it_anew(
    bench: Bench,
) -> None:
    opening = bench.opening()
    for _ in range(3):
        driver = providers.open_driver("azure", opening)
        await driver.inventory(bench_kit.INSTALLATION)
        await driver.close()
    assert bench.cloud.entra.given == 1
    await validated(providers.open_driver("azure", opening))
    assert bench.cloud.entra.given == 2


# --- rights -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "right",
    [
        "Microsoft.Compute/virtualMachines/write",
        "Microsoft.Network/publicIPAddresses/join/action",
        "Microsoft.Compute/disks/delete",
    ],
)
async def test_each_missing_right_is_named_and_nothing_is_made(
    bench: Bench, driver: contract.Driver, right: str
) -> None:
    bench.cloud.grants[0]["notActions"] = [right]
    assert (await driver.validate()).missing == (right,)
    assert bench.cloud.held == {}


async def test_the_published_roles_are_enough_for_everything_and_hold_nothing_else(
    bench: Bench, driver: contract.Driver
) -> None:
    machines, reader = policy_text.least_privilege().values()
    bench.cloud.grants[:] = [{"actions": list(machines["Actions"]), "notActions": []}]
    bench.cloud.subscription.readable = set(reader["Actions"])
    validation = await driver.validate()
    assert (validation.missing, validation.warnings) == ((), ())
    await driver.offer()
    _, created = await ordered(bench, driver)
    await driver.poll(created)
    await driver.reboot(created.ref, region=bench.region)
    owner = dataclasses.replace(bench.request().owner, operation="op-2")
    made = [
        await driver.create_child(
            kind, owner=owner, name=f"x-{kind}", region=bench.region, size_gigabytes=8, of=of
        )
        for kind, of in ((Kind.VOLUME, None), (Kind.SNAPSHOT, created.ref), (Kind.ADDRESS, None))
    ]
    bench.settle()
    await driver.attach(made[0], to=created.ref)
    bench.settle()
    await driver.inventory(bench_kit.INSTALLATION)
    await driver.detach(made[0])
    await driver.delete(created.ref, region=bench.region)
    await until_gone(bench, driver, created.ref, bench.region)
    for child in (*made, *created.children):
        bench.told.calls.clear()
        await until_child_gone(bench, driver, child)
    cards = [one for one in created.children if one.kind in {Kind.INTERFACE, Kind.DISK}]
    for child in cards:
        await driver.delete_child(child)  # gone already, and asked for all the same
    needed = set(machines["Actions"]) - {f"{calls.SNAPSHOT}/read"}
    assert needed <= bench.cloud.asked_rights | {f"{calls.DISK}/write"}
    assert bench.cloud.asked_rights <= set(machines["Actions"])


async def test_l18_a_missing_reader_at_the_subscription_is_said_apart_and_stops_no_order(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.subscription.readable = set()
    validation = await driver.validate()
    assert validation.missing == ()
    assert validation.details["missing_at_subscription"] == (
        "Microsoft.Resources/subscriptions/providers/read",
        "Microsoft.Compute/skus/read",
        "Microsoft.Resources/subscriptions/locations/read",
        "Microsoft.Compute/locations/usages/read",
    )
    assert "Machines can be made all the same" in validation.warnings[-1]
    offer = await driver.offer()
    assert (offer.told_at, offer.sizes[0].name) == (None, "Standard_B2s")
    plan = await driver.plan(bench.request())
    assert plan.refusals == ()
    assert "Microsoft.Compute/skus/read" in plan.warnings[0]
    _, created = await ordered(bench, driver)
    assert [one.ref for one in bench.ledger.living()] == [created.ref]


async def test_what_is_switched_off_in_the_subscription_is_named_with_the_command(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.subscription.registered["Microsoft.Network"] = "NotRegistered"
    (warning,) = (await driver.validate()).warnings
    assert "az provider register --namespace Microsoft.Network" in warning


async def test_a_resource_group_is_never_made_and_its_absence_is_said_with_the_command(
    bench: Bench,
) -> None:
    opening = dataclasses.replace(bench.opening(), settings={"resource_group": "missing"})
    fault = await failing(validated(providers.open_driver("azure", opening)))
    assert "az group create -n missing" in str(fault)
    assert bench.cloud.held == {}


@pytest.mark.parametrize("group", ["../../other", "a b", "x/providers", ""])
async def test_a_resource_group_that_would_lead_elsewhere_is_refused_at_the_door(
    bench: Bench, group: str
) -> None:
    opening = dataclasses.replace(bench.opening(), settings={"resource_group": group})
    with pytest.raises(providers.Refused):
        providers.open_driver("azure", opening)


def test_the_setup_text_names_the_coordinates_of_the_federation() -> None:
    text = policy_text.setup_text(
        {
            "kind": credentials.Kind.AZURE_FEDERATED,
            "resource_group": "enlist",
            "client_id": "c-1",
            "subscription_id": "s-1",
            "subject": SUBJECT,
            "issuer_url": ISSUER,
        }
    )
    assert f'"issuer": "{ISSUER}", "subject": "{SUBJECT}"' in text
    assert federation.AZURE_AUDIENCE in text
    assert "/subscriptions/s-1/resourceGroups/enlist" in text
