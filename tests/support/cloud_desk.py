"""The Platform's part of the cloud over a real store, at one fake provider, without a server.

The product's own: connections, drivers, catalogue, sweeper, operations. Time is the bench's clock,
which the fake goes by as well.
"""

import contextlib
import dataclasses
import datetime
import functools
import json
import pathlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

from platform_server.audit import actions
from platform_server.backup import rows as backup_rows
from platform_server.cloud import (
    catalogue,
    checking,
    connecting,
    connections,
    opening,
    orphan_kind,
    policy,
    requests,
    resource_kinds,
    resource_steps,
    sweeper,
    using,
    wishes,
)
from platform_server.operations import reconciler, records
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import retry
from tests.support import domain
from tests.support.clouds import bench as bench_kit

ENVIRONMENT = "test"
ACTOR = "person:somebody"
NO_WAITS = retry.Schedule(first_seconds=0.0, cap_seconds=0.0, tries=8)
POLICY: dict[str, Any] = {
    "regions": ["fsn1", "hel1"],
    "image": "debian-12",
    "classes": [{"name": "starter", "size": "cx23"}, {"name": "growth", "size": "cx33"}],
    "most_machines": 5,
    "most_hourly": "1.00",
    "currency": "EUR",
}


@dataclasses.dataclass(kw_only=True)
class Desk:
    """One engine's cloud at one provider."""

    store: contract.Store
    keyring: envelope.Keyring
    clock: clock_kit.ManualClock
    settings: groups.CloudGroup
    clouds: using.StoredClouds
    connecting: connecting.Connecting
    catalogue: catalogue.Catalogue
    address: str
    installation: str = bench_kit.INSTALLATION

    def wish(self, *, token: str, name: str = "main", **more: Any) -> wishes.Wish:
        """A connection to save."""
        values: dict[str, Any] = {
            "name": name,
            "provider": "hetzner",
            "kind": "token",
            "fields": {"token": token},
            "settings": {"endpoint": self.address},
            "infra": "default",
            "actor": ACTOR,
        }
        return wishes.Wish(**{**values, **more})

    async def find(self, name: str = "main") -> connections.Connection | None:
        """The connection as it stands."""
        return await self.store.read(lambda tx: connections.find(tx, connection_id=name))

    async def get(self, name: str = "main") -> connections.Connection:
        """The connection, which is there."""
        found = await self.find(name)
        assert found is not None
        return found

    @property
    def asked(self) -> requests.Asked:
        """Who asks, now."""
        return requests.Asked(by=ACTOR, now=self.clock.now(), environment=ENVIRONMENT)

    @property
    def means(self) -> resource_steps.Means:
        """For kinds of operations."""
        return resource_steps.Means(
            store=self.store,
            clouds=self.clouds,
            installation=self.installation,
            environment=ENVIRONMENT,
            clock=self.clock,
        )

    def reconciler(self) -> reconciler.Reconciler:
        """An engine that was just started."""
        return reconciler.Reconciler(
            self.store,
            known=[*resource_kinds.all_of(self.means), orphan_kind.DeleteOrphan(self.means)],
            clock=self.clock,
            chance=random.Random(7),
            tries=NO_WAITS,
        )

    async def carry_on(self, *, rounds: int = 12, seconds: float = 30.0) -> None:
        """Rounds of a new engine each, with time between them."""
        for _ in range(rounds):
            await self.reconciler().round()
            self.clock.advance(seconds)

    async def stands(self, operation: records.Operation) -> records.Operation:
        """The operation as it stands now."""
        found = await self.store.read(
            lambda tx: records.find(tx, operation_id=operation.operation_id)
        )
        assert found is not None
        return found

    def sweeper(self, **rules: Any) -> sweeper.Sweeper:
        """A sweeper of this installation."""
        return sweeper.Sweeper(
            self.store,
            clouds=self.clouds,
            installation=self.installation,
            environment=ENVIRONMENT,
            rules=sweeper.Rules(**rules),
            clock=self.clock,
        )

    async def actions(self, action: str | None = None) -> list[dict[str, Any]]:
        """Entries of the action log, oldest first."""
        rows = await self.store.read(
            lambda tx: tx.fetch_all(
                f"SELECT {actions.COLUMNS} FROM action_log "  # noqa: S608 - a constant
                "ORDER BY seq LIMIT 10000"
            )
        )
        return [
            {
                "actor": row["actor"],
                "action": row["action"],
                "target": row["target"],
                "operation": row["operation"],
                **json.loads(row["details"]),
            }
            for row in rows
            if action is None or row["action"] == action
        ]

    async def events(self, kind: str) -> list[dict[str, Any]]:
        """Events of one kind, oldest first."""
        rows = await self.store.read(
            lambda tx: tx.fetch_all(
                "SELECT subject, data FROM events WHERE kind = ? ORDER BY seq LIMIT 10000", kind
            )
        )
        return [{"subject": row["subject"], **json.loads(row["data"])} for row in rows]

    async def everything_stored(self) -> bytes:
        """All rows of all tables that hold texts about the cloud, as bytes to search."""
        found = b""
        for table in ("cloud_connections", "action_log", "events", "operations", "cloud_orphans"):
            rows = await self.store.read(functools.partial(_all_of, table=table))
            for row in rows:
                for name in backup_rows.columns_of(row):
                    value = row[name]
                    found += value if isinstance(value, bytes) else str(value).encode()
        return found


def place(
    store: contract.Store,
    bench: bench_kit.Bench,
    *,
    address: str,
    policy_file: pathlib.Path | None = None,
    opener: using.Opener | None = None,
    keyring: envelope.Keyring | None = None,
    clock: clock_kit.ManualClock | None = None,
    **cloud: Any,
) -> Desk:
    """A desk at the bench's fake; `cloud` are settings."""
    keyring, clock = keyring or domain.new_keyring(), clock or bench.clock
    settings = groups.CloudGroup.model_validate({"allow_endpoints": True, **cloud})
    clouds = using.StoredClouds(
        store,
        keyring=keyring,
        opener=opener
        or opening.ProviderOpener(store, keyring=keyring, clock=clock, cloud=settings),
        clock=clock,
        environment=ENVIRONMENT,
    )
    means = checking.Means(store=store, clouds=clouds, clock=clock, issuer_url=settings.issuer_url)
    return Desk(
        store=store,
        keyring=keyring,
        clock=clock,
        settings=settings,
        clouds=clouds,
        connecting=connecting.Connecting(
            means, keyring=keyring, cloud=settings, environment=ENVIRONMENT
        ),
        catalogue=catalogue.Catalogue(
            store, clouds=clouds, policies=policy.Source(policy_file), clock=clock
        ),
        address=address,
    )


async def _all_of(tx: contract.Tx, *, table: str) -> Sequence[contract.Row]:
    return await tx.fetch_all(f"SELECT * FROM {table} LIMIT 10000")  # noqa: S608 - of the test


def write_policy(folder: pathlib.Path, **sections: Any) -> pathlib.Path:
    """A policy file with these sections, or one that lets Hetzner be used."""
    path = folder / "policy.json"
    path.write_text(json.dumps({"version": 1, "providers": sections or {"hetzner": POLICY}}))
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def opened(name: str) -> Iterator[bench_kit.Bench]:
    """A bench of that name, running."""
    with bench_kit.open_bench(name) as bench:
        yield bench


def seconds(number: float) -> datetime.timedelta:
    """So long."""
    return datetime.timedelta(seconds=number)


def names_of(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The calls that entries of the action log are about."""
    return [str(one["call"]) for one in entries]
