"""The cloud routes by themselves: who may, what is missing, what a refusal says, on either store.

The engine's own wiring over the test's store; nothing carries operations on, and no provider is
called but this very host, which needs no credential.
"""

import dataclasses
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from platform_server.app import clouding, orders
from platform_server.cloud import beside, connecting, machines
from platform_server.endpoints import (
    access_table,
    cloud_resources,
    invitations,
    operations,
    routes,
)
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from tests.support import api, domain, faked_hetzner
from tests.support.clouds import digitalocean, digitalocean_bench
from wire_protocol import pins

pytestmark = pytest.mark.timeout(120)
CLOUD = "/api/v1/cloud"
PIN = pins.parse_pin(f"sha256:{'ab' * 32}")
ORDER = {"node_id": "web-1", "provider": "hetzner"}


@dataclasses.dataclass
class Rig:
    """The routes; `told` counts what the reconciler heard of."""

    http: api.Api
    one: domain.Domain
    told: list[None]


ISSUER = "https://id.example.org/enlist"


def _given(folder: pathlib.Path) -> orders.Orders:
    return orders.Orders(
        data_dir=folder,
        config_file=None,
        flags={},
        api_fds=(),
        local_fd=-1,
        enroll_fd=-1,
        ready_fd=-1,
        api_url="http://127.0.0.1:8440",
        api_speaks_tls=False,
        api_names=(),
        enrollment_url="https://192.0.2.1:8444",
        enrollment_names=(),
        bundle_url="https://192.0.2.1:8446",
    )


def _invite(*, url: str | None, bundles: bool = True) -> invitations.Invitation:
    return invitations.Invitation(
        platform_url=url,
        gateway_url=None,
        pins=(PIN,),
        trust_key_ids=(),
        bundles=invitations.Bundles(url="https://192.0.2.1:8446", pins=(PIN,)) if bundles else None,
    )


@pytest.fixture
async def one(store: contract.Store, tmp_path: pathlib.Path) -> domain.Domain:
    return await domain.build(store, folder=tmp_path, clock=clock_kit.ManualClock(api.START))


def _served(
    one: domain.Domain,
    folder: pathlib.Path,
    told: list[None],
    *,
    url: str | None = "https://192.0.2.1:8444",
    bundles: bool = True,
    cloud: dict[str, Any] | None = None,
) -> tuple[routes.Route, ...]:
    settings = groups.Settings.model_validate({"cloud": cloud or {}})
    parts = clouding.Given(
        given=_given(folder),
        settings=settings,
        store=one.store,
        keyring=one.keyring,
        trust=one.trust,
        operators=one.operators,
        invite=lambda: _invite(url=url, bundles=bundles),
        clock=one.clock,
    )
    shown = operations.Operations(operators=one.operators, archives=_NONE, changed=None).served()
    return (*clouding.build(parts).served(lambda: told.append(None)), *shown)


_NONE: Any = None


@pytest.fixture
async def rig(one: domain.Domain, tmp_path: pathlib.Path) -> AsyncIterator[Rig]:
    told: list[None] = []
    cloud = {"policy_file": str(faked_hetzner.policy(tmp_path))}
    served = _served(one, tmp_path, told, cloud=cloud)
    async with api.running(one.store, tmp_path, settings={"cloud": cloud}, extra=served) as http:
        yield Rig(http=http, one=one, told=told)


LACKED: list[tuple[str, dict[str, Any], str]] = [
    (
        "/volumes",
        {"name": "d", "connection": "local", "region": "ewr", "size_gigabytes": 1},
        "volumes",
    ),
    ("/addresses", {"name": "a", "connection": "local", "region": "ewr"}, "stable addresses"),
    ("/machines", {"ssh": {"public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1"}}, "SSH keys"),
    ("/machines", {"network": "n-1"}, "networks"),
    ("/machines", {"nested_virt": True}, "virtual machines"),
]


@pytest.mark.parametrize(("path", "body", "named"), LACKED)
async def test_what_a_provider_cannot_do_is_refused_when_asked_for_and_stored_nowhere(
    rig: Rig, path: str, body: dict[str, Any], named: str
) -> None:
    await rig.one.store.transact(lambda tx: connecting.ensure_local(tx, actor="t", now=api.START))
    whole = {"node_id": "demo", "provider": "local", **body} if path == "/machines" else body
    refused = await rig.http.local.post(f"{CLOUD}{path}", json=whole)
    assert _said(refused) == (409, "conflict")
    assert named in refused.json()["detail"]
    assert "at local-nspawn, only at: " in refused.json()["detail"]
    assert rig.told == []
    counted = "SELECT (SELECT COUNT(*) FROM operations) + (SELECT COUNT(*) FROM cloud_children)"
    row = await rig.one.store.read(lambda tx: tx.fetch_one(f"{counted} AS stored"))
    assert row is not None
    assert row["stored"] == 0


