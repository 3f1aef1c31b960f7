"""Keeps the machine's interface as its place says, and tells how it stands.

Whatever goes wrong is tried again for ever and changes nothing else: without the mesh the Agent
goes on as it is, and the Platform decides what that means for the node. A small datagram to the
Platform every few seconds makes WireGuard notice by itself that the other end has lost the session
(keepalives alone would not, for two minutes).
"""

import contextlib
import dataclasses
import datetime
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from runtime_kit import clock as clock_kit
from runtime_kit import secret
from runtime_kit.wireguard import backends, config, device, keys, programs
from wire_protocol import heartbeats, ids, mesh
from worker_agent.mesh import by_helper, endpoints, grant_file, key, place
from worker_agent.settings import documents, paths

LOGGER = logging.getLogger(__name__)
TURN_SECONDS = 5.0
SILENT_SECONDS = 35.0  # a datagram every 5 s is answered within 10 s, at the latest by a keepalive
TRY_ADDRESS_SECONDS = 15.0
RETRY_SECONDS = (20.0, 60.0)
ASK_SECONDS = (900.0, 2700.0)  # again where it is not up, or no session opens that would ask
INTERFACE = "enlist0"
_DISCARD_PORT = 9
_MOST_REASON = 200

UP, WAITING, FAILED = "up", "waiting", "failed"


class Device(Protocol):
    """`runtime_kit.wireguard.device.Device`, or a fake."""

    name: str

    async def apply(self, peers: Sequence[config.Peer]) -> None:
        """Brings everything to what it should be, with exactly these peers."""

    async def set_peers(self, peers: Sequence[config.Peer]) -> None:
        """Adds or changes these."""

    async def route(self, network: config.Network) -> None:
        """Sends what is for that network into the interface."""

    async def look(self) -> config.State:
        """How it stands."""
        ...

    async def is_ours(self) -> bool:
        """Whether it is still there under our mark."""
        ...

    async def remove(self) -> None:
        """Removes it, if it is still ours."""


