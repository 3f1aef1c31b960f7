"""Connections that have to be set up at the provider first, and drivers that several share."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

from platform_server.cloud import connecting, connections, using
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from tests.support import cloud_desk
from tests.support.clouds import digitalocean, digitalocean_bench, hetzner_bench

ROLE = {"role_arn": "arn:aws:iam::123456789012:role/enlist"}
OURS = "arn:aws:iam::999999999999:role/platform"


@pytest.fixture
def store_kind() -> str:
    """One store: what differs between the two is shown in the tests of connections."""
    return "sqlite"


@pytest.fixture
def hetzner() -> Iterator[hetzner_bench.HetznerBench]:
    """Its clock is the desk's; AWS is played by `Account`."""
    with hetzner_bench.HetznerBench() as bench:
        yield bench


class Account:
    """An AWS account in which a role is set up, or not yet. Opens the drivers on it."""

    def __init__(self) -> None:
        self.is_set_up = False
        self.account = "123456789012"
        self.openings: list[using.Opening] = []
        self.closed = 0
        self.gate: asyncio.Event | None = None
        self.calls: tuple[provider.ApiCall, ...] = (
            provider.ApiCall(
                name="ec2:RunInstances",
                feature=provider.Feature.MACHINES,
                right="ec2:RunInstances",
                changes=True,
            ),
            provider.ApiCall(
                name="ec2:CreateSnapshot",
                feature=provider.Feature.SNAPSHOTS,
                right="ec2:CreateSnapshot",
                changes=True,
            ),
        )
        self.missing: tuple[str, ...] = ()

    async def __call__(self, opening: using.Opening) -> provider.Driver:
        """See `using.Opener`."""
        if self.gate is not None:
            await self.gate.wait()
        self.openings.append(opening)
        return cast("provider.Driver", Role(self, opening))


class Role:
    """The part of a driver that connecting needs."""

    capabilities = frozenset({provider.Capability.FEDERATION})

    def __init__(self, account: Account, opening: using.Opening) -> None:
        self._account = account
        self.opening = opening
        self.calls = account.calls

    async def validate(self) -> provider.Validation:
        """Refused until the role trusts us."""
        if not self._account.is_set_up:
            raise outcomes.Fault(
                "AWS refuses to let this Platform take the role on.",
                outcome=outcomes.Outcome.AUTH_LOST,
                topic=outcomes.Topic.AUTH,
                hints=(OURS,),
            )
        return provider.Validation(
            account=self._account.account, principal=OURS, missing=self._account.missing
        )

    async def close(self) -> None:
        """Counted."""
        self._account.closed += 1


def _desk(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, account: Account
) -> cloud_desk.Desk:
    return cloud_desk.place(store, hetzner, address="", opener=account)


async def _save(desk: cloud_desk.Desk, **more: Any) -> connecting.Saved:
    values: dict[str, Any] = {
        "provider": "aws",
        "kind": "aws-role",
        "fields": ROLE,
        "settings": {"region": "us-east-1"},
    }
    return await desk.connecting.save(desk.wish(token="", **{**values, **more}))


