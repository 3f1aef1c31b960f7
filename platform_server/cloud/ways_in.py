"""Ends a way in by SSH when its time is up: port 22 is shut at the provider, and that is recorded.

The machine's own security group is what opens it. A driver that is asked to delete that group takes
its rules out first, so the port is shut although the group stays with the machine until its end.
Whether it was done stands in the machine's row; a provider that gives no answer is asked again.

Known limit: a session that is open stays open, and the person's key stays on the machine.
"""

import datetime
import functools
import json
import logging
from collections.abc import Sequence
from typing import Final

from platform_server.audit import actions, events
from platform_server.cloud import children, connections, machines, using
from platform_server.nodes import leading
from platform_server.store import contract as store_contract
from platform_server.store import leases
from provisioning import contract, outcomes
from runtime_kit import clock as clock_kit
from wire_protocol import times

LEASE: Final = "cloud-ways-in"
TICK_SECONDS: Final = 30.0
MOST: Final = 2000
SHUT: Final = "shut"
_LOG: Final = logging.getLogger(__name__)


class WaysIn:
    """The task. Used from one event loop."""

    def __init__(
        self,
        store: store_contract.Store,
        *,
        clouds: using.Clouds,
        environment: str,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._clouds = clouds
        self._environment = environment
        self._clock = clock

    async def run(self) -> None:
        """For ever; a store that is away is waited for."""
        lease = leading.Leading(self._store, name=LEASE, clock=self._clock)
        try:
            while True:
                await self._clock.sleep(TICK_SECONDS)
                try:
                    if await lease.holds():
                        await self.tick()
                except (store_contract.StoreError, leases.LeaseLost) as fault:
                    _LOG.warning("Ways in wait to be shut", extra={"reason": str(fault)})
        finally:
            await lease.release()

    async def tick(self) -> int:
        """Shuts those whose time is up; gives how many. One that fails is nobody else's matter."""
        now = self._clock.now()
        shut = 0
        for machine in await self._store.read(functools.partial(_list_due, now=now)):
            groups = await self._store.read(functools.partial(_list_open, machine=machine))
            if not groups:
                continue
            try:
                await self._shut(machine, groups=groups)
            except store_contract.StoreError:
                raise
            except Exception as fault:  # noqa: BLE001 - one driver's fault is not to end all others
                using.tell_unusable(
                    _LOG,
                    "A way in could not be shut yet",
                    connection=machine.connection_id,
                    fault=fault,
                )
                continue
            await self._store.transact(
                functools.partial(self._record, machine=machine, groups=groups)
            )
            shut += 1
        return shut

    async def _shut(self, machine: machines.Machine, *, groups: Sequence[contract.Child]) -> None:
        async with self._clouds.driver(
            machine.connection_id,
            purpose="shut-ssh",
            actor=connections.ACTOR,
            operation_id=machine.operation_id,
            changes=True,
        ) as driver:
            for group in groups:
                await _shut_group(driver, group)

    async def _record(
        self,
        tx: store_contract.Tx,
        *,
        machine: machines.Machine,
        groups: Sequence[contract.Child],
    ) -> None:
        now = self._clock.now()
        wish = dict(machine.wish)
        wish["ssh"] = {**wish["ssh"], SHUT: [*_shut_of(machine), *(one.ref for one in groups)]}
        await tx.execute(
            "UPDATE cloud_machines SET wish = ? WHERE machine_id = ?",
            json.dumps(wish, sort_keys=True),
            machine.machine_id,
        )
        details = {"machine_id": machine.machine_id, "until": wish["ssh"]["until"]}
        await events.append(
            tx,
            at=now,
            kind="cloud-machine.ssh-shut",
            subject=machine.node_id,
            infra=machine.infra,
            data=details,
        )
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=connections.ACTOR,
                action="cloud.machines.ssh-shut",
                target=machine.node_id,
                environment=self._environment,
                infra=machine.infra,
                operation=machine.operation_id,
                details=details,
            ),
        )


async def _list_due(tx: store_contract.Tx, *, now: datetime.datetime) -> Sequence[machines.Machine]:
    """Machines that are there, with a way in whose time is up."""
    rows = await tx.fetch_all(
        "SELECT machine_id, wish FROM cloud_machines m WHERE gone_at IS NULL "
        "AND forgotten_at IS NULL AND EXISTS (SELECT 1 FROM cloud_children c "
        "WHERE c.machine_id = m.machine_id AND c.kind = ? AND c.gone_at IS NULL) "
        "ORDER BY ordered_at, machine_id LIMIT ?",
        contract.ChildKind.SECURITY_GROUP.value,
        MOST,
    )
    due = []
    for row in rows:
        until = (json.loads(row["wish"]).get("ssh") or {}).get("until")
        if until is not None and times.from_rfc3339(until) <= now:
            due.append(await machines.get(tx, machine_id=row["machine_id"]))
    return due


async def _list_open(
    tx: store_contract.Tx, *, machine: machines.Machine
) -> Sequence[contract.Child]:
    """Its groups that nobody has shut; each attempt makes one of its own."""
    return [
        one.child
        for one in await children.list_hanging(tx, machine_id=machine.machine_id)
        if one.child.kind is contract.ChildKind.SECURITY_GROUP
        and one.child.ref not in _shut_of(machine)
    ]


def _shut_of(machine: machines.Machine) -> Sequence[str]:
    return list(machine.wish["ssh"].get(SHUT, ()))


async def _shut_group(driver: contract.Driver, group: contract.Child) -> None:
    """In use and without rules is what is wanted; anything else unclear is asked again."""
    try:
        await driver.delete_child(group)
    except outcomes.Fault as fault:
        is_in_use = (
            fault.outcome is outcomes.Outcome.NOT_DONE_RETRYABLE
            and fault.topic is outcomes.Topic.STATE
        )
        if not is_in_use:
            raise
