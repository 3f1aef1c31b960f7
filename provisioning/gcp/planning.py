"""Whether one request can work at Google, found before anything of it is sent.

The zone is settled here where the order leaves it open, and the request id with it, since Google
knows both to one zone only.

Known limit: whether the image exists is found out by the order itself.
"""

import dataclasses

from provisioning import catalogue, contract, naming
from provisioning.gcp import api as api_kit
from provisioning.gcp import bodies, calls, checking, places, reading


@dataclasses.dataclass(frozen=True, slots=True)
class Planning:
    """Holds a request against what is there."""

    api: api_kit.Api

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Each reason against this very request."""
        refusals = _of_the_wish(request, project=self.api.project)
        rows = [
            row
            for row in (
                await self.api.aggregated(
                    calls.SIZES, kind="machineTypes", filtered=f'name="{_plain(request.size)}"'
                )
            ).rows
            if reading.text(row, "name") == request.size
        ]
        zones = sorted(reading.text(row, "zone") for row in rows)
        here = [zone for zone in zones if places.region_of(zone) == request.region]
        zone = _zone_of(request, here)
        if not rows:
            refusals.append(f"Google has no size {request.size}.")
        elif zone is None:
            where = request.zone or request.region
            others = ", ".join(sorted({places.region_of(one) for one in zones}))
            refusals.append(f"The size {request.size} cannot be had in {where}, only in: {others}.")
        refusals += await self._of_the_quota(request, rows)
        refusals += await self._of_the_network(request)
        for ref in (*request.volumes, *request.addresses):
            refusals += await self._of_the_thing(ref, request, zone=zone)
        settled = None
        if zone is not None and request.zone is None and not refusals:
            token = naming.client_token(request.owner, zone=zone)
            settled = dataclasses.replace(request, zone=zone, client_token=token)
        return contract.Plan(refusals=tuple(refusals), price=_price(request), settled=settled)

    async def _of_the_quota(self, request: contract.Request, rows: list[api_kit.Body]) -> list[str]:
        left = await checking.quota_left(self.api, request.region)
        if left is None:
            return [f"Google has no region {request.region}."]
        cores = int(rows[0].get("guestCpus", 0)) if rows else 0
        needs = [("CPUS", cores), ("INSTANCES", 1)]
        needs += [("IN_USE_ADDRESSES", 1)] if request.public_ipv4 else []
        return [
            f"The quota {name} in {request.region} leaves {left[name]:.0f}, and this needs {one}. "
            "Raise it in the console under Quotas."
            for name, one in needs
            if left.get(name, one) < one
        ]

    async def _of_the_network(self, request: contract.Request) -> list[str]:
        if request.subnet is not None:
            ref = f"regions/{_plain(request.region)}/subnetworks/{_plain(request.subnet)}"
            if await self.api.get(calls.SUBNETWORK, ref) is None:
                return [f"There is no subnetwork {request.subnet} in {request.region}."]
            return []
        name = _plain(request.network or "default")
        if await self.api.get(calls.NETWORK, f"global/networks/{name}") is None:
            return [f"There is no network {name} in {self.api.project}; name one with --network."]
        return []

    async def _of_the_thing(
        self, ref: str, request: contract.Request, *, zone: str | None
    ) -> list[str]:
        try:
            spot = places.spot_of(ref)
        except ValueError as fault:
            return [str(fault)]
        call = calls.GET_ADDRESS if spot.kind == "addresses" else calls.GET_DISK
        if spot.kind not in {"addresses", "disks"}:
            return [f"{ref} is neither a volume nor a stable address."]
        if spot.region != request.region:
            return [f"{spot.name} is in {spot.region}, and the order is for {request.region}."]
        if spot.zone and zone is not None and spot.zone != zone:
            return [f"{spot.name} is in the zone {spot.zone}, and the order goes to {zone}."]
        if await self.api.get(call, spot.ref) is None:
            return [f"{spot.name} is not there."]
        return []


def _of_the_wish(request: contract.Request, *, project: str) -> list[str]:
    refusals = []
    if len(request.name) > bodies.LONGEST_NAME:
        said = f"The name {request.name} is longer than {bodies.LONGEST_NAME} characters."
        refusals.append(said)
    try:
        bodies.image(request.image, project=project)
    except ValueError as fault:
        refusals.append(str(fault))
    if not request.public_ipv4 and request.network is None and request.subnet is None:
        refusals.append(
            "Without an external IPv4 the machine has no way out of the default network; "
            "name a network that has Cloud NAT with --network, or leave IPv4 on."
        )
    if len(request.addresses) > 1:
        refusals.append("A machine at Google takes one stable address, and more were given.")
    return refusals


def _zone_of(request: contract.Request, here: list[str]) -> str | None:
    """The zone asked for, else the usual one, else any that has the size."""
    if request.zone is not None:
        return request.zone if request.zone in here else None
    usual = places.usual_zone(request.region)
    return usual if usual in here else next(iter(here), None)


def _price(request: contract.Request) -> contract.Price | None:
    """Machine, disk and external address together, as the catalogue estimates them."""
    tested = catalogue.tested("gcp")
    tier = tested.tier(request.size)
    price = tier.size.prices.get(request.region) if tier is not None else None
    extra = tested.address_price
    if price is None or extra is None or not request.public_ipv4 or request.addresses:
        return price
    return dataclasses.replace(price, hourly_micros=price.hourly_micros + extra.hourly_micros)


def _plain(word: str) -> str:
    """A word as a part of a filter or a path: nothing but what names are made of."""
    return "".join(c for c in word if c.isascii() and (c.isalnum() or c in "-_"))
