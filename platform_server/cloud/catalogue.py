"""The catalogue as a person sees it and orders from it: every provider by itself.

Whatever is wrong with one provider (no policy, no connection, no answer, a damaged catalogue) is a
sentence about that provider, and takes nothing from the others. Nothing is ordered that the policy
file does not allow; what was never tried has to be asked for as `untested`.
"""

import asyncio
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from platform_server.cloud import connections, consent, machines, merging, offers, policy, using
from platform_server.store import contract as store_contract
from provisioning import abilities, contract, providers
from provisioning import catalogue as tested_kit
from runtime_kit import clock as clock_kit

_MOST_CONNECTIONS = 1000
_SNAPSHOT = contract.ChildKind.SNAPSHOT.value


class NotOffered(Exception):
    """What is ordered cannot be had, or is not allowed; the message says why and what can."""


class NoConnection(Exception):
    """The provider has no connection, or several and none is named; the message says which."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One row of the list, with the connection it can be ordered through ("" where none is)."""

    provider: str
    connection: str
    offered: merging.Offered


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The list; `images` by provider; `missing` are sentences about what stands in the way."""

    rows: Sequence[Listed]
    images: Mapping[str, Sequence[str]]
    missing: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a list is narrowed to."""

    provider: str | None = None
    connection: str | None = None
    region: str | None = None
    role: str = "general"
    nested_virt: bool = False
    untested: bool = False
    infra: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody orders; None: what the policy, or the catalogue, has first."""

    provider: str
    connection: str | None = None
    region: str | None = None
    tier: str | None = None
    size: str | None = None
    image: str | None = None
    role: str = "general"
    untested: bool = False
    nested_virt: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A wish that may be ordered: exact, with its price and the caps it is judged by."""

    connection: connections.Connection
    region: str
    zone: str | None
    size: str
    tier: str | None
    image: str
    price: contract.Price | None
    is_tested: bool
    caps: Sequence[consent.Caps]
    warnings: Sequence[str]