async def test_a_role_is_kept_unproved_with_the_text_to_set_it_up_and_opened_by_a_check(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    account = Account()
    desk = _desk(store, hetzner, account)
    saved = await _save(desk)
    found = await desk.get()
    assert found.pause is not None
    assert found.pause.topic == connecting.UNPROVED
    assert await desk.events("cloud-connection.paused") == []  # no alarm: a person is at work on it
    assert found.external_id is not None
    assert found.external_id in saved.setup
    assert OURS in saved.setup
    assert "ec2:RunInstances" in saved.setup
    with pytest.raises(using.Paused):
        async with desk.clouds.driver("main", purpose="x", actor="p", changes=False):
            raise AssertionError("it was opened")
    account.is_set_up = True
    checked = await desk.connecting.check("main", actor=cloud_desk.ACTOR)
    assert checked.checked.is_well
    opened = await desk.get()
    assert (opened.pause, opened.account, opened.external_id) == (
        None,
        "123456789012",
        found.external_id,
    )


async def test_saving_again_keeps_the_external_id_and_each_connection_has_its_own(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = _desk(store, hetzner, Account())
    first = await _save(desk)
    again = await _save(desk)
    other = await _save(desk, name="other")
    ids = [one.connection.external_id for one in (first, again, other)]
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]


async def test_a_rotation_that_proves_nothing_changes_nothing(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    account = Account()
    account.is_set_up = True
    desk = _desk(store, hetzner, account)
    await _save(desk)
    before = await desk.get()
    account.is_set_up = False
    with pytest.raises(connecting.CredentialRefused):
        await _save(desk, fields={"role_arn": "arn:aws:iam::123456789012:role/other"})
    assert await desk.get() == before


async def test_a_credential_of_another_account_is_not_taken_over_a_connection(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    account = Account()
    account.is_set_up = True
    desk = _desk(store, hetzner, account)
    await _save(desk)
    account.account = "210987654321"
    with pytest.raises(connecting.ConnectionDiffers, match="210987654321"):
        await _save(desk)


async def test_a_right_that_no_machine_needs_is_told_and_stops_nothing(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    account = Account()
    account.is_set_up, account.missing = True, ("ec2:CreateSnapshot",)
    desk = _desk(store, hetzner, account)
    saved = await _save(desk)
    assert saved.checked.is_well
    assert saved.checked.warnings == ["The right ec2:CreateSnapshot is missing."]
    account.missing = ("ec2:CreateSnapshot", "ec2:RunInstances")
    checked = await desk.connecting.check("main", actor=cloud_desk.ACTOR)
    assert checked.checked.validation is not None
    assert checked.checked.validation.missing == ("ec2:RunInstances",)
    assert not checked.checked.is_well


async def test_whoever_uses_a_connection_at_once_shares_one_driver_and_the_last_closes_it(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    account = Account()
    account.is_set_up = True
    desk = _desk(store, hetzner, account)
    await _save(desk)
    account.openings.clear()
    account.closed = 0
    inside, leave = asyncio.Barrier(5), asyncio.Event()

    async def use(number: int) -> None:
        async with desk.clouds.driver("main", purpose="x", actor=f"p{number}", changes=True) as one:
            await inside.wait()
            observer = cast("Role", one).opening.observer
            await observer(account.calls[0])
            await leave.wait()

    users = [asyncio.ensure_future(use(number)) for number in range(4)]
    await inside.wait()
    assert (len(account.openings), account.closed) == (1, 0)
    users[0].cancel()  # one that is gone takes nothing from the others
    await asyncio.gather(users[0], return_exceptions=True)
    leave.set()
    await asyncio.gather(*users[1:])
    assert (len(account.openings), account.closed) == (1, 1)
    actors = {entry["actor"] for entry in await desk.actions("cloud.call")}
    assert {"p1", "p2", "p3"} <= actors <= {"p0", "p1", "p2", "p3"}


async def test_a_user_that_leaves_while_the_driver_is_opened_leaves_none_open(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    account = Account()
    account.is_set_up = True
    desk = _desk(store, hetzner, account)
    await _save(desk)
    account.closed, account.gate = 0, asyncio.Event()

    async def use() -> None:
        async with desk.clouds.driver("main", purpose="x", actor="p", changes=False):
            raise AssertionError("it was opened")

    task = asyncio.ensure_future(use())
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    account.gate = None
    async with desk.clouds.driver("main", purpose="x", actor="p", changes=False):
        pass
    assert account.closed == 1


async def test_b92_a_check_says_how_many_of_the_wanted_machines_fit(
    store: contract.Store,
) -> None:
    with digitalocean_bench.DigitalOceanBench() as ocean:
        desk = cloud_desk.place(store, ocean, address=ocean.opening().endpoints[""])
        await desk.connecting.save(
            desk.wish(token=digitalocean.TOKEN, provider="digitalocean", name="ocean")
        )
        ocean.cloud.droplet_limit = 10
        for number in range(6):
            ocean.plant(name=f"theirs-{number}", tags={})
        saved = await desk.connecting.check("ocean", actor=cloud_desk.ACTOR, wanted=5)
        assert saved.checked.fits == 4
        assert "Of 5 machines, 4 fit into the account's limits." in saved.checked.warnings
        enough = await desk.connecting.check("ocean", actor=cloud_desk.ACTOR, wanted=4)
        assert enough.checked.fits == 4


def test_what_is_stored_of_a_connection_cannot_be_read_as_a_secret() -> None:
    fields = set(connections.Connection.__dataclass_fields__)
    assert {"sealed", "secret", "credential", "token"}.isdisjoint(fields)
