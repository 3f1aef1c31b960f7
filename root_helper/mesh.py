"""The machine's end of the mesh, made for an Agent that may not make interfaces itself.

A captured Agent may ask for this without anybody's signature, so what can be asked for is narrow:
one interface under our mark, one address of ours and one peer with one address, both from the
ranges for private use, and neither from a network that this machine is directly part of. So nobody
redirects the machine's name server, its neighbours or the public internet by it. Known limit: one
private address that is reached through a router can be claimed (docs/threats.md).
"""

import ipaddress
import json
from collections.abc import Iterator
from typing import Any, Final

from root_helper import refusals, trusted
from runtime_kit import clock as clock_kit
from runtime_kit import secret
from runtime_kit.wireguard import backends, config, device, keys, programs
from wire_protocol import helper_state

INTERFACE: Final = "enlist0"
_RANGES: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)


def mark(known: trusted.Known) -> str:
    """By which this node's interface is known on the machine; the Agent's own is the same."""
    return f"enlist mesh node {known.platform_id} {known.node_id}"


class Mesh:
    """Makes, looks at and removes the one interface."""

    def __init__(self, run: programs.Runner = programs.run) -> None:
        self._run = run

    async def up(self, asked: helper_state.MeshUp, *, known: trusted.Known) -> None:
        """Brings it to what was asked for; may be repeated, and sessions stay. Raises `Refused`."""
        await self._require_harmless(asked, own=mark(known))
        try:
            private_key = secret.Secret(asked.private_key)
            keys.public_key_of(private_key)
            made = await device.ensure(
                _wanted(asked, owner=mark(known), private_key=private_key),
                backend=backends.of_this_machine(self._run),
                run=self._run,
            )
            await made.apply([_peer(asked)])
            await made.route(config.alone(asked.platform_address))
        except keys.NoKey as error:
            raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
        except (programs.Fault, OSError) as error:
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
            for link in _list(await self._run("ip", "-j", "link", "show")):
                if link.get("ifalias") == mark(known):
                    name = str(link["ifname"])
                    found = config.parse_dump(await self._run("wg", "show", name, "dump"))
                    return _state(found, name=name)
        except (programs.Fault, ValueError) as error:
            raise refusals.Refused(refusals.Code.FAILED, str(error)) from error
        return None

    async def _require_harmless(self, asked: helper_state.MeshUp, *, own: str) -> None:
        try:
            shown = await self._run("ip", "-j", "address", "show")
            networks = list(_networks(shown, but=own))
        except (programs.Fault, ValueError, KeyError) as error:
            raise refusals.Refused(
                refusals.Code.FAILED, f"The machine's networks cannot be told: {error}"
            ) from error
        for address in (asked.address, asked.platform_address):
            if not any(address in one for one in _RANGES):
                raise refusals.Refused(
                    refusals.Code.REFUSED,
                    f"{address} is no address for private use, and the mesh takes no other.",
                )
            for network, name in networks:
                if address in network:
                    raise refusals.Refused(
                        refusals.Code.REFUSED, f"{address} is of the network of {name}."
                    )
        if asked.address == asked.platform_address:
            raise refusals.Refused(refusals.Code.REFUSED, "Both ends cannot have one address.")


def _networks(addresses: bytes, *, but: str) -> Iterator[tuple[config.Network, str]]:
    """The networks of all interfaces but our own."""
    for link in _list(addresses):
        if link.get("ifalias") == but:
            continue
        for one in link.get("addr_info", []):
            network = ipaddress.ip_network(f"{one['local']}/{one['prefixlen']}", strict=False)
            yield network, str(link.get("ifname"))


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


def _list(raw: bytes) -> list[dict[str, Any]]:
    content = json.loads(raw or b"[]")
    if not isinstance(content, list):
        raise programs.Fault("ip: its JSON is no list.")
    return [one for one in content if isinstance(one, dict)]