class Catalogue:
    """One engine's part. Reads, and asks providers where their offer is older than an hour."""

    def __init__(
        self,
        store: store_contract.Store,
        *,
        clouds: using.Clouds,
        policies: policy.Source,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._offers = offers.Offers(store=store, clouds=clouds, clock=clock)
        self._policies = policies
        self._clock = clock

    async def list(self, wanted: Wanted, *, actor: str) -> Listing:
        """What can be ordered, and what is missing for the rest.

        Raises `providers.Unknown`, `connections.NoSuchConnection` and `StoreError`.
        """
        parts = await asyncio.gather(
            *(self._of(one, wanted, actor=actor) for one in self._providers(wanted))
        )
        return Listing(
            rows=[row for part in parts for row in part.rows],
            images={name: images for part in parts for name, images in part.images.items()},
            missing=[sentence for part in parts for sentence in part.missing],
        )

    async def judge(self, wish: Wish, *, infra: str, actor: str) -> Judged:
        """Makes the wish exact.

        Raises `NotOffered`, `NoConnection`, `using.Paused`, `policy.Unavailable`,
        `providers.Unknown`, `connections.NoSuchConnection` and `StoreError`.
        """
        provider = providers.get(wish.provider)
        rules = self._policies.find(provider.name)
        connection = await self._one_connection(wish, provider=provider, infra=infra)
        if connection.pause is not None:
            raise using.Paused(connection, connection.pause.reason)
        offer = await self._offers.find(connection, actor=actor)
        sides = merging.Sides(tested=_tested(provider), rules=rules, offer=offer)
        region = wish.region or merging.default_region(sides)
        size = _size(sides, wish)
        offered = merging.judge(
            sides, region=region, size=size, untested=wish.untested, role=wish.role
        )
        if offered.reason is not None:
            raise NotOffered(f"{offered.reason} {_instead(sides, offered)}".strip())
        if wish.nested_virt and not offered.size.nested_virt:
            raise NotOffered(
                f"{size} cannot run virtual machines of its own. Those that can: enlist cloud "
                f"catalog --provider {provider.name} --nested-virt"
            )
        image = await self._image(sides, wish, connection=connection)
        place = sides.tested.region(region)
        return Judged(
            connection=connection,
            region=region,
            zone=None if place is None else place.zone,
            size=size,
            tier=offered.tier,
            image=image,
            price=offered.price,
            is_tested=offered.is_tested,
            caps=consent.caps_of(connection, rules=rules, now=self._clock.now()),
            warnings=[*_warnings(sides, offered)],
        )

    async def instead_of(self, machine: machines.Machine) -> str:
        """What could be had where this order was sold out, with prices, and how to order it.

        Empty where nothing is known. Raises `StoreError`.
        """
        try:
            provider = providers.get(machine.provider)
            tested = _tested(provider)
            rules = await asyncio.to_thread(self._policies.find, provider.name)
            connection = await self._store.read(
                lambda tx: connections.get(tx, connection_id=machine.connection_id)
            )
        except (
            providers.Unknown,
            policy.Unavailable,
            NotOffered,
            connections.NoSuchConnection,
        ):
            return ""
        offer = await self._offers.find(connection, actor=machine.ordered_by)
        sides = merging.Sides(tested=tested, rules=rules, offer=offer)
        refused = merging.judge(sides, region=machine.region, size=machine.size)
        said = _instead(sides, refused)
        return said and (
            f"{said} Nothing is switched by itself: enlist cloud machines create "
            f"{machine.node_id} --provider {machine.provider} --region REGION --tier TIER"
        )

    # Inside.

    async def _of(self, provider: providers.Provider, wanted: Wanted, *, actor: str) -> Listing:
        """One provider's part of the list."""
        try:
            tested = _tested(provider)
            rules = self._policies.find(provider.name)
        except (policy.Unavailable, NotOffered) as fault:
            return Listing(rows=(), images={}, missing=[str(fault)])
        found = await self._connections(wanted, provider=provider)
        missing = []
        if not found and provider.costs_money:
            missing.append(
                f"{provider.title} has no connection yet: enlist cloud connections save NAME "
                f"--provider {provider.name}"
            )
        through: Sequence[connections.Connection | None] = found or (None,)
        offered = await asyncio.gather(*(self._offer(one, actor=actor) for one in through))
        rows: list[Listed] = []
        for connection, offer in zip(through, offered, strict=True):
            sides = merging.Sides(tested=tested, rules=rules, offer=offer)
            rows.extend(_rows(sides, wanted, provider=provider, connection=connection))
        images = {provider.name: _images(tested, rules=rules)}
        return Listing(rows=rows, images=images, missing=missing)

    async def _offer(
        self, connection: connections.Connection | None, *, actor: str
    ) -> contract.Offer | None:
        return None if connection is None else await self._offers.find(connection, actor=actor)

    def _providers(self, wanted: Wanted) -> Sequence[providers.Provider]:
        if wanted.provider is not None:
            return [providers.get(wanted.provider)]
        return list(providers.PROVIDERS.values())

    async def _connections(
        self, wanted: Wanted, *, provider: providers.Provider
    ) -> Sequence[connections.Connection]:
        named = wanted.connection
        if named is not None:
            one = await self._store.read(lambda tx: connections.get(tx, connection_id=named))
            return [one] if one.provider == provider.name else []
        return await self._store.read(
            lambda tx: connections.list_page(
                tx, limit=_MOST_CONNECTIONS, infra=wanted.infra, provider=provider.name
            )
        )

    async def _one_connection(
        self, wish: Wish, *, provider: providers.Provider, infra: str
    ) -> connections.Connection:
        named = wish.connection
        if named is not None:
            found = await self._store.read(lambda tx: connections.get(tx, connection_id=named))
            if found.provider != provider.name:
                raise NoConnection(f"The connection {named} is to {found.provider}.")
            return found
        present = await self._store.read(
            lambda tx: connections.list_page(tx, limit=20, infra=infra, provider=provider.name)
        )
        if not present:
            raise NoConnection(
                f"{provider.title} has no connection yet: enlist cloud connections save NAME "
                f"--provider {provider.name}"
            )
        if len(present) > 1:
            names = ", ".join(one.name for one in present)
            raise NoConnection(f"{provider.title} has several connections: name one of {names}.")
        return present[0]

    async def _image(
        self, sides: merging.Sides, wish: Wish, *, connection: connections.Connection
    ) -> str:
        """The provider's image, or the id of a snapshot of ours that is named or given by id."""
        wanted = wish.image
        if wanted is None:
            return _images(sides.tested, rules=sides.rules)[0]
        if wanted in _images(sides.tested, rules=sides.rules):
            return wanted
        ours = await self._store.read(
            lambda tx: tx.fetch_one(
                "SELECT provider_ref FROM cloud_children WHERE connection_id = ? AND kind = ? "
                "AND gone_at IS NULL AND provider_ref IS NOT NULL AND sent_at IS NOT NULL "
                "AND (child_id = ? OR name = ? OR provider_ref = ?) LIMIT 1",
                connection.connection_id,
                _SNAPSHOT,
                *(wanted,) * 3,
            )
        )
        if ours is not None:
            return str(ours["provider_ref"])
        if not wish.untested:
            raise NotOffered(
                f"The image {wanted} was never tried here and is no snapshot of ours. Tried were: "
                f"{', '.join(_images(sides.tested, rules=sides.rules))} (--untested takes it)."
            )
        abilities.require(connection.provider, contract.Capability.CUSTOM_IMAGE)
        return wanted


def _tested(provider: providers.Provider) -> tested_kit.Catalogue:
    try:
        return tested_kit.tested(provider.name)
    except (tested_kit.Malformed, OSError, ImportError) as fault:
        raise NotOffered(f"{provider.title} has no catalogue that can be read: {fault}") from fault


def _images(tested: tested_kit.Catalogue, *, rules: policy.Rules | None) -> Sequence[str]:
    """The policy's image first, where there is a policy."""
    first = [] if rules is None else [rules.image]
    return list(dict.fromkeys([*first, *tested.images]))


def _rows(
    sides: merging.Sides,
    wanted: Wanted,
    *,
    provider: providers.Provider,
    connection: connections.Connection | None,
) -> Iterator[Listed]:
    for one in merging.list_all(sides, untested=wanted.untested, role=wanted.role):
        if wanted.region is not None and one.region != wanted.region:
            continue
        if wanted.nested_virt and not one.size.nested_virt:
            continue
        reason = one.reason
        if reason is None and connection is None and provider.costs_money:
            reason = f"{provider.title} has no connection yet."
        elif reason is None and connection is not None and connection.pause is not None:
            reason = f"The connection {connection.name} is paused: {connection.pause.reason}"
        yield Listed(
            provider=provider.name,
            connection="" if connection is None else connection.name,
            offered=dataclasses.replace(one, reason=reason),
        )


def _size(sides: merging.Sides, wish: Wish) -> str:
    if wish.size is not None and wish.tier is not None:
        raise NotOffered("Give a tier or a size, not both.")
    if wish.size is not None:
        return wish.size
    if wish.tier is None:
        return merging.default_size(sides)
    found = merging.size_of(sides, wish.tier)
    if found is None:
        known = [one.name for one in sides.rules.classes] if sides.rules is not None else []
        known = known or [one.name for one in sides.tested.tiers]
        raise NotOffered(f"There is no tier {wish.tier!r}. There are: {', '.join(known)}.")
    return found


def _instead(sides: merging.Sides, refused: merging.Offered) -> str:
    """What could be had in its place, with its price: a person chooses, nothing is switched."""
    others = [
        one
        for one in merging.list_all(sides)
        if one.is_available
        and (one.region == refused.region) != (one.size.name == refused.size.name)
    ]
    if not others:
        return ""
    return f"To be had: {'; '.join(_named(one) for one in others[:4])}."


def _named(one: merging.Offered) -> str:
    price = "price unknown"
    if one.price is not None:
        price = f"{one.price.hourly_micros / 1_000_000:.4f} {one.price.currency} an hour"
    return f"{one.tier or one.size.name} in {one.region} ({price})"


def _warnings(sides: merging.Sides, offered: merging.Offered) -> Iterator[str]:
    if not offered.is_tested:
        yield f"{offered.size.name} in {offered.region} was never tried."
    day = merging.withdrawn_after(sides, offered.size.name)
    if day is not None:
        yield f"The provider withdraws {offered.size.name} after {day.isoformat()}."
    if offered.price is None:
        yield "The price is not known."
    elif offered.price.as_of is not None:
        yield f"The price is an estimate of {offered.price.as_of.isoformat()}."
    if offered.advice is not None:
        yield offered.advice
