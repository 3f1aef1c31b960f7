"""The mesh interface of an Agent that may not make one: the root helper makes it.

The same few steps as `runtime_kit.wireguard.device`, asked for over the helper's socket; what goes
wrong there is a `Fault` here. The name of the interface's owner is not said: the helper knows whose
node this is. Known limit: while the mesh is up the helper is asked every few seconds, so that it
does not end by itself.
"""

import os
import pathlib
from collections.abc import Sequence

from runtime_kit import clock as clock_kit
from runtime_kit.wireguard import config, programs
from wire_protocol import helper_protocol as helper
from wire_protocol import helper_state, strict_json
from worker_agent.door import root_helper

_STATUS = pathlib.Path("/proc/self/status")


def door_if_needed() -> root_helper.Door | None:
    """The helper, where this process may not make interfaces itself and there is one."""
    door = root_helper.of(os.environ)
    if programs.may_administer_networks(_STATUS.read_text()) or not door.is_there:
        return None
    return door


class Device:
    """A `mesh.keeper.Device`."""

    def __init__(self, wanted: config.Wanted, *, door: root_helper.Door) -> None:
        self._wanted = wanted
        self._door = door
        self._peer: config.Peer | None = None
        self._seen: helper_state.MeshState | None = None
        self.name = wanted.name

    async def apply(self, peers: Sequence[config.Peer]) -> None:
        """Takes the one peer there is; `route` asks for all at once."""
        (self._peer,) = peers

    async def set_peers(self, peers: Sequence[config.Peer]) -> None:
        """The peer at another address."""
        (self._peer,) = peers
        await self._up()

    async def route(self, network: config.Network) -> None:
        """The helper sends what is for the peer's one address into the interface."""
        del network
        await self._up()

    async def look(self) -> config.State:
        """How it stood when `is_ours` was asked."""
        seen = self._seen
        if seen is None:
            raise programs.Fault("The root helper knows of no mesh interface.")
        return config.State(
            public_key=seen.public_key or None,
            listen_port=seen.listen_port,
            peers={
                peer.public_key: config.PeerState(
                    public_key=peer.public_key,
                    endpoint=peer.endpoint or None,
                    allowed=(),
                    handshake_at=clock_kit.from_micros(peer.handshake_at * 1_000_000)
                    if peer.handshake_at
                    else None,
                    received_bytes=peer.received_bytes,
                    sent_bytes=peer.sent_bytes,
                )
                for peer in seen.peers
            },
        )

    async def is_ours(self) -> bool:
        """Whether the helper sees it under our mark."""
        line = await _ask(self._door, helper.write_question(helper.Verb.STATUS))
        try:
            self._seen = helper_state.parse_status(line).mesh
        except helper.Refused as error:
            raise programs.Fault(str(error)) from error
        except strict_json.Malformed as error:
            raise programs.Fault(f"The root helper cannot be understood: {error}") from error
        if self._seen is not None:
            self.name = self._seen.interface
        return self._seen is not None

    async def remove(self) -> None:
        """Removes it, if it is there."""
        await remove(self._door)

    async def _up(self) -> None:
        peer, wanted = self._peer, self._wanted
        if peer is None or peer.endpoint is None:
            raise programs.Fault("The Platform's end has no address yet.")
        (platform,) = peer.allowed
        asked = helper_state.MeshUp(
            private_key=wanted.private_key.reveal(),
            address=wanted.address.ip,
            mtu=wanted.mtu,
            platform_address=platform.network_address,
            platform_public_key=peer.public_key,
            endpoint_address=peer.endpoint.address,
            endpoint_port=peer.endpoint.port,
            keepalive_seconds=peer.keepalive_seconds or 25,
        )
        await _done(self._door, asked.to_line(), state="up")


async def remove(door: root_helper.Door) -> None:
    """Has the helper remove this node's interface; may be repeated. Raises `Fault`."""
    await _done(door, helper.write_question(helper.Verb.MESH_DOWN), state="down")


async def _done(door: root_helper.Door, line: bytes, *, state: str) -> None:
    said = await _ask(door, line)
    try:
        helper.parse_done(said, state=state)
    except helper.Refused as error:
        raise programs.Fault(f"The root helper refuses: {error}") from error
    except strict_json.Malformed as error:
        raise programs.Fault(f"The root helper cannot be understood: {error}") from error


async def _ask(door: root_helper.Door, line: bytes) -> bytes:
    try:
        return await door.ask(line)
    except root_helper.NotAsked as error:
        raise programs.Fault(str(error)) from error
