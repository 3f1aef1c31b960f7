"""Caps by count and by money, judged in the transaction that stores the order.

Whatever is not confirmed gone counts: requested, booting, in doubt, failed and kept, switched off,
being deleted. Of any number of orders at one moment, on whichever engine, each sees those before,
since all of them wait for one lock. Where money is capped, an order without a price is refused.
"""

from collections.abc import Sequence
from typing import Final

from platform_server.cloud import consent
from platform_server.store import contract
from provisioning import contract as provider

LOCK: Final = "cloud-reserve"
_MICROS: Final = 1_000_000


class CapReached(Exception):
    """One machine more would be more than a cap allows; the message says which."""


async def reserve(
    tx: contract.Tx,
    *,
    provider_name: str,
    connection_id: str,
    price: provider.Price | None,
    caps: Sequence[consent.Caps],
) -> None:
    """Judges one machine more; raises `CapReached`. Its row is to be stored in this transaction.

    The policy's cap counts everything at the provider, the consent's what hangs on the connection.
    """
    await tx.lock(LOCK)
    for cap in caps:
        of_provider = cap.named == "policy"
        column = "provider" if of_provider else "connection_id"
        value = provider_name if of_provider else connection_id
        row = await tx.fetch_one(
            "SELECT COUNT(*) AS machines, COALESCE(SUM(hourly_micros), 0) AS hourly "  # noqa: S608 - one of two constants
            f"FROM cloud_machines WHERE {column} = ? "
            "AND gone_at IS NULL AND forgotten_at IS NULL",
            value,
        )
        if row is None:
            raise AssertionError("A count gave no row.")
        machines = int(row["machines"])
        if cap.most_machines is not None and machines >= cap.most_machines:
            raise CapReached(
                f"The {cap.named} allows {cap.most_machines} machines, and {machines} count "
                "already: what is booting, failed or not confirmed gone counts as well. See: "
                "enlist cloud machines list"
            )
        if cap.most_hourly_micros is None:
            continue
        if price is None or (cap.currency is not None and price.currency != cap.currency):
            raise CapReached(
                f"The {cap.named} caps money in {cap.currency}, and the price of this machine is "
                "not known in it, so nobody can say whether it fits."
            )
        beside = await _beside(tx, column=column, value=value)
        hourly = int(row["hourly"]) + beside
        if hourly + price.hourly_micros > cap.most_hourly_micros:
            raise CapReached(
                f"The {cap.named} allows {_money(cap.most_hourly_micros)} {cap.currency} an hour; "
                f"{_money(hourly)} are taken, and this machine costs "
                f"{_money(price.hourly_micros)}. See: enlist cloud costs"
            )


async def _beside(tx: contract.Tx, *, column: str, value: str) -> int:
    """What is kept beside machines costs, by the hour."""
    row = await tx.fetch_one(
        "SELECT COALESCE(SUM(c.hourly_micros), 0) AS hourly FROM cloud_children c "  # noqa: S608 - one of two constants
        "JOIN cloud_connections n ON n.connection_id = c.connection_id "
        f"WHERE n.{column} = ? AND c.gone_at IS NULL AND c.keep = 1",
        value,
    )
    return 0 if row is None else int(row["hourly"])


def _money(micros: int) -> str:
    return f"{micros / _MICROS:.4f}"
