"""The machine's end of the mesh, made for an Agent that may not make interfaces itself.

A captured Agent may ask for this without anybody's signature, so what can be asked for is narrow:
one interface under our mark, one address of ours and one peer with one address; which addresses,
`mesh_rules` judges. What it asked for before is taken back, so that there is never more than that.
"""

import ipaddress
import pathlib
from collections.abc import Iterable
from typing import Final

from root_helper import mesh_rules, refusals, trusted
from runtime_kit import clock as clock_kit
from runtime_kit import secret
from runtime_kit.wireguard import backends, config, device, keys, programs
from wire_protocol import helper_state

INTERFACE: Final = "enlist0"


def mark(known: trusted.Known) -> str:
    """By which this node's interface is known on the machine; the Agent's own is the same."""
    return f"enlist mesh node {known.platform_id} {known.node_id}"


class Mesh:
    """Makes, looks at and removes the one interface."""

    def __init__(
        self,
        run: programs.Runner = programs.run,
        *,
        resolver_files: Iterable[pathlib.Path] = mesh_rules.RESOLVER_FILES,
    ) -> None:
        self._run = run
        self._resolver_files = tuple(resolver_files)

    async def up(self, asked: helper_state.MeshUp, *, known: trusted.Known) -> None:
        """Brings it to what was asked for; may be repeated, and sessions stay. Raises `Refused`."""
        await mesh_rules.require_harmless(
            (asked.address, asked.platform_address),
            own=mark(known),
            run=self._run,
            resolver_files=self._resolver_files,
        )
        try:
            private_key = secret.Secret(asked.private_key)
            keys.public_key_of(private_key)
            made = await device.ensure(
                _wanted(asked, owner=mark(known), private_key=private_key),
                backend=backends.of_this_machine(self._run),
                run=self._run,
            )
            await made.apply([_peer(asked)])
            wanted = config.alone(asked.platform_address)
            await self._drop_former_routes(made.name, but=wanted)
            await made.route(wanted)
        except keys.NoKey as error:
            raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
        except (programs.Fault, OSError, ValueError, KeyError) as error:
            raise refusals.Refused(refusals.Code.FAILED, str(error)) from error

    async def down(self, *, known: trusted.Known) -> None:
        """Removes it; may be repeated. Raises `Refused`."""
        try:
            await device.remove_leftovers(owner=mark(known), run=self._run)
        except programs.Fault as error:
            raise refusals.Refused(refusals.Code.FAILED, str(error)) from error

    async def look(self, *, known: trusted.Known) -> helper_state.MeshState | None:
        """How it stands; None where it is not there. Raises `Refused`."""
        try:
            for link in mesh_rules.read_list(await self._run("ip", "-j", "link", "show")):
                if link.get("ifalias") == mark(known):
                    name = str(link["ifname"])
                    found = config.parse_dump(await self._run("wg", "show", name, "dump"))
                    return _state(found, name=name)
        except (programs.Fault, ValueError) as error:
            raise refusals.Refused(refusals.Code.FAILED, str(error)) from error
        return None

    async def _drop_former_routes(self, name: str, *, but: config.Network) -> None:
        """What the interface was asked to take before; one address at a time is led into it."""
        shown = await self._run("ip", "-j", "route", "show", "table", "all")
        for route in mesh_rules.read_list(shown):
            if route.get("dev") != name or route.get("protocol") == "kernel":
                continue
            network = ipaddress.ip_network(route["dst"], strict=False)
            if network != but:
                family = f"-{network.version}"
                await self._run("ip", family, "route", "del", str(network), "dev", name)


def _wanted(asked: helper_state.MeshUp, *, owner: str, private_key: secret.Secret) -> config.Wanted:
    return config.Wanted(
        name=INTERFACE,
        owner=owner,
        private_key=private_key,
        listen_port=None,
        address=config.interface(asked.address, network=config.alone(asked.address)),
        mtu=asked.mtu,
    )


def _peer(asked: helper_state.MeshUp) -> config.Peer:
    return config.Peer(
        public_key=asked.platform_public_key,
        allowed=(config.alone(asked.platform_address),),
        endpoint=config.Endpoint(address=asked.endpoint_address, port=asked.endpoint_port),
        keepalive_seconds=asked.keepalive_seconds,
    )


def _state(found: config.State, *, name: str) -> helper_state.MeshState:
    return helper_state.MeshState(
        interface=name,
        public_key=found.public_key or "",
        listen_port=found.listen_port,
        peers=tuple(
            helper_state.MeshPeer(
                public_key=peer.public_key,
                endpoint=peer.endpoint or "",
                handshake_at=0
                if peer.handshake_at is None
                else clock_kit.to_micros(peer.handshake_at) // 1_000_000,
                received_bytes=peer.received_bytes,
                sent_bytes=peer.sent_bytes,
            )
            for peer in found.peers.values()
        ),
    )
