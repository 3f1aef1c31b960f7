"""Trials of what stands between apache-libcloud and the network, and of its long tail."""

import dataclasses
import inspect
import io
from collections.abc import AsyncIterator, Iterator

import pytest
from libcloud.common import base as library_base
from libcloud.compute.drivers import linode as linode_library
from libcloud.compute.drivers import openstack as openstack_library
from libcloud.compute.drivers import vultr as vultr_library
from libcloud.utils import loggingconnection as library_loggers

from provisioning import contract, naming, outcomes, providers
from provisioning.libcloud_drivers import linode, policy_text
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import openstack as openstack_fake
from tests.support.clouds import server, small_benches
from tests.support.clouds.asking import failing, ordered, settled
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic
ALL = ("digitalocean", "linode", "openstack", "vultr")


@pytest.fixture(params=ALL)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench_kit.open_bench(request.param) as opened:
        yield opened


@pytest.fixture
async def driver(bench: Bench) -> AsyncIterator[contract.Driver]:
    opened = bench.driver()
    try:
        yield opened
    finally:
        await opened.close()


# --- one sending, whatever the library would do ---------------------------------------------------


@pytest.mark.parametrize(
    "armed",
    [
        pytest.param(Armed(verb=Verb.COMMIT_THEN_DROP), id="cut"),
        pytest.param(Armed(verb=Verb.RATE), id="429"),
        pytest.param(Armed(verb=Verb.BEFORE_5XX, status=503), id="503"),
    ],
)
async def test_retries_that_the_environment_turns_on_send_nothing_twice(
    bench: Bench, driver: contract.Driver, armed: Armed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "1")
    request = await settled(driver, bench.request())
    bench.script.arm_always(armed, on=bench.steps[Step.CREATE])
    await failing(driver.create(request))
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_a_proxy_of_the_environment_sees_no_credential(
    driver: contract.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await driver.validate()).account


