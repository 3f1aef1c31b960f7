"""What a volume, a snapshot or an address will cost, said before a provider is asked for it.

Most providers tell it once the thing is there, some never do. So it is estimated from the tested
catalogue, which is dated, and money is reserved by that; what the provider tells later wins. A
snapshot is taken for as large as the disk of its machine, which no snapshot outgrows.

Known limit: one price for all regions of a provider, the dearest of them.
"""

from typing import Final

from platform_server.cloud import machines, merging, offers
from platform_server.store import contract
from provisioning import catalogue as tested_kit
from provisioning import contract as provider
from provisioning import providers

_GIGABYTE: Final = 10**9


def estimate(
    provider_name: str, kind: provider.ChildKind, *, gigabytes: int | None
) -> provider.Price | None:
    """By the hour; None where the catalogue does not say, or where the size counts and is unknown.

    Reads a file of the installation, once.
    """
    tested = _tested(provider_name)
    if tested is None:
        return None
    if not providers.get(provider_name).costs_money:
        return provider.Price(hourly_micros=0, currency=tested.currency)
    return tested.kept_price(kind, gigabytes=gigabytes)


async def disk_of(tx: contract.Tx, *, machine: machines.Machine) -> int | None:
    """How large the machine's own disk is, in gigabytes; None where nobody has said."""
    wished = machine.wish.get("disk_gigabytes")
    if wished:
        return int(wished)
    tested = _tested(machine.provider)
    if tested is None:
        return None
    offer = await offers.read(tx, connection_id=machine.connection_id)
    sides = merging.Sides(tested=tested, rules=None, offer=offer)
    size = merging.find_size(sides, machine.size)
    if size is None or not size.disk_bytes:
        return None
    return -(-size.disk_bytes // _GIGABYTE)


def noun_of(kind: provider.ChildKind) -> str:
    """Several of a kind, as the command line calls them."""
    return {"address": "addresses"}.get(kind.value, f"{kind.value}s")


def _tested(provider_name: str) -> tested_kit.Catalogue | None:
    try:
        return tested_kit.tested(provider_name)
    except (tested_kit.Malformed, providers.Unknown, OSError, ImportError):
        return None  # then nothing is known, and nothing is ordered where money is capped
