"""The Platform's end of the mesh: one interface, kept by the engine that leads.

It follows the events: a node that enrolled becomes a peer, one that was removed stops being one
within a second. What the interface has seen is written to the store, where every engine reads it.
Whatever happens to the interface from outside is mended at the next look; a start takes up what a
killed one left.

Known limit: one interface, so one endpoint; where the lead passes to an engine on another machine,
the endpoint's name or address must follow it.
"""

import asyncio
import datetime
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from platform_server.mesh import founding, members, readiness, sightings
from platform_server.nodes import leading
from platform_server.store import contract, leases
from runtime_kit import clock as clock_kit
from runtime_kit.wireguard import config, programs
from wire_protocol import ids
from wire_protocol import mesh as mesh_words

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

LEASE: Final = "mesh"
TICK_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 5.0
READ_ALL_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = (5.0, 30.0)
_EVENTS: Final = 500
_LARGE: Final = 500
_CHANGES: Final = frozenset(
    {"node.enrolled", "node.key-changed", "node.removed", "node.allowed", "node.mesh-changed"}
)


class Device(Protocol):
    """`runtime_kit.wireguard.device.Device`, or a fake."""

    name: str

    async def apply(self, peers: Sequence[config.Peer]) -> None:
        """Brings everything to what it should be, with exactly these peers."""

    async def set_peers(self, peers: Sequence[config.Peer]) -> None:
        """Adds or changes these."""

    async def remove_peers(self, public_keys: Sequence[str]) -> None:
        """Ends these at once."""

    async def look(self) -> config.State:
        """How it stands."""
        ...

    async def is_ours(self) -> bool:
        """Whether it is still there under our mark."""
        ...

    async def remove(self) -> None:
        """Removes it, if it is still ours."""


class Hub:
    """The mesh of one engine. Only the engine that leads has the interface."""

    def __init__(
        self,
        store: contract.Store,
        *,
        mesh: founding.Mesh,
        make: Callable[[], Awaitable[Device]],
        clock: clock_kit.Clock,
        chance: random.Random,
    ) -> None:
        self._store = store
        self._mesh = mesh
        self._make = make
        self._clock = clock
        self._chance = chance
        self._leading = leading.Leading(store, name=LEASE, clock=clock)
        self._device: Device | None = None
        self._made: Device | None = None  # the same, also while it has a fault
        self._known: dict[ids.NodeId, members.Member] = {}
        self._seen_event = 0
        self._retry = self._look = self._read_all = 0.0
        self.fault: str | None = None

    @property
    def interface(self) -> str | None:
        """The interface's name while this engine has it."""
        return None if self._device is None else self._device.name

    async def run(self) -> None:
        """Keeps the mesh for ever; removes the interface at the end."""
        try:
            while True:
                try:
                    await self.turn()
                except (contract.StoreError, leases.LeaseLost) as fault:
                    _LOG.warning("The mesh cannot use the store", extra={"reason": str(fault)})
                await self._clock.sleep(TICK_SECONDS)
        finally:
            await self._take_down()
            try:
                await self._leading.release()
            except contract.StoreError as fault:
                _LOG.warning("The mesh's lease was not given up", extra={"reason": str(fault)})

    async def turn(self) -> None:
        """One round: lead or stand by, make what is missing, follow, look."""
        if not await self._leading.holds():
            await self._take_down()
            self.fault = None
            return
        now = self._clock.monotonic()
        try:
            if self._device is None:
                if now >= self._retry:
                    await self._bring_up()
                return
            if now >= self._read_all:
                await self._reconcile()
            else:
                await self._follow()
            if now >= self._look:
                await self._see()
                self._look = now + LOOK_SECONDS
        except programs.Fault as fault:
            self._failed(fault)

    def _failed(self, fault: programs.Fault) -> None:
        if self.fault != str(fault):
            _LOG.warning("The mesh's interface failed", extra={"reason": str(fault)})
        self.fault = str(fault)
        self._device = None  # taken up again, or made anew, by its mark
        self._retry = self._clock.monotonic() + self._chance.uniform(*_RETRY_SECONDS)

    async def _bring_up(self) -> None:
        device = self._made = await self._make()
        self._seen_event = await self._store.read(_last_event)
        live = await self._everybody()
        await device.apply([_peer(one) for one in live.values()])
        self._device, self._known, self.fault = device, live, None
        now = self._clock.monotonic()
        self._look, self._read_all = now, now + READ_ALL_SECONDS
        _LOG.info(
            "The mesh is up",
            extra={
                "interface": device.name,
                "network": str(self._mesh.network),
                "members": len(live),
            },
        )

    async def _reconcile(self) -> None:
        """Everything anew, once in a while: what an event did not tell, and addresses to free."""
        await self._write(members.purge)
        await self._change_to(await self._everybody(), among=None)
        self._read_all = self._clock.monotonic() + READ_ALL_SECONDS

    async def _follow(self) -> None:
        touched, seen = await self._store.read(functools.partial(_touched, seen=self._seen_event))
        if touched:
            live = await self._store.read(functools.partial(_live_of, node_ids=touched))
            await self._change_to(live, among=touched)
        self._seen_event = seen

    async def _change_to(
        self,
        live: dict[ids.NodeId, members.Member],
        *,
        among: set[ids.NodeId] | None,
    ) -> None:
        """Makes the peers (those `among`, or all) be these."""
        if self._device is None:
            return
        known = {
            node_id: member
            for node_id, member in self._known.items()
            if among is None or node_id in among
        }
        kept_keys = {member.public_key for member in live.values()}
        gone = [
            member.public_key for member in known.values() if member.public_key not in kept_keys
        ]
        fresh = [
            member
            for node_id, member in live.items()
            if node_id not in known or _peer(known[node_id]) != _peer(member)
        ]
        await self._device.remove_peers(gone)
        await self._device.set_peers([_peer(member) for member in fresh])
        for node_id in known:
            del self._known[node_id]
        self._known |= live

    async def _see(self) -> None:
        """Looks at the interface: mends it, and writes what it has seen."""
        if self._device is None:
            return
        if not await self._device.is_ours():
            raise programs.Fault("The interface is gone, or somebody else's by now.")
        state = await self._device.look()
        now = self._clock.now()
        is_right, news = await _apart(
            functools.partial(_compare, dict(self._known), state=state, now=now),
            size=len(self._known),
        )
        if not is_right or state.public_key != self._mesh.public_key:
            _LOG.warning("The mesh's interface was changed by somebody else, it is put right")
            await self._device.apply([_peer(member) for member in self._known.values()])
        for start in range(0, len(news), sightings.BATCH):
            batch = news[start : start + sightings.BATCH]
            await self._write(functools.partial(sightings.write, sightings=batch, now=now))
            for one in batch:
                self._remember(one)

    def _remember(self, one: sightings.Sighting) -> None:
        member = self._known[one.node_id]
        self._known[one.node_id] = members.Member(
            node_id=member.node_id,
            public_key=member.public_key,
            address=member.address,
            handshake_at=one.handshake_at or member.handshake_at,
            state=one.state,
        )

    async def _everybody(self) -> dict[ids.NodeId, members.Member]:
        found: dict[ids.NodeId, members.Member] = {}
        after = ""
        while page := await self._store.read(functools.partial(members.list_live, after=after)):
            found |= {member.node_id: member for member in page}
            after = page[-1].node_id
        return found

    async def _write(self, work: Callable[[contract.Tx], Awaitable[_T]]) -> _T:
        """One transaction of the engine that leads; raises `LeaseLost` if that is another now."""

        async def fenced(tx: contract.Tx) -> _T:
            await self._leading.fence(tx)
            return await work(tx)

        return await self._store.transact(fenced)

    async def _take_down(self) -> None:
        device, self._made, self._device = self._made, None, None
        self._known = {}
        if device is None:
            return
        try:
            await device.remove()
            _LOG.info("The mesh is down", extra={"interface": device.name})
        except programs.Fault as fault:
            _LOG.warning("The mesh's interface was not removed", extra={"reason": str(fault)})