Make = Callable[[config.Wanted], Awaitable[Device]]
Nudge = Callable[[mesh.Address], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Whose interface it is."""

    platform_id: ids.PlatformId
    node_id: ids.NodeId

    @property
    def mark(self) -> str:
        """By which this node's interface is known on the machine."""
        return f"enlist mesh node {self.platform_id} {self.node_id}"


async def make(wanted: config.Wanted) -> Device:
    """The machine's interface, by the kernel or by wireguard-go; by the root helper if need be."""
    door = by_helper.door_if_needed()
    if door is not None:
        return by_helper.Device(wanted, door=door)
    return await device.ensure(wanted, backend=backends.of_this_machine())


def nudge(address: mesh.Address) -> None:
    """Sends one byte to where nobody listens; the answer is an error that nobody reads."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)  # noqa: FBT003 - the library's own signature
        sender.sendto(b"\0", (str(address), _DISCARD_PORT))


class Keeper:
    """The interface of one node."""

    def __init__(
        self,
        where: paths.Paths,
        *,
        member: Member,
        clock: clock_kit.Clock,
        chance: random.Random,
        maker: Make = make,
        nudger: Nudge = nudge,
        resolver: endpoints.Resolve = endpoints.resolve,
    ) -> None:
        self._where = where
        self._member = member
        self._clock = clock
        self._chance = chance
        self._make = maker
        self._nudge = nudger
        self._endpoints = endpoints.Endpoints(resolver)
        self._grant = _read(where)
        self._device: Device | None = None
        self._made: Device | None = None  # the same, also while it has a fault
        self._retry = self._try_address = self._ask_at = 0.0
        self._asker: place.Asker | None = None
        self._asked_with: str | None = None  # the public key that the Platform was told last
        self._heard = (0, 0.0)  # how many bytes have come in, and when that last changed
        self._state: heartbeats.MeshState | None = None
        self._told: str | None = None

    @property
    def state(self) -> heartbeats.MeshState | None:
        """How it stands, for the heartbeat; None where this node has no place."""
        return self._state

    def session_opened(self, asker: place.Asker) -> None:
        """The Platform can be asked for the place: at once, and again where that helps."""
        self._asker, self._ask_at = asker, 0.0

    def session_closed(self) -> None:
        """Nobody can be asked until a session opens again."""
        self._asker = None

    def take(self, grant: mesh.Grant | None) -> None:
        """A place that the Platform has just given, or that there is none any more."""
        if grant != self._grant:
            self._grant, self._device, self._retry = grant, None, 0.0

    async def run(self) -> None:
        """Keeps it for ever; removes the interface at the end."""
        try:
            while True:
                try:
                    await self.turn()
                # The mesh is not to end the Agent by something nobody foresaw.
                except Exception:
                    LOGGER.exception("The mesh met a fault of ours")
                await self._clock.sleep(TURN_SECONDS)
        finally:
            await self._take_down()

    async def turn(self) -> None:
        """One round: ask where that is due, make what is missing, look, try the next address."""
        await self._ask()
        if self._grant is None:
            await self._take_down()
            self._state = None
            return
        try:
            if self._device is None:
                if self._clock.monotonic() < self._retry:
                    return
                await self._bring_up(self._grant)
            await self._look(self._grant)
        except (programs.Fault, endpoints.NotFound, OSError) as fault:
            self._failed(str(fault))

    async def _ask(self) -> None:
        """Asks for the place; at once where the key was replaced. Without an answer all stays."""
        now = self._clock.monotonic()
        if self._asker is None:
            return
        try:
            is_other_key = self._asked_with not in (None, _public_key(self._where))
            if now < self._ask_at and not is_other_key:
                return
            self._ask_at = now + self._chance.uniform(*ASK_SECONDS)
            self.take(await place.ask(self._where, asker=self._asker))
            self._asked_with = _public_key(self._where)
        except (place.NotAnswered, OSError) as fault:
            level = logging.INFO if self._grant is None else logging.WARNING
            LOGGER.log(level, "The mesh place was not learned", extra={"reason": str(fault)})

    async def _bring_up(self, grant: mesh.Grant) -> None:
        private_key = key.ensure(self._where)
        endpoint = await self._endpoints.next(grant.endpoint)
        device_ = self._made = await self._make(self._wanted(grant, private_key=private_key))
        await device_.apply([_peer(grant, endpoint=endpoint)])
        await device_.route(config.alone(grant.platform_address))
        self._device = device_
        self._try_address = self._clock.monotonic() + TRY_ADDRESS_SECONDS
        self._heard = (0, 0.0)
        LOGGER.info(
            "Mesh interface up",
            extra={"interface": device_.name, "address": str(grant.address)},
        )

    async def _look(self, grant: mesh.Grant) -> None:
        if self._device is None:
            return
        if not await self._device.is_ours():
            raise programs.Fault("The interface is gone, or somebody else's by now.")
        state = await self._device.look()
        peer = state.peers.get(grant.platform_public_key)
        if state.public_key != _public_key(self._where):
            self._device = None  # the key was replaced, or the interface changed: at the next turn
            return
        if peer is None:
            raise programs.Fault("The interface was changed by somebody else.")
        self._nudge(grant.platform_address)
        age = _age(peer.handshake_at, now=self._clock.now())
        if age is not None and self._hears(peer.received_bytes):
            self._tell(UP, reason=None, age=age)
            return
        self._tell(WAITING, reason=f"No answer from {peer.endpoint} by UDP.", age=age)
        if self._clock.monotonic() >= self._try_address:
            self._try_address = self._clock.monotonic() + TRY_ADDRESS_SECONDS
            endpoint = await self._endpoints.next(grant.endpoint)
            await self._device.set_peers([_peer(grant, endpoint=endpoint)])

    def _hears(self, received_bytes: int) -> bool:
        """Whether something has come in lately; told by bytes, as clocks are set forth and back."""
        before, at = self._heard
        now = self._clock.monotonic()
        if received_bytes != before:
            self._heard = (received_bytes, now)
            return True
        return received_bytes > 0 and now - at <= SILENT_SECONDS

    def _wanted(self, grant: mesh.Grant, *, private_key: secret.Secret) -> config.Wanted:
        alone = config.alone(grant.address)
        return config.Wanted(
            name=INTERFACE,
            owner=self._member.mark,
            private_key=private_key,
            listen_port=None,
            address=config.interface(grant.address, network=alone),
            mtu=grant.mtu,
        )

    def _failed(self, reason: str) -> None:
        self._device = None
        self._retry = self._clock.monotonic() + self._chance.uniform(*RETRY_SECONDS)
        self._tell(FAILED, reason=reason)

    def _tell(self, state: str, *, reason: str | None, age: float | None = None) -> None:
        self._state = heartbeats.MeshState(
            state=state,
            reason=None if reason is None else reason[:_MOST_REASON],
            handshake_age_seconds=None if age is None else round(age),
        )
        told = f"{state} {reason}"
        if told != self._told:
            level = logging.INFO if state == UP else logging.WARNING
            LOGGER.log(level, "Mesh %s", state, extra={"reason": reason})
        self._told = told

    async def _take_down(self) -> None:
        made, self._made, self._device = self._made, None, None
        if made is None:
            return
        try:
            await made.remove()
        except programs.Fault as fault:
            LOGGER.warning("The mesh interface was not removed", extra={"reason": str(fault)})


async def remove_interface(member: Member, *, run: programs.Runner = programs.run) -> None:
    """For a machine that leaves: what a killed Agent may have left too; never raises `Fault`."""
    with contextlib.suppress(programs.Fault):
        door = by_helper.door_if_needed()
        if door is not None:
            await by_helper.remove(door)
            return
        await device.remove_leftovers(owner=member.mark, run=run)


def _peer(grant: mesh.Grant, *, endpoint: config.Endpoint) -> config.Peer:
    """The Platform: it may send from its own address alone, and is all there is to send to."""
    return config.Peer(
        public_key=grant.platform_public_key,
        allowed=(config.alone(grant.platform_address),),
        endpoint=endpoint,
        keepalive_seconds=grant.keepalive_seconds,
    )


def _public_key(where: paths.Paths) -> str:
    """Of the key on the disk, made where there is none; raises `OSError` of the disk."""
    return keys.public_key_of(key.ensure(where))


def _age(moment: datetime.datetime | None, *, now: datetime.datetime) -> float | None:
    """Seconds since then; a moment ahead of the clock is from before the clock was set back."""
    return None if moment is None else max(0.0, (now - moment).total_seconds())


def _read(where: paths.Paths) -> mesh.Grant | None:
    try:
        return grant_file.read(where.mesh)
    except documents.Damaged as fault:
        LOGGER.warning("The mesh place cannot be read", extra={"reason": str(fault)})
        return None
