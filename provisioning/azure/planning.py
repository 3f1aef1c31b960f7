"""Whether one request can work at Azure, found before anything of it is sent.

Known limit: whether the image exists is found out by the order itself.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from provisioning import catalogue, contract
from provisioning.azure import arm as arm_kit
from provisioning.azure import bodies, calls, places, reading, subscription


@dataclasses.dataclass(frozen=True, slots=True)
class Planning:
    """Holds a request against what is there."""

    arm: arm_kit.Arm
    place: places.Place

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Each reason against this very request."""
        asked = subscription.Subscription(self.arm, self.place)
        refusals = _of_the_wish(request)
        rows = await asked.sizes(request.region)
        left = await asked.left(request.region)
        if rows is not None:
            refusals += _of_the_size(request, rows)
        if rows is not None and left is not None:
            refusals += _of_the_quota(request, rows, left)
        refusals += await self._of_the_network(request)
        for ref in (*request.volumes, *request.addresses):
            refusals += await self._of_the_thing(ref, request)
        names = ", ".join(asked.unreadable)
        said = f"Size and quota were not looked at; missing at the subscription: {names}."
        return contract.Plan(
            refusals=tuple(refusals),
            warnings=(said,) if asked.unreadable else (),
            price=_price(request),
        )

    async def _of_the_network(self, request: contract.Request) -> list[str]:
        if request.subnet is not None and request.subnet.startswith("/subscriptions/"):
            return []  # elsewhere; only the order itself finds out
        if request.network is None:
            named = request.subnet is not None
            return ["A subnet is named without its network; give --network too."] if named else []
        try:
            path = self.place.one(calls.NETWORK, request.network)
        except ValueError as fault:
            return [str(fault)]
        network = await self.arm.get(path, kind=calls.NETWORK)
        if network is None:
            return [f"There is no network {request.network} in {self.place.group}."]
        return _of_the_subnet(request, network)

    async def _of_the_thing(self, ref: str, request: contract.Request) -> list[str]:
        try:
            kind, name = self.place.parts(ref)
        except ValueError as fault:
            return [str(fault)]
        thing = await self.arm.get(self.place.one(kind, name), kind=kind)
        if thing is None:
            return [f"{name} is not there."]
        found = reading.text(thing, "location")
        if found != request.region:
            return [f"{name} is in {found}, and the order is for {request.region}."]
        return []


def _of_the_wish(request: contract.Request) -> list[str]:
    refusals = []
    if len(request.name) > bodies.LONGEST_NAME:
        refusals.append(f"The name {request.name} is longer than {bodies.LONGEST_NAME} characters.")
    try:
        bodies.image(request.image)
    except ValueError as fault:
        refusals.append(str(fault))
    if not request.public_ipv4 and request.network is None and request.subnet is None:
        refusals.append(
            "Without a public IPv4 the machine has no way out of its own network; "
            "name one that has a NAT gateway with --network, or leave IPv4 on."
        )
    if len(request.addresses) > 1:
        refusals.append("A machine at Azure takes one stable address, and more were given.")
    return refusals


def _of_the_subnet(request: contract.Request, network: reading.Body) -> list[str]:
    found = reading.text(network, "location")
    if found != request.region:
        return [f"The network {request.network} is in {found}, the order for {request.region}."]
    subnets = {
        reading.text(one, "name")
        for one in reading.rows(reading.inside(network, "properties"), "subnets")
    }
    wanted = request.subnet or "default"
    if wanted not in subnets:
        has = ", ".join(sorted(subnets)) or "none"
        return [f"The network {request.network} has no subnet {wanted}; it has: {has}."]
    return []


def _of_the_size(request: contract.Request, rows: Iterable[reading.Body]) -> list[str]:
    row = subscription.row_of(request.size, rows)
    if row is None:
        return [f"There is no size {request.size} in {request.region}."]
    if subscription.is_restricted(row):
        return [
            f"The size {request.size} is not offered to this subscription in {request.region} now."
        ]
    return []


def _of_the_quota(
    request: contract.Request, rows: Iterable[reading.Body], left: Mapping[str, int]
) -> list[str]:
    row = subscription.row_of(request.size, rows)
    if row is None:
        return []
    cores = round(subscription.number(row, "vCPUs"))
    family = reading.text(row, "family")
    for name, needed in (("cores", cores), (family, cores), ("virtualMachines", 1)):
        if name in left and left[name] < needed:
            said = (
                f"The quota {name} in {request.region} leaves {left[name]}, and {request.size} "
                f"needs {needed}. Raise it in the portal under Quotas."
            )
            return [said]
    return []


def _price(request: contract.Request) -> contract.Price | None:
    """Machine, disk and public address together, as the catalogue estimates them."""
    tested = catalogue.tested("azure")
    tier = tested.tier(request.size)
    price = tier.size.prices.get(request.region) if tier is not None else None
    extra = tested.address_price
    if price is None or extra is None or not request.public_ipv4 or request.addresses:
        return price
    return dataclasses.replace(price, hourly_micros=price.hourly_micros + extra.hourly_micros)
