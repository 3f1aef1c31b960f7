"""The Platform's own end: its key, sealed in the store, and its network, made once for all engines.

The key is the same for every engine, so that nodes need not notice which of them leads. The network
is drawn once and kept, unless the settings name one.
"""

import dataclasses
import datetime
import ipaddress
import random
from typing import Final

from platform_server.mesh import addressing
from platform_server.sealing import envelope, sealed_rows
from platform_server.store import contract
from runtime_kit import secret
from runtime_kit.wireguard import keys
from wire_protocol import mesh

KEY_NAME: Final = "mesh-key"
NETWORK_NAME: Final = "mesh.network"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """What this Platform's mesh is. The private key prints as dots."""

    private_key: secret.Secret
    public_key: str
    network: mesh.Network
    endpoint: mesh.Endpoint
    keepalive_seconds: int
    mtu: int

    @property
    def platform_address(self) -> mesh.Address:
        """Where nodes reach the Platform inside the mesh."""
        return addressing.platform_address(self.network)

    def grant(self, address: mesh.Address) -> mesh.Grant:
        """What a node with this address is told."""
        return mesh.Grant(
            address=address,
            network=self.network,
            platform_address=self.platform_address,
            platform_public_key=self.public_key,
            endpoint=self.endpoint,
            keepalive_seconds=self.keepalive_seconds,
            mtu=self.mtu,
        )


async def found(
    store: contract.Store,
    *,
    keyring: envelope.Keyring,
    network: mesh.Network | None,
    endpoint: mesh.Endpoint,
    keepalive_seconds: int,
    mtu: int,
    chance: random.Random,
    now: datetime.datetime,
) -> Mesh:
    """The mesh as it stands, made where it is not there yet; engines that start at once agree."""
    fresh = keys.new_private_key()
    drawn = addressing.new_network(chance)

    async def work(tx: contract.Tx) -> tuple[bytes | None, str]:
        await sealed_rows.put_if_absent(
            tx, keyring=keyring, name=KEY_NAME, value=fresh.reveal().encode(), now=now
        )
        await tx.execute(
            "INSERT INTO platform_values (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
            NETWORK_NAME,
            str(drawn),
        )
        row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", NETWORK_NAME)
        kept = await sealed_rows.find(tx, keyring=keyring, name=KEY_NAME)
        return kept, str(drawn) if row is None else str(row["value"])

    kept, text = await store.transact(work)
    if kept is None:
        raise LookupError("The mesh key was written and is not there.")
    private_key = secret.Secret(kept.decode())
    return Mesh(
        private_key=private_key,
        public_key=keys.public_key_of(private_key),
        network=network or ipaddress.ip_network(text),
        endpoint=endpoint,
        keepalive_seconds=keepalive_seconds,
        mtu=mtu,
    )
