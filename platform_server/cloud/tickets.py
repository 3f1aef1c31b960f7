"""Tickets: minted with an attempt, sent with its order, revoked with its end.

The token is an enrollment like any other, made in the name of its operation, so that nobody has to
look whether a person's token belongs to one. It is minted in the transaction that writes the
attempt, lives from the create call for as long as launch and enrollment may take, and is revoked
with its attempt. Who shows one is judged in `admission`.
"""

import dataclasses
import datetime
import functools
from collections.abc import Callable, Mapping
from typing import Final

from platform_server.cloud import attempts, machines
from platform_server.nodes import configured, records, registry, states
from platform_server.store import contract
from platform_server.tokens import ending, issue
from provisioning import first_boot
from runtime_kit import clock
from wire_protocol import ids, pins, statements, tickets

OPERATION: Final = "operation:"

Sign = Callable[[bytes], tuple[statements.Signature, ...]]
Render = Callable[[Mapping[str, str]], str]
"""`{document, signature, key_id}` to first-boot data, ASCII."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """Where a machine finds this Platform, by what it knows it, and what it installs."""

    url: str
    pins: tuple[pins.Pin, ...]
    trust_key_ids: tuple[ids.KeyId, ...]
    bundle: tickets.Bundle | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Minting:
    """What tickets are made with.

    `coordinates` are those for machines of a provider; None while none of its can enroll here.
    """

    platform_id: ids.PlatformId
    sign: Sign
    coordinates: Callable[[str], Coordinates | None]
    render: Render
    operators: configured.ConfiguredNodes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Minted:
    """A ticket inside its first-boot data; neither is kept in readable form."""

    enrollment_id: ids.EnrollmentId
    first_boot: str = dataclasses.field(repr=False)


class CannotMint(Exception):
    """No ticket can be made as things stand; the message says what to do."""


async def mint(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    attempt: int,
    minting: Minting,
    life: datetime.timedelta,
    now: datetime.datetime,
) -> Minted:
    """Issues the enrollment of one attempt and puts it into first-boot data.

    Raises `CannotMint`, and `issue.CannotIssue` where somebody has taken the node id meanwhile.
    """
    coordinates = minting.coordinates(machine.provider)
    if coordinates is None:
        raise CannotMint(
            "This Platform has no address at which machines can enroll: start it with "
            "--enrollment-port."
        )
    node_id = ids.NodeId(machine.node_id)
    await _lift_own_tombstone(tx, machine=machine, minting=minting, now=now)
    issued = await issue.issue(
        tx,
        node_id=node_id,
        ask=functools.partial(registry.standing_of, node_id=node_id, operators=minting.operators),
        replace=False,
        ttl_minutes=min(issue.MOST_MINUTES, max(1, round(life.total_seconds() / 60))),
        labels=machine.wish.get("labels") or {},
        sources=(),
        infra=machine.infra,
        created_by=f"{OPERATION}{machine.operation_id}",
        now=now,
    )
    document = tickets.Document(
        platform_id=minting.platform_id,
        installation=minting.platform_id,
        infra=machine.infra,
        node_id=node_id,
        operation_id=machine.operation_id,
        attempt=attempt,
        url=coordinates.url,
        pins=coordinates.pins,
        trust_key_ids=coordinates.trust_key_ids,
        issued_at=now.replace(microsecond=0),
        expires_at=(now + datetime.timedelta(days=1)).replace(microsecond=0),
        bundle=coordinates.bundle,
        token=issued.token,
    )
    content = document.to_bytes()
    ticket = tickets.sealed_by(document, minting.sign(content)[-1], content=content)
    rendered, snippet = minting.render(ticket.to_wire()), machine.wish.get("first_boot")
    return Minted(
        enrollment_id=issued.enrollment.enrollment_id,
        first_boot=rendered
        if snippet is None
        else first_boot.add_snippet(rendered, first_boot.parse_snippet(snippet)),
    )


async def begin_life(
    tx: contract.Tx, *, enrollment_id: str, life: datetime.timedelta, now: datetime.datetime
) -> None:
    """The create call is about to be made: from now on the token lives for that long."""
    await tx.execute(
        "UPDATE enrollments SET expires_at = ? WHERE enrollment_id = ? AND state = 'pending'",
        clock.to_micros(now + life),
        enrollment_id,
    )


async def revoke(tx: contract.Tx, *, enrollment_id: str | None, now: datetime.datetime) -> None:
    """The attempt has ended: its token opens nothing any more, unless it was spent before."""
    if enrollment_id is not None:
        await ending.withdraw(tx, enrollment_id=enrollment_id, now=now)


async def _lift_own_tombstone(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    minting: Minting,
    now: datetime.datetime,
) -> None:
    """A former attempt of this very order had become a node and was taken away again."""
    node_id = ids.NodeId(machine.node_id)
    await tx.lock(f"node:{node_id}")
    node = await records.find(tx, node_id=node_id)
    if node is None or node.state is not states.State.REMOVED:
        return
    former = await attempts.find_by_enrollment(tx, enrollment_id=node.enrollment_id)
    if former is not None and former.machine_id == machine.machine_id:
        await registry.allow(tx, node_id=node_id, operators=minting.operators, now=now)