def _peer(member: members.Member) -> config.Peer:
    """A node as a peer: its own address and nothing else; where it is, it shows by calling."""
    return config.Peer(public_key=member.public_key, allowed=(config.alone(member.address),))


async def _apart(work: Callable[[], _T], *, size: int) -> _T:
    """Runs it; beside the event loop where it is so large that others would wait for it."""
    return await asyncio.to_thread(work) if size > _LARGE else work()


def _compare(
    known: Mapping[ids.NodeId, members.Member], *, state: config.State, now: datetime.datetime
) -> tuple[bool, list[sightings.Sighting]]:
    """Whether the interface has exactly these peers with their addresses, and what is news."""
    is_right = len(state.peers) == len(known) and all(
        member.public_key in state.peers
        and state.peers[member.public_key].allowed == (_written(member.address),)
        for member in known.values()
    )
    news = [
        sighting
        for member in known.values()
        if (sighting := _sighting(member, state=state, now=now)) is not None
    ]
    return is_right, news


def _written(address: mesh_words.Address) -> str:
    """The address as `wg` writes it."""
    return f"{address}/{address.max_prefixlen}"


def _sighting(
    member: members.Member, *, state: config.State, now: datetime.datetime
) -> sightings.Sighting | None:
    """What is news of one member; None where nothing changed."""
    peer = state.peers.get(member.public_key)
    shaken = None if peer is None else peer.handshake_at
    before = member.handshake_at
    # a moment ahead of the clock is from before the clock was set back: no news for ever
    if shaken is not None and (before is None or shaken > before) and shaken <= now + _TOLERATED:
        before = shaken
    lack = readiness.lack_of(before, now=now)
    standing = {
        None: sightings.UP,
        readiness.WAITING: sightings.WAITING,
        readiness.SILENT: sightings.SILENT,
    }[lack]
    if before == member.handshake_at and standing == member.state:
        return None
    return sightings.Sighting(
        node_id=member.node_id,
        public_key=member.public_key,
        state=standing,
        handshake_at=before,
    )


_TOLERATED: Final = datetime.timedelta(seconds=5)


async def _last_event(tx: contract.Tx) -> int:
    row = await tx.fetch_one("SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
    return 0 if row is None else int(row["seq"])


async def _touched(tx: contract.Tx, *, seen: int) -> tuple[set[ids.NodeId], int]:
    rows = await tx.fetch_all(
        "SELECT seq, kind, subject FROM events WHERE seq > ? ORDER BY seq LIMIT ?", seen, _EVENTS
    )
    touched = {ids.NodeId(row["subject"]) for row in rows if row["kind"] in _CHANGES}
    return touched, int(rows[-1]["seq"]) if rows else seen


async def _live_of(
    tx: contract.Tx, *, node_ids: set[ids.NodeId]
) -> dict[ids.NodeId, members.Member]:
    found = [await members.find_live(tx, node_id=node_id) for node_id in sorted(node_ids)]
    return {member.node_id: member for member in found if member is not None}
