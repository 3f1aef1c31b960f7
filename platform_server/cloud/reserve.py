"""Caps by count and by money, judged in the transaction that stores the order.

Whatever is not confirmed gone counts: requested, booting, in doubt, failed and kept, switched off,
being deleted; volumes, snapshots and addresses as machines do. Of any number of orders at one
moment, on whichever engine, each sees those before, since all of them wait for one lock. Where
money is capped, nothing is ordered without a price in the cap's currency, nor while something that
counts has none.

Known limit: a disk that was only ever seen on a machine, whose size no provider told, counts as
nothing.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

from platform_server.cloud import consent, pricing
from platform_server.store import contract
from provisioning import contract as provider

LOCK: Final = "cloud-reserve"
_MICROS: Final = 1_000_000
_MOST_UNPRICED: Final = 1000


class CapReached(Exception):
    """One more, or a dearer one, would be more than a cap allows; the message says which."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Scope:
    """Whose things count: everything at the provider, or what hangs on the connection."""

    column: str
    value: str


async def reserve(
    tx: contract.Tx,
    *,
    provider_name: str,
    connection_id: str,
    price: provider.Price | None,
    caps: Sequence[consent.Caps],
    kind: provider.ChildKind | None = None,
    instead_of: str | None = None,
) -> None:
    """Judges one more, of a kind or (None) a machine; raises `CapReached`.

    Its row is to be stored in this transaction, with this price. `instead_of` is the machine whose
    price changes to this one, so that it does not count twice. The policy's cap counts everything
    at the provider, the consent's what hangs on the connection.
    """
    await tx.lock(LOCK)
    for cap in caps:
        if cap.named == "policy":
            scope = _Scope("provider", provider_name)
        else:
            scope = _Scope("connection_id", connection_id)
        await _require_number(tx, cap=cap, scope=scope, kind=kind, instead_of=instead_of)
        if cap.most_hourly_micros is not None:
            await _require_money(
                tx, cap=cap, scope=scope, kind=kind, price=price, instead_of=instead_of
            )


async def _require_number(
    tx: contract.Tx,
    *,
    cap: consent.Caps,
    scope: _Scope,
    kind: provider.ChildKind | None,
    instead_of: str | None,
) -> None:
    noun = "machines" if kind is None else pricing.noun_of(kind)
    if kind is None:
        most = cap.most_machines
        row = await tx.fetch_one(
            "SELECT COUNT(*) AS number FROM cloud_machines "  # noqa: S608 - one of two constants
            f"WHERE {scope.column} = ? AND machine_id <> ? "
            "AND gone_at IS NULL AND forgotten_at IS NULL",
            scope.value,
            instead_of or "",
        )
    else:
        most = cap.most_machines if cap.most_kept is None else cap.most_kept
        row = await tx.fetch_one(
            "SELECT COUNT(*) AS number FROM cloud_children c "  # noqa: S608 - one of two constants
            "JOIN cloud_connections n ON n.connection_id = c.connection_id "
            f"WHERE n.{scope.column} = ? AND c.kind = ? AND c.gone_at IS NULL AND c.keep = 1",
            scope.value,
            kind.value,
        )
    number = 0 if row is None else int(row["number"])
    if most is not None and number >= most:
        raise CapReached(
            f"The {cap.named} allows {most} {noun}, and {number} count already: what is being "
            f"made, failed or not confirmed gone counts as well. See: enlist cloud {noun} list"
        )


