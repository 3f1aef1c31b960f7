"""What the kinds of machine operations stand on, and the writes that all of them share."""

import dataclasses
import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from platform_server.audit import actions
from platform_server.cloud import consent, machines, tickets, using, view
from platform_server.operations import holding, kinds, records
from platform_server.sealing import envelope
from platform_server.store import contract
from provisioning import outcomes
from runtime_kit import clock as clock_kit
from wire_protocol import ids


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the settings say ([cloud])."""

    launch: datetime.timedelta = datetime.timedelta(minutes=15)
    enrollment: datetime.timedelta = datetime.timedelta(minutes=20)
    attempts: int = 2
    breaker_failures: int = 3

    @property
    def life(self) -> datetime.timedelta:
        """How long a token lives, from the create call on."""
        return self.launch + self.enrollment


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The parts. `node_changed` hears of a node that was removed, after the commit.

    `caps_of` says what a machine is judged by now, by the connection's id; it raises
    `policy.Unavailable`. `instead_of` says in a sentence what could be had where a machine was sold
    out; empty where nothing is known. Not inside a transaction: both read.
    """

    store: contract.Store
    clouds: using.Clouds
    viewer: view.Viewer
    keyring: envelope.Keyring
    minting: tickets.Minting
    installation: str
    environment: str
    limits: Limits
    clock: clock_kit.Clock
    node_changed: Callable[[ids.NodeId], None]
    caps_of: Callable[[str], Awaitable[Sequence[consent.Caps]]]
    instead_of: Callable[[machines.Machine], Awaitable[str]]


class NoMachine(kinds.Stop):
    """The operation's machine is not in the store: a fault of ours."""


async def machine_of(tx: contract.Tx, *, operation: records.Operation) -> machines.Machine:
    """The machine that the operation is about; raises `NoMachine`."""
    found = await machines.find(tx, machine_id=str(operation.request["machine_id"]))
    if found is None:
        raise NoMachine("The operation's machine is not in the store.")
    return found


def later(fault: outcomes.Fault) -> kinds.TryLater:
    """A question that was not answered: asked again for as long as it takes."""
    wait = 0.0 if fault.retry_after is None else fault.retry_after.total_seconds()
    return kinds.TryLater(str(fault), patient=True, seconds=min(wait, 3600.0))


async def record(
    tx: contract.Tx,
    *,
    held: holding.Held,
    action: str,
    target: str,
    details: dict[str, Any],
    environment: str,
    now: datetime.datetime,
) -> None:
    """Into the action log, in the Platform's name, with the operation."""
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=holding.ACTOR,
            action=action,
            target=target,
            environment=environment,
            infra=held.operation.infra,
            operation=held.operation.operation_id,
            details=details,
        ),
    )