async def test_each_provider_says_what_it_can_do(rig: Rig) -> None:
    found = (await rig.http.local.get(CLOUD)).json()["providers"]
    able = {one["provider"]: set(one["capabilities"]) for one in found}
    assert able["local-nspawn"] == {"console", "reboot"}
    assert {"volumes", "snapshots", "addresses", "networks"} <= able["hetzner"]
    assert "federation" not in able["hetzner"]


async def _planted(one: domain.Domain, name: str, labels: dict[str, str]) -> None:
    """A machine, a volume, a snapshot and an address of that name, ordered with these labels."""

    async def work(tx: contract.Tx) -> None:
        through = await connecting.ensure_local(tx, actor="t", now=api.START)
        ordered = machines.Machine(
            machine_id=f"machine-{name}",
            node_id=name,
            infra="default",
            connection_id=through.connection_id,
            provider=through.provider,
            operation_id=f"op-{name}",
            region="here",
            size="small",
            image="debian-12",
            role="general",
            wish={"labels": labels},
            template="t",
            price=None,
            ordered_at=api.START,
            ordered_by="t",
        )
        await machines.insert(tx, machine=ordered)
        for kind in cloud_resources.NOUNS.values():
            kept = beside.Resource(
                child_id=f"{kind}-{name}",
                connection_id=through.connection_id,
                infra="default",
                kind=kind,
                name=name,
                region="here",
                operation_id=f"op-{kind}-{name}",
                written_at=api.START,
                labels=labels,
            )
            await beside.insert(tx, resource=kept)

    await one.store.transact(work)


@pytest.mark.parametrize("noun", ["machines", *cloud_resources.NOUNS])
async def test_lists_are_narrowed_by_the_labels_of_an_order(rig: Rig, noun: str) -> None:
    for name, labels in (
        ("front", {"tier": "web", "example.org/team": "a"}),
        ("back", {"tier": "db"}),
        ("bare", {}),
    ):
        await _planted(rig.one, name, labels)

    async def names(*label: str) -> set[str]:
        answered = await rig.http.local.get(f"{CLOUD}/{noun}", params={"label": list(label)})
        assert answered.status_code == 200, answered.text
        found = answered.json()["machines" if noun == "machines" else "children"]
        assert all(isinstance(one["labels"], dict) for one in found)
        return {one["node_id" if noun == "machines" else "name"] for one in found}

    assert await names() == {"front", "back", "bare"}
    assert await names("tier") == {"front", "back"}
    assert await names("tier=web") == {"front"}
    assert await names("tier", "example.org/team=a") == {"front"}
    assert await names("tier=web", "example.org/team=b") == set()
    refused = await rig.http.local.get(f"{CLOUD}/{noun}", params={"label": "no label"})
    assert _said(refused) == (422, "invalid")


def _said(answered: httpx.Response) -> tuple[int, str]:
    return answered.status_code, answered.json()["code"]


def _paths() -> list[tuple[str, str]]:
    return sorted(key for key in access_table.ACCESS if key[1].startswith(CLOUD))


def _filled(path: str) -> str:
    for name, value in (
        ("connection", "hetzner"),
        ("machine", "web-1"),
        ("resource", "data"),
        ("template", "0" * 16),
    ):
        path = path.replace(f"{{{name}}}", value)
    return path


BODIES: dict[str, Any] = {
    "POST /issuer/rotate": {},
    "PUT /connections/{connection}": {
        "provider": "local",
        "credential": {"kind": "none"},
    },
    "PUT /connections/{connection}/consent": {
        "most_machines": 1,
        "most_hourly_micros": 1,
        "currency": "EUR",
    },
    "POST /machines": ORDER,
    "POST /machines/{machine}/forget": {"reason": "gone"},
    "POST /volumes": {
        "name": "data",
        "connection": "hetzner",
        "region": "fsn1",
        "size_gigabytes": 10,
    },
    "POST /snapshots": {"name": "s", "machine": "web-1"},
    "POST /addresses": {"name": "a", "connection": "hetzner", "region": "fsn1"},
    "POST /volumes/{resource}/attach": {"machine": "web-1"},
    "POST /addresses/{resource}/attach": {"machine": "web-1"},
    "POST /volumes/{resource}/forget": {"reason": "gone"},
    "POST /snapshots/{resource}/forget": {"reason": "gone"},
    "POST /addresses/{resource}/forget": {"reason": "gone"},
    "POST /orphans/delete": {"connection": "hetzner", "kind": "machine", "provider_ref": "1"},
    "POST /orphans/adopt": {"connection": "hetzner", "provider_ref": "1", "node_id": "web-1"},
}


