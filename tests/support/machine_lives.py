"""The engine over a provider's own driver and fake: a machine's whole life, as in the product.

The same engine as `machine_orders` builds, with a row of `clouds.bench` in the place of the pocket
provider; both go by the bench's clock. The machine is played by a guest, which reads the user data
that the fake was given.
"""

import dataclasses
import pathlib
import random
from typing import Any, cast

from platform_server.cloud import (
    catalogue,
    connections,
    create,
    delete,
    machines,
    policy,
    reboot,
    requests,
    using,
)
from platform_server.operations import reconciler
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import naming
from tests.support import domain, machine_orders, standard_asserts
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import pocket
from wire_protocol import ids

HEADER = "#cloud-config\n"


class _Seen:
    """What the guest asks of a cloud, answered from the fake's ledger."""

    def __init__(self, bench: bench_kit.Bench) -> None:
        self._bench = bench

    def ever(self) -> list[dict[str, Any]]:
        """Every machine that ever was, with the ticket alone of its user data."""
        return [
            {"ref": one.ref, "user_data": one.user_data.decode().removeprefix(HEADER)}
            for one in self._bench.ledger.machines.values()
        ]


class _Recording(bench_kit.Announcements):
    """Announces to the product as well."""

    def __init__(self, observer: provider.Observer) -> None:
        super().__init__()
        self._observer = observer

    async def __call__(self, call: provider.ApiCall, /) -> None:
        """Records it there first, as the product does."""
        await self._observer(call)
        await super().__call__(call)


class Life(machine_orders.Engine):
    """One engine at one provider."""

    def __init__(self, platform: domain.Domain, *, bench: bench_kit.Bench) -> None:
        super().__init__(platform, cloud=cast("pocket.Pocket", _Seen(bench)))
        self.bench = bench
        self.changing: set[str] = set()
        self.offered: catalogue.Catalogue | None = None  # where a sold-out order looks further
        self.is_settling = False  # whether each round lets the fake come to its end
        self.clouds._opener = self._open
        render = self.means.minting.render
        minting = dataclasses.replace(
            self.means.minting, render=lambda ticket: HEADER + render(ticket)
        )
        self.means = dataclasses.replace(self.means, minting=minting)
        self.reconciler = reconciler.Reconciler(
            self.store,
            known=[
                create.CreateMachine(self.means),
                delete.DeleteMachine(self.means),
                reboot.RebootMachine(self.means),
            ],
            clock=platform.clock,
            chance=random.Random(4),
            tries=machine_orders.TRIES,
        )

    async def _instead_of(self, machine: machines.Machine) -> str:
        return "" if self.offered is None else await self.offered.instead_of(machine)

    async def _open(self, opening: using.Opening) -> provider.Driver:
        self.bench.told = _Recording(opening.observer)
        driver = self.bench.driver()
        self.changing = {one.name for one in driver.calls if one.changes}
        return driver

    async def carry_on(self, *, rounds: int = 4, seconds: float = 11.0) -> None:
        """So many rounds, so far apart, with a look at what the provider holds where it is due."""
        for _ in range(rounds):
            self.platform.clock.advance(seconds)
            if self.is_settling:
                self.bench.settle()
            await self.viewer.tick()
            await self.reconciler.round()

    async def guest(self, made: requests.Made) -> machine_orders.Guest:
        """The machine behind this order, up and seen from inside."""
        self.bench.settle()
        await self.carry_on(rounds=4)
        machine = await self.machine(made)
        guest = machine_orders.Guest(self, ref=machine.provider_ref or "")
        guest.instance_id = await self._instance_id(machine)
        return guest

    async def _instance_id(self, machine: machines.Machine) -> str | None:
        """What its metadata service would tell it."""
        driver = self.bench.driver()
        try:
            seen = await driver.describe(machine.provider_ref or "", region=machine.region)
        finally:
            await driver.close()
        return None if seen is None else seen.instance_id

    async def end(self, made: requests.Made) -> str:
        """Deletes it, and carries on until that is confirmed."""
        gone = await self.delete(made.machine.machine_id)
        self.is_settling = True
        return await self.until(gone, "deleted", "cancelled")

    async def ordered(self, node_id: str = "web-1") -> requests.Made:
        """An order as the route gives it."""
        order = requests.Order(
            node_id=ids.parse_node_id(node_id),
            infra="default",
            connection=await self.connection(),
            region=self.bench.region,
            size=self.bench.size,
            image=self.bench.image,
            caps=(),
            price=pocket.PRICE,
        )
        return await self.send(order)

    def offers_by(self, policy_file: pathlib.Path) -> None:
        """From now on the product's own catalogue says what could be had instead."""
        self.offered = catalogue.Catalogue(
            self.store,
            clouds=self.clouds,
            policies=policy.Source(policy_file),
            clock=self.platform.clock,
        )

    async def witness(self) -> standard_asserts.Witness:
        """What the fake knows."""
        ours, now = self.means.installation, self.platform.clock.now()
        born = [
            one
            for one in self.bench.ledger.machines.values()
            if one.tags.get(naming.INSTALLATION) == ours
        ]
        return standard_asserts.Witness(
            machines=frozenset(one.ref for one in self.bench.ledger.living(ours)),
            children=frozenset(one.ref for one in self.bench.ledger.living_things(ours)),
            lives={one.ref: ((one.died or now) - one.born).total_seconds() for one in born},
            tickets=[one.user_data.decode().removeprefix(HEADER) for one in born if one.user_data],
            changing=[one for one in self.bench.ledger.names() if one in self.changing],
            secrets=tuple(self.bench.secrets),
        )

    async def _connection(self, tx: contract.Tx) -> connections.Connection:
        made = await super()._connection(tx)
        await tx.execute(
            "UPDATE cloud_connections SET provider = ? WHERE connection_id = ?",
            self.bench.provider,
            made.connection_id,
        )
        return await connections.get(tx, connection_id=made.connection_id)


async def build(store: contract.Store, *, folder: pathlib.Path, bench: bench_kit.Bench) -> Life:
    """An engine at this provider, on the bench's clock."""
    platform = await domain.build(store, folder=folder, clock=bench.clock)
    life = Life(platform, bench=bench)
    await life.connection()
    return life
