"""What a provider offers a connection now, kept for an hour in the connection's row.

One call for all who ask. Where the provider gives no answer the last one stands, however old, and
its age is shown; without any, the tested catalogue's dated estimates have to do.
"""

import asyncio
import dataclasses
import datetime
import json
import logging
from typing import Any, Final

from platform_server.cloud import bounded, connections, using
from platform_server.store import contract as store_contract
from provisioning import contract, outcomes
from runtime_kit import clock as clock_kit

FRESH: Final = datetime.timedelta(hours=1)
MOST_SIZES: Final = 2000
REFUSED: Final = datetime.timedelta(minutes=1)
"""For how long one that gave no answer is not asked again, however often somebody looks."""
LONGEST_SECONDS: Final = 20.0
"""How long somebody who looks at the catalogue waits for one provider."""
_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """Where offers come from."""

    store: store_contract.Store
    clouds: using.Clouds
    clock: clock_kit.Clock
    _failed: dict[str, tuple[datetime.datetime, datetime.datetime]] = dataclasses.field(
        default_factory=dict, repr=False
    )
    """When a connection last gave no answer, and to which of its credentials."""
    _turns: dict[str, asyncio.Lock] = dataclasses.field(default_factory=dict, repr=False)

    async def find(
        self, connection: connections.Connection, *, actor: str
    ) -> contract.Offer | None:
        """The offer, asked for where the stored one is older than an hour; None without any.

        Raises `StoreError`.
        """
        stored = await self._stored(connection)
        if self._is_fresh(stored) or connection.pause is not None:
            return stored
        async with self._turns.setdefault(connection.connection_id, asyncio.Lock()):
            stored = await self._stored(connection)
            if self._is_fresh(stored) or self._has_just_failed(connection):
                return stored
            return await self._asked(connection, actor=actor, stored=stored)

    async def _asked(
        self, connection: connections.Connection, *, actor: str, stored: contract.Offer | None
    ) -> contract.Offer | None:
        try:
            return await bounded.within(
                self.ask(connection, actor=actor), seconds=LONGEST_SECONDS, clock=self.clock
            )
        except (outcomes.Fault, using.Paused, TimeoutError) as fault:
            self._failed[connection.connection_id] = self.clock.now(), connection.credential_at
            _LOG.warning(
                "A provider does not say what it offers",
                extra={"connection": connection.name, "reason": str(fault)},
            )
            return stored

    async def _stored(self, connection: connections.Connection) -> contract.Offer | None:
        return await self.store.read(lambda tx: read(tx, connection_id=connection.connection_id))

    def _is_fresh(self, offer: contract.Offer | None) -> bool:
        told_at = None if offer is None else offer.told_at
        return told_at is not None and self.clock.now() - told_at < FRESH

    def _has_just_failed(self, connection: connections.Connection) -> bool:
        at, credential_at = self._failed.get(connection.connection_id, (None, None))
        return (
            at is not None
            and credential_at == connection.credential_at
            and self.clock.now() - at < REFUSED
        )

    async def ask(self, connection: connections.Connection, *, actor: str) -> contract.Offer:
        """Asks the provider now and keeps what it says; raises what `using` and drivers do."""
        async with self.clouds.driver(
            connection.connection_id, purpose="catalogue", actor=actor, changes=False
        ) as driver:
            told = await driver.offer()
        offer = dataclasses.replace(told, sizes=told.sizes[:MOST_SIZES], told_at=self.clock.now())
        await self.store.transact(
            lambda tx: _write(tx, connection_id=connection.connection_id, offer=offer)
        )
        return offer


async def read(tx: store_contract.Tx, *, connection_id: str) -> contract.Offer | None:
    """The offer as it was last told, however old."""
    row = await tx.fetch_one(
        "SELECT offer, offer_at FROM cloud_connections WHERE connection_id = ?", connection_id
    )
    if row is None or row["offer_at"] is None:
        return None
    return from_json(row["offer"], told_at=clock_kit.from_micros(row["offer_at"]))


async def _write(tx: store_contract.Tx, *, connection_id: str, offer: contract.Offer) -> None:
    if offer.told_at is None:
        raise AssertionError("An offer is kept with its moment.")
    await tx.execute(
        "UPDATE cloud_connections SET offer = ?, offer_at = ? WHERE connection_id = ?",
        to_json(offer),
        clock_kit.to_micros(offer.told_at),
        connection_id,
    )


def to_json(offer: contract.Offer) -> str:
    """As it stands in the row."""
    return json.dumps(
        {
            "regions": list(offer.regions),
            "images": list(offer.images),
            "address_price": _price_to_json(offer.address_price),
            "sizes": [
                {
                    "name": size.name,
                    "cores": size.cores,
                    "memory_bytes": size.memory_bytes,
                    "disk_bytes": size.disk_bytes,
                    "architecture": size.architecture,
                    "regions": list(size.regions),
                    "prices": {
                        region: _price_to_json(price) for region, price in size.prices.items()
                    },
                    "nested_virt": size.nested_virt,
                    "withdrawn": size.withdrawn,
                    "withdrawn_after": None
                    if size.withdrawn_after is None
                    else size.withdrawn_after.isoformat(),
                }
                for size in offer.sizes
            ],
        },
        sort_keys=True,
    )


def from_json(text: str, *, told_at: datetime.datetime) -> contract.Offer:
    """As it was stored."""
    told: dict[str, Any] = json.loads(text)
    return contract.Offer(
        regions=tuple(told["regions"]),
        images=tuple(told["images"]),
        address_price=_price_of_json(told["address_price"]),
        told_at=told_at,
        sizes=tuple(
            contract.Size(
                name=one["name"],
                cores=one["cores"],
                memory_bytes=one["memory_bytes"],
                disk_bytes=one["disk_bytes"],
                architecture=one["architecture"],
                regions=tuple(one["regions"]),
                prices={
                    region: price
                    for region, value in one["prices"].items()
                    if (price := _price_of_json(value)) is not None
                },
                nested_virt=one["nested_virt"],
                withdrawn=one["withdrawn"],
                withdrawn_after=None
                if one["withdrawn_after"] is None
                else datetime.date.fromisoformat(one["withdrawn_after"]),
            )
            for one in told["sizes"]
        ),
    )


def _price_to_json(price: contract.Price | None) -> dict[str, Any] | None:
    if price is None:
        return None
    return {
        "hourly_micros": price.hourly_micros,
        "currency": price.currency,
        "as_of": None if price.as_of is None else price.as_of.isoformat(),
        "monthly_cap_micros": price.monthly_cap_micros,
    }


def _price_of_json(told: dict[str, Any] | None) -> contract.Price | None:
    if told is None:
        return None
    return contract.Price(
        hourly_micros=told["hourly_micros"],
        currency=told["currency"],
        as_of=None if told["as_of"] is None else datetime.date.fromisoformat(told["as_of"]),
        monthly_cap_micros=told["monthly_cap_micros"],
    )