async def _ask(
    client: httpx.AsyncClient, key: tuple[str, str], *, headers: dict[str, str] | None = None
) -> httpx.Response:
    method, path = key
    body = BODIES.get(f"{method} {path.removeprefix(CLOUD)}")
    return await client.request(method, _filled(path), json=body, headers=headers)


async def test_without_an_enrollment_endpoint_every_route_says_so(
    one: domain.Domain, tmp_path: pathlib.Path
) -> None:
    async with api.running(one.store, tmp_path, extra=_served(one, tmp_path, [], url=None)) as http:
        for key in _paths():
            answered = await _ask(http.local, key)
            assert _said(answered) == (503, "cloud-unavailable"), key
            assert "--enrollment-port" in answered.json()["detail"]
            assert answered.headers["retry-after"] == "60"


async def test_without_a_policy_only_a_provider_that_costs_money_is_unavailable(
    one: domain.Domain, tmp_path: pathlib.Path
) -> None:
    async with api.running(one.store, tmp_path, extra=_served(one, tmp_path, [])) as http:
        answered = await http.local.post(f"{CLOUD}/machines", json=ORDER)
        assert _said(answered) == (503, "cloud-unavailable")
        assert "ENLIST_CLOUD_POLICY" in answered.json()["missing"][0]
        told = (await http.local.get(CLOUD)).json()
        by_name = {one["provider"]: one for one in told["providers"]}
        assert not by_name["hetzner"]["available"]
        assert by_name["local-nspawn"]["available"]


async def test_where_a_machine_would_find_nothing_to_install_none_is_ordered(
    one: domain.Domain, tmp_path: pathlib.Path
) -> None:
    served = _served(one, tmp_path, [], bundles=False)
    async with api.running(one.store, tmp_path, extra=served) as http:
        answered = await http.local.post(f"{CLOUD}/machines", json=ORDER)
        assert _said(answered) == (503, "cloud-unavailable")
        assert "platform bundles list" in answered.json()["detail"]
        assert answered.json()["building"] is True
        assert (await http.local.get(f"{CLOUD}/machines")).status_code == 200


async def test_each_route_takes_its_own_right_and_no_other(rig: Rig) -> None:
    every = ("cloud.view", "cloud.connect", "cloud.manage")
    for key in _paths():
        needed = access_table.ACCESS[key]
        others = await rig.http.token(*(one for one in every if one != needed))
        assert _said(await _ask(rig.http.public, key, headers=others)) == (403, "not-permitted")
        right = await rig.http.token(needed)
        answered = await _ask(rig.http.public, key, headers=right)
        assert answered.status_code not in (401, 403), (key, answered.text)
        assert answered.status_code < 500, (key, answered.text)


async def test_deciding_about_orders_takes_the_right_to_order(rig: Rig) -> None:
    path = f"/api/v1/operations/{'0' * 16}/retry"
    half = await rig.http.token("operations.manage")
    assert _said(await rig.http.public.post(path, headers=half)) == (403, "not-permitted")
    both = await rig.http.token("operations.manage", "cloud.manage")
    assert _said(await rig.http.public.post(path, headers=both)) == (404, "not-found")