async def _require_money(
    tx: contract.Tx,
    *,
    cap: consent.Caps,
    scope: _Scope,
    kind: provider.ChildKind | None,
    price: provider.Price | None,
    instead_of: str | None,
) -> None:
    thing = "machine" if kind is None else kind.value
    if price is None or not _fits(price.currency, price.hourly_micros, cap=cap):
        raise CapReached(
            f"The {cap.named} caps money in {cap.currency}, and the price of this {thing} is "
            "not known in it, so nobody can say whether it fits."
        )
    hourly = await _machines(tx, cap=cap, scope=scope, instead_of=instead_of)
    hourly += await _kept(tx, cap=cap, scope=scope)
    if hourly + price.hourly_micros > (cap.most_hourly_micros or 0):
        raise CapReached(
            f"The {cap.named} allows {_money(cap.most_hourly_micros or 0)} {cap.currency} an hour; "
            f"{_money(hourly)} are taken, and this {thing} costs "
            f"{_money(price.hourly_micros)}. See: enlist cloud costs"
        )


async def _machines(
    tx: contract.Tx, *, cap: consent.Caps, scope: _Scope, instead_of: str | None
) -> int:
    """What the machines that count cost by the hour; raises where nobody knows."""
    rows = await tx.fetch_all(
        "SELECT currency, MIN(node_id) AS example, COUNT(*) - COUNT(hourly_micros) AS unpriced, "  # noqa: S608 - one of two constants
        "COALESCE(SUM(hourly_micros), 0) AS hourly FROM cloud_machines "
        f"WHERE {scope.column} = ? AND machine_id <> ? "
        "AND gone_at IS NULL AND forgotten_at IS NULL GROUP BY currency",
        scope.value,
        instead_of or "",
    )
    for row in rows:
        if int(row["unpriced"]) or not _fits(row["currency"], int(row["hourly"]), cap=cap):
            raise _unknown(f"the machine of {row['example']}", cap=cap)
    return sum(int(row["hourly"]) for row in rows)


async def _kept(tx: contract.Tx, *, cap: consent.Caps, scope: _Scope) -> int:
    """What is kept beside machines costs by the hour; what has no price yet is estimated."""
    joined = (
        "FROM cloud_children c JOIN cloud_connections n ON n.connection_id = c.connection_id "
        f"WHERE n.{scope.column} = ? AND c.gone_at IS NULL AND c.keep = 1 "
    )
    rows = await tx.fetch_all(
        "SELECT c.currency, MIN(c.name) AS example, SUM(c.hourly_micros) AS hourly "
        f"{joined} AND c.hourly_micros IS NOT NULL GROUP BY c.currency",
        scope.value,
    )
    found = [(row["example"], row["currency"], int(row["hourly"])) for row in rows]
    unpriced = await tx.fetch_all(
        "SELECT c.name, c.kind, c.size_gigabytes, n.provider, "
        "CASE WHEN c.sent_at IS NULL AND c.provider_ref IS NOT NULL THEN 1 ELSE 0 END AS seen "
        f"{joined} AND c.hourly_micros IS NULL LIMIT ?",
        scope.value,
        _MOST_UNPRICED,
    )
    for row in unpriced:
        price = pricing.estimate(
            row["provider"], provider.ChildKind(row["kind"]), gigabytes=row["size_gigabytes"]
        )
        if price is not None:
            found.append((row["name"], price.currency, price.hourly_micros))
        elif not int(row["seen"]):
            raise _unknown(f"the {row['kind']} {row['name']}", cap=cap)
    for name, currency, hourly in found:
        if not _fits(currency, hourly, cap=cap):
            raise _unknown(f"{name} (kept beside machines)", cap=cap)
    return sum(hourly for _, _, hourly in found)


def _fits(currency: str, hourly: int, *, cap: consent.Caps) -> bool:
    """What costs nothing fits whatever currency; nothing is ever converted."""
    return hourly == 0 or cap.currency is None or currency == cap.currency


def _unknown(what: str, *, cap: consent.Caps) -> CapReached:
    return CapReached(
        f"The {cap.named} caps money in {cap.currency}, and what {what} costs is not known in it, "
        "so nobody can say how much is left. It counts until it is gone. See: enlist cloud costs"
    )


def _money(micros: int) -> str:
    return f"{micros / _MICROS:.4f}"