async def test_the_librarys_own_debugging_writes_down_nothing_that_is_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LIBCLOUD_DEBUG` puts a connection that writes down whole requests in place of the usual."""
    written = io.StringIO()
    monkeypatch.setattr(library_loggers.LoggingConnection, "log", written, raising=False)
    monkeypatch.setattr(library_base.Connection, "conn_class", library_loggers.LoggingConnection)
    driver = bench.driver()
    await ordered(bench, driver)
    await driver.close()
    assert written.getvalue() == ""


async def test_a_redirect_is_not_followed(
    bench: Bench, driver: contract.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = server.Served._worked

    def elsewhere(
        served: server.Served, asked: server.Asked, *, name: str, **more: object
    ) -> server.Reply:
        if name != bench.steps[Step.DESCRIBE]:
            return usual(served, asked, name=name, **more)  # type: ignore[arg-type]
        return server.Reply(status=307, headers={"location": f"{served.address}/elsewhere"})

    _, created = await ordered(bench, driver)
    monkeypatch.setattr(server.Served, "_worked", elsewhere)
    fault = await failing(driver.describe(created.ref, region=bench.region))
    assert fault.outcome is Outcome.UNKNOWN
    assert not any("elsewhere" in one.target for one in bench.ledger.seen)


async def test_an_answer_that_lacks_what_the_library_reads_is_an_order_that_was_sent(
    bench: Bench, driver: contract.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trips over a missing field after the machine is made; that is unknown, not failed."""
    request = await settled(driver, bench.request())
    usual = server.Served._worked

    def emptied(
        served: server.Served, asked: server.Asked, *, name: str, **more: object
    ) -> server.Reply:
        reply = usual(served, asked, name=name, **more)  # type: ignore[arg-type]
        made = bench.steps[Step.CREATE]
        return dataclasses.replace(reply, document=[]) if name == made else reply

    monkeypatch.setattr(server.Served, "_worked", emptied)
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.UNKNOWN
    assert len(bench.ledger.living()) == 1


# --- the long tail --------------------------------------------------------------------------------


def test_only_drivers_that_carry_first_boot_data_and_an_owner_are_offered() -> None:
    offered = {
        row.name
        for row in providers.PROVIDERS.values()
        if row.module.startswith("provisioning.libcloud_drivers.")
    }
    carried = {
        "linode": (linode_library.LinodeNodeDriverV4, {"ex_userdata", "ex_tags"}),
        "vultr": (vultr_library.VultrNodeDriverV2, {"ex_userdata", "ex_tag"}),
        "openstack": (openstack_library.OpenStack_2_NodeDriver, {"ex_userdata", "ex_metadata"}),
    }
    assert offered == set(carried)
    for library, needed in carried.values():
        assert needed <= set(inspect.signature(library.create_node).parameters)


def test_a_tag_of_linode_is_short_and_the_longest_owner_still_fits() -> None:
    owner = contract.Owner(
        installation="i" * 36, infra="default", operation="o" * 36, node="n" * 63, attempt=12
    )
    tags = linode.tags_of(owner)
    assert all(3 <= len(tag) <= 50 for tag in tags)
    assert linode.owner_of([*reversed(tags), "theirs"]) == owner
    assert linode.owner_of(list(tags[1:])) is None


async def test_the_root_password_that_linode_asks_for_is_new_each_time_and_kept_nowhere() -> None:
    with small_benches.LinodeBench() as bench:
        driver = bench.driver()
        for operation in ("op-1", "op-2"):
            await ordered(bench, driver, operation=operation, node=operation)
        bodies = [one.body for one in bench.ledger.seen if one.name == "POST /v4/linode/instances"]
        await driver.close()
    passwords = [body.partition(b'"root_pass": "')[2].partition(b'"')[0] for body in bodies]
    assert len(set(passwords)) == 2
    assert all(len(one) >= 48 for one in passwords)


@pytest.fixture
def cloud() -> Iterator[small_benches.OpenStackBench]:
    with small_benches.OpenStackBench() as opened:
        yield opened


async def test_b04_an_openstack_machine_that_lags_behind_its_order_is_made_once(
    cloud: small_benches.OpenStackBench,
) -> None:
    """The library asks for the new machine in the same breath: a 404 there is no refusal."""
    driver = cloud.driver()
    cloud.script.describe_lag = cloud.script.list_lag = 90
    created = await driver.create(await settled(driver, cloud.request()))
    assert await driver.describe(created.ref, region=cloud.region) is None
    assert await driver.poll(created) is contract.Progress.RUNNING
    cloud.settle()
    cloud.settle()
    assert await driver.poll(created) is contract.Progress.DONE
    await driver.close()
    assert cloud.ledger.count("POST /servers") == 1


async def test_an_openstack_without_a_valid_host_is_capacity_with_its_words(
    cloud: small_benches.OpenStackBench,
) -> None:
    driver = cloud.driver()
    cloud.script.arm(Armed(verb=Verb.ASYNC_FAIL), on="POST /servers")
    created = await driver.create(await settled(driver, cloud.request()))
    cloud.settle()
    fault = await failing(driver.poll(created))
    await driver.close()
    assert (fault.outcome, fault.topic, fault.ref) == (
        Outcome.NOT_DONE_RETRYABLE,
        Topic.CAPACITY,
        created.ref,
    )
    assert "No valid host" in str(fault)


async def test_an_openstack_token_that_ended_early_is_fetched_anew_at_the_next_call(
    cloud: small_benches.OpenStackBench,
) -> None:
    driver = cloud.driver()
    await driver.validate()
    cloud.stack.is_token_expired = True
    fault = await failing(driver.inventory(bench_kit.INSTALLATION))
    assert fault.outcome is Outcome.AUTH_LOST
    assert (await driver.inventory(bench_kit.INSTALLATION)).is_complete
    await driver.close()
    assert cloud.ledger.count("POST /v3/auth/tokens") == 2


async def test_a_refused_proof_is_never_taken_for_a_refused_order(
    cloud: small_benches.OpenStackBench,
) -> None:
    driver = cloud.driver()
    cloud.script.arm(Armed(verb=Verb.BEFORE_5XX, status=503), on="POST /v3/auth/tokens", times=9)
    fault = await failing(driver.create(cloud.request()))
    await driver.close()
    assert fault.outcome is Outcome.UNKNOWN
    assert "POST /v3/auth/tokens" in str(fault)
    assert cloud.ledger.count("POST /servers") == 0


async def test_a_catalogue_that_names_an_address_without_tls_gets_no_token(
    cloud: small_benches.OpenStackBench,
) -> None:
    cloud.stack.address = "http://192.0.2.1:8774"
    driver = cloud.driver()
    fault = await failing(driver.validate())
    await driver.close()
    assert fault.outcome is Outcome.NOT_DONE_PERMANENT
    assert "https" in str(fault)
    assert [one.name for one in cloud.ledger.seen] == ["POST /v3/auth/tokens"]


def test_an_openstack_whose_keystone_is_not_reached_by_tls_is_not_opened(
    cloud: small_benches.OpenStackBench,
) -> None:
    opening = dataclasses.replace(
        cloud.opening(), settings={"auth_url": "http://keystone.example.net", "region": "R"}
    )
    with pytest.raises(providers.Refused, match="https"):
        providers.open_driver("openstack", opening)


async def test_openstack_on_loopback_takes_allow_endpoints(
    cloud: small_benches.OpenStackBench,
) -> None:
    closed = dataclasses.replace(cloud.opening(), may_stay_here=False)
    with pytest.raises(providers.Refused, match="allow_endpoints"):
        providers.open_driver("openstack", closed)
    assert cloud.ledger.seen == []
    for address in ("http://127.0.0.1:5000/v3", "http://[::1]:5000"):
        with pytest.raises(providers.Refused, match="allow_endpoints"):
            providers.check_endpoints({"auth_url": address}, may_stay_here=False)
    driver = cloud.driver()
    await driver.validate()
    await driver.close()


async def test_an_openstack_machine_costs_what_the_operator_says_that_a_core_does(
    cloud: small_benches.OpenStackBench,
) -> None:
    opening = cloud.opening()
    priced = dataclasses.replace(
        opening, settings={**opening.settings, "core_hourly": "0.015", "currency": "EUR"}
    )
    driver = providers.open_driver("openstack", priced)
    plan = await driver.plan(dataclasses.replace(cloud.request(), size="m1.medium"))
    await driver.close()
    assert plan.price == contract.Price(hourly_micros=30_000, currency="EUR")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"core_hourly": "cheap", "currency": "EUR"}, id="no amount"),
        pytest.param({"core_hourly": "-1", "currency": "EUR"}, id="less than nothing"),
        pytest.param({"core_hourly": "NaN", "currency": "EUR"}, id="not a number"),
        pytest.param({"core_hourly": "0.01"}, id="no currency"),
    ],
)
def test_a_price_of_cores_that_is_none_is_refused(
    cloud: small_benches.OpenStackBench, settings: dict[str, str]
) -> None:
    opening = cloud.opening()
    wrong = dataclasses.replace(opening, settings={**opening.settings, **settings})
    with pytest.raises(providers.Refused, match="core_hourly"):
        providers.open_driver("openstack", wrong)


async def test_an_openstack_says_how_many_more_machines_its_project_allows(
    cloud: small_benches.OpenStackBench,
) -> None:
    driver = cloud.driver()
    await ordered(cloud, driver)
    validation = await driver.validate()
    await driver.close()
    assert validation.room == 9
    assert validation.principal == openstack_fake.APPLICATION


async def test_what_the_long_tail_cannot_do_is_refused_before_the_order_with_the_way_out() -> None:
    with small_benches.VultrBench() as bench:
        driver = bench.driver()
        wish = dataclasses.replace(
            bench.request(),
            ssh=contract.Ssh(public_key="ssh-ed25519 AAAA person"),
            volumes=("v-1",),
            network="n-1",
        )
        plan = await driver.plan(wish)
        fault = await failing(
            driver.create_child(
                contract.ChildKind.VOLUME, owner=wish.owner, name="data", region=bench.region
            )
        )
        await driver.close()
    assert len(plan.refusals) == 3
    assert all("leave it out" in sentence for sentence in plan.refusals)
    assert fault.outcome is Outcome.NOT_DONE_PERMANENT


def test_what_to_set_up_is_said_for_each_of_them() -> None:
    linodes = policy_text.setup_text({"provider": "linode", "kind": "token"})
    vultrs = policy_text.setup_text({"provider": "vultr", "kind": "token"})
    stacks = policy_text.setup_text({"provider": "openstack", "kind": "openstack-application"})
    assert "Linodes: Read/Write" in linodes
    assert "API key" in vultrs
    assert "--role member" in stacks


def test_openstack_metadata_holds_the_owner_as_it_is(
    cloud: small_benches.OpenStackBench,
) -> None:
    request = cloud.request()
    ref = cloud.plant(name="demo", tags=naming.tags_of(request.owner))
    assert cloud.ledger.machines[ref].tags == naming.tags_of(request.owner)


@pytest.mark.parametrize("raw", [b"{}", b"[]", b'{"account": {}}', b""], ids=repr)
async def test_a_check_of_a_credential_that_is_answered_out_of_shape_proves_nothing(
    driver: contract.Driver, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.Served, "exchange", lambda *_: server.Reply(raw=raw))
    fault = await failing(driver.validate())
    assert fault.outcome is Outcome.UNKNOWN