REFUSED = {
    "a provider that is none": ({"provider": "clouds"}, 422, "invalid"),
    "a node id out of shape": ({"node_id": "no node"}, 422, "invalid"),
    "no connection": ({}, 409, "conflict"),
    "a connection that is not there": ({"connection": "other"}, 404, "not-found"),
    "a source that is no network": (
        {"ssh": {"public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5", "sources": ["here"]}},
        422,
        "invalid",
    ),
    "a private key": (
        {"ssh": {"public_key": "-----BEGIN OPENSSH PRIVATE KEY-----"}},
        422,
        "invalid",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_an_order_that_cannot_be_is_refused_and_stores_nothing(
    case: tuple[dict[str, Any], int, str], rig: Rig
) -> None:
    more, status, code = case
    answered = await rig.http.local.post(f"{CLOUD}/machines", json={**ORDER, **more})
    assert _said(answered) == (status, code), answered.text
    listed = (await rig.http.local.get("/api/v1/operations")).json()
    assert listed["operations"] == []
    assert rig.told == []


async def test_a_refused_kind_of_credential_names_those_that_are_taken(rig: Rig) -> None:
    body = {
        "provider": "gcp",
        "credential": {"kind": "gcp-key", "fields": {"document": "hunter2"}},
    }
    answered = await rig.http.local.put(f"{CLOUD}/connections/g", json=body)
    assert _said(answered) == (422, "credential-kind-rejected")
    assert "gcp-federated" in answered.json()["detail"]
    assert "hunter2" not in answered.text


async def test_an_address_of_its_own_is_refused_unless_the_operator_allows_it(rig: Rig) -> None:
    body = {
        "provider": "hetzner",
        "credential": {"kind": "token", "fields": {"token": "t"}},
        "settings": {"endpoint": "http://127.0.0.1:1"},
    }
    answered = await rig.http.local.put(f"{CLOUD}/connections/h", json=body)
    assert _said(answered) == (422, "invalid")
    assert "allow_endpoints" in answered.json()["detail"]


async def test_a_check_says_how_many_of_the_wanted_machines_fit(
    one: domain.Domain, tmp_path: pathlib.Path
) -> None:
    cloud = {"allow_endpoints": True}
    served = _served(one, tmp_path, [], cloud=cloud)
    path = f"{CLOUD}/connections/ocean"
    with digitalocean_bench.DigitalOceanBench() as ocean:
        ocean.cloud.droplet_limit = 10
        for number in range(6):
            ocean.plant(name=f"theirs-{number}", tags={})
        body = {
            "provider": "digitalocean",
            "credential": {"kind": "token", "fields": {"token": digitalocean.TOKEN}},
            "settings": {"endpoint": ocean.opening().endpoints[""]},
        }
        async with api.running(
            one.store, tmp_path, settings={"cloud": cloud}, extra=served
        ) as http:
            saved = await http.local.put(path, json=body)
            assert saved.status_code == 200, saved.text
            asked = await http.local.post(f"{path}/check", params={"wanted": "5"})
            assert asked.status_code == 200, asked.text
            assert asked.json()["fits"] == 4
            assert asked.json()["check"]["room"] == 4
            assert asked.json()["check"]["warnings"] == [
                "Of 5 machines, 4 fit into the account's limits."
            ]
            assert (await http.local.post(f"{path}/check")).json()["fits"] == 1
            none = await http.local.post(f"{path}/check", params={"wanted": "0"})
            assert none.status_code == 422


async def test_what_is_untested_takes_the_right_to_connect(rig: Rig) -> None:
    manage = await rig.http.token("cloud.manage")
    answered = await rig.http.public.post(
        f"{CLOUD}/machines", json={**ORDER, "untested": True, "size": "x"}, headers=manage
    )
    assert _said(answered) == (403, "not-permitted")
    assert "cloud.connect" in answered.json()["detail"]


async def test_a_rehearsed_save_asks_nobody_and_keeps_nothing(rig: Rig) -> None:
    body = {"provider": "local", "credential": {"kind": "none"}}
    path = f"{CLOUD}/connections/here"
    answered = await rig.http.local.put(path, json=body, params={"check": "true"})
    assert answered.json()["changes"][0]["action"] == "save"
    assert _said(await rig.http.local.get(path)) == (404, "not-found")


async def test_the_issuers_next_key_is_shown_before_it_signs(
    one: domain.Domain, tmp_path: pathlib.Path
) -> None:
    cloud = {"issuer_url": ISSUER}
    served = _served(one, tmp_path, [], cloud=cloud)
    async with api.running(one.store, tmp_path, settings={"cloud": cloud}, extra=served) as http:
        empty = (await http.local.get(f"{CLOUD}/issuer")).json()
        assert empty["url"] == ISSUER
        rotated = await http.local.post(f"{CLOUD}/issuer/rotate", json={"at_once": True})
        key = rotated.json()["changes"][0]["target"]
        told = (await http.local.get(f"{CLOUD}/issuer")).json()
        files = {one["path"]: one["document"] for one in told["files"]}
        assert key in files["jwks.json"]
        assert ISSUER in files[".well-known/openid-configuration"]
        assert '"d"' not in files["jwks.json"]


_LIST_LOADED = (
    "import sys, platform_server.app.assembly\n"
    "print(sorted({name.partition('.')[0] for name in sys.modules}))"
)


def test_an_engine_loads_no_cloud_sdk_before_a_connection_is_opened() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", _LIST_LOADED],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "platform_server" in loaded
    for sdk in ("boto3", "botocore", "hcloud", "libcloud", "google"):
        assert f"'{sdk}'" not in loaded
