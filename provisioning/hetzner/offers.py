"""What Hetzner Cloud offers and what there is of ours, both with their prices.

Known limit: what a location has sold out is told with an order, or by a field that is newer than
the provider's own description and is not believed yet.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final, cast

from provisioning import contract
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, children, labels, planning, reading, shapes
from runtime_kit import clock as clock_kit

_KIND: Final = contract.ChildKind
_KEPT_SECONDS: Final = 300.0
_OFFER: Final = "hetzner offer"
_PRICING: Final = "hetzner pricing"


class Offers:
    """Prices and places of one connection, asked for anew after five minutes."""

    def __init__(
        self, api: api_kit.Api, *, clock: clock_kit.Clock, memory: MutableMapping[str, Any]
    ) -> None:
        self._api = api
        self._clock = clock
        self._memory = memory

    async def now(self) -> contract.Offer:
        """Server types with their places and prices, asked for anew after five minutes."""
        now = self._clock.monotonic()
        at, kept = self._memory.get(_OFFER, (0.0, None))
        if kept is not None and now - at < _KEPT_SECONDS:
            return cast("contract.Offer", kept)
        pricing = await self._prices()
        told = await self._api.pages(
            calls.SERVER_TYPES, "/server_types", of="server_types", params={}
        )

        def read() -> contract.Offer:
            currency = str(pricing["currency"])
            addresses = planning.address_price(pricing)
            return contract.Offer(
                regions=planning.location_names(list(told)),
                sizes=tuple(
                    reading.size(one, currency=currency, now=self._clock.now()) for one in told
                ),
                address_price=next(iter(addresses.values()), None),
                told_at=self._clock.now(),
            )

        offer = shapes.shaped(calls.SERVER_TYPES, read)
        self._memory[_OFFER] = (now, offer)
        return offer

    async def _prices(self) -> Mapping[str, Any]:
        now = self._clock.monotonic()
        at, kept = self._memory.get(_PRICING, (0.0, None))
        if kept is None or now - at >= _KEPT_SECONDS:
            told = await self._api.get(calls.PRICING, "/pricing")
            kept = shapes.shaped(calls.PRICING, lambda: told["pricing"])
            self._memory[_PRICING] = (now, kept)
        return cast("Mapping[str, Any]", kept)

    async def children_of(self, installation: str) -> tuple[contract.Child, ...]:
        """All that carries this installation's label beside machines, one list a kind."""
        selector = labels.of_installation(installation)
        told = {
            kind: await children.listed(self._api, kind, selector=selector)
            for kind in children.KINDS
        }
        billed = any(told[kind] for kind in (_KIND.VOLUME, _KIND.SNAPSHOT, _KIND.ADDRESS))
        pricing = await self._prices() if billed else None
        return shapes.shaped(calls.LIST_VOLUMES, lambda: _priced(told, pricing))


def _priced(
    told: Mapping[contract.ChildKind, list[Mapping[str, Any]]],
    pricing: Mapping[str, Any] | None,
) -> tuple[contract.Child, ...]:
    volume = snapshot = None
    addresses: Mapping[str, contract.Price] = {}
    if pricing is not None:
        money = str(pricing["currency"])
        volume = reading.monthly_price(pricing["volume"]["price_per_gb_month"], currency=money)
        snapshot = reading.monthly_price(pricing["image"]["price_per_gb_month"], currency=money)
        addresses = planning.address_price(pricing)
    return (
        *(reading.volume(one, monthly_a_gigabyte=volume) for one in told[_KIND.VOLUME]),
        *(reading.snapshot(one, monthly_a_gigabyte=snapshot) for one in told[_KIND.SNAPSHOT]),
        *(reading.address(one, prices=addresses) for one in told[_KIND.ADDRESS]),
        *(reading.ssh_key(one) for one in told[_KIND.SSH_KEY]),
        *(reading.firewall(one) for one in told[_KIND.SECURITY_GROUP]),
    )
