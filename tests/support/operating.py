"""Engines that carry operations on over a real store, and nodes that say what a test has them say.

The product's own: rows, leases, kinds, plan, reconciler, orders. Not there: the API, delivery, the
Agents; a node's word is written down as the parts that hear it would.
"""

import dataclasses
import datetime
import functools
import json
import pathlib
import random
from collections.abc import Sequence

from platform_server.dispatch import ending
from platform_server.dispatch import records as order_records
from platform_server.dispatch import states as order_states
from platform_server.nodes import records as node_records
from platform_server.operations import (
    batch,
    kinds,
    node_release,
    plan,
    reconciler,
    records,
    requests,
    shelf,
)
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import retry
from tests.support import domain
from wire_protocol import ids, orders, product, times, updates

OLD = "0.0.9"
NEW = product.VERSION
SHA256 = "ab" * 32
RELEASE = f"{NEW}-0123456789ab"
OLD_RELEASE = f"{OLD}-ba9876543210"
ARCHIVE = shelf.Archive(
    version=NEW,
    architecture="x86_64",
    release=RELEASE,
    sha256=SHA256,
    size=12_345,
    made_at="2026-03-01T12:00:00Z",
)
LIMITS = plan.Limits(
    ready_seconds=60.0, staging_seconds=600.0, restart_seconds=120.0, healthy_seconds=15.0
)
NO_WAITS = retry.Schedule(first_seconds=0.0, cap_seconds=0.0, tries=3)


@dataclasses.dataclass
class Archives:
    """What the Platform can give out, as a test wishes."""

    workers: Sequence[shelf.Archive] = (ARCHIVE,)
    is_served: bool = True

    def list_workers(self) -> Sequence[shelf.Archive]:
        return self.workers

    def urls(self, sha256: str) -> tuple[str, ...]:
        return (f"https://platform.test:8446/bundles/sha256/{sha256}",) if self.is_served else ()


class Engine:
    """One engine's part in operations."""

    def __init__(self, platform: domain.Domain, *, archives: Archives | None = None) -> None:
        self.platform = platform
        self.archives = archives or Archives()
        self.given: list[str] = []
        means = node_release.Means(
            store=platform.store,
            sign=functools.partial(platform.trust.sign, context=orders.CONTEXT),
            given=self.given.append,
            operators=platform.operators,
            archives=self.archives,
            environment="test",
            limits=LIMITS,
            clock=platform.clock,
        )
        known: list[kinds.Kind] = [
            batch.Batch(
                batch.UPDATE_NODES,
                store=platform.store,
                environment="test",
                clock=platform.clock,
            ),
            node_release.NodeRelease(node_release.UPDATE, means=means),
            node_release.NodeRelease(node_release.ROLL_BACK, means=means),
        ]
        self.reconciler = reconciler.Reconciler(
            platform.store,
            known=known,
            clock=platform.clock,
            chance=random.Random(4),
            tries=NO_WAITS,
        )

    async def carry_on(self, *, rounds: int = 4) -> None:
        """So many rounds, a second and a half apart."""
        for _ in range(rounds):
            self.platform.clock.advance(1.5)
            await self.reconciler.round()

    async def update(self, *node_ids: str, version: str | None = None) -> requests.Made:
        """As the route does."""
        wish = requests.Wish(
            node_ids=[ids.parse_node_id(one) for one in node_ids],
            version=version,
            infra=None,
            created_by="local:0",
            now=self.platform.clock.now(),
        )
        return await self.platform.store.transact(
            lambda tx: requests.update(
                tx,
                wish=wish,
                archives=self.archives.workers,
                operators=self.platform.operators,
                environment="test",
            )
        )

    async def roll_back(self, node_id: str) -> records.Operation:
        """As the route does."""
        return await self.platform.store.transact(
            lambda tx: requests.roll_back(
                tx,
                node_id=ids.parse_node_id(node_id),
                operators=self.platform.operators,
                environment="test",
                created_by="local:0",
                now=self.platform.clock.now(),
            )
        )

    async def stands(self, operation: records.Operation) -> records.Operation:
        """The operation as it is now."""
        found = await self.platform.store.read(
            lambda tx: records.find(tx, operation_id=operation.operation_id)
        )
        assert found is not None
        return found

    async def states(self, *operations: records.Operation) -> list[str]:
        """Their states now."""
        return [(await self.stands(one)).state.value for one in operations]


class Node:
    """A machine behind a node, of which a test says what is heard."""

    def __init__(self, platform: domain.Domain, node_id: str) -> None:
        self.platform = platform
        self.node_id = ids.parse_node_id(node_id)
        self.release = OLD_RELEASE
        self.started_at = platform.clock.now()
        self.claims_uptime: int | None = None

    async def beats(self) -> None:
        """A heartbeat is heard, and its session is open."""
        now = self.platform.clock.now()
        said = {
            "version": updates.version_of_release(self.release),
            "release": self.release,
            "architecture": "x86_64",
            "uptime_seconds": self.claims_uptime
            if self.claims_uptime is not None
            else int((now - self.started_at).total_seconds()),
            "now": times.to_rfc3339(now),
        }
        micros = clock_kit.to_micros(now)

        async def work(tx: contract.Tx) -> None:
            await tx.execute(
                "INSERT INTO heartbeats(node_id, at, heartbeat) VALUES (?, ?, ?) "
                "ON CONFLICT (node_id) DO UPDATE SET at = excluded.at, "
                "heartbeat = excluded.heartbeat",
                self.node_id,
                micros,
                json.dumps(said),
            )
            await tx.execute(
                "INSERT INTO sessions(node_id, session_id, engine_id, address, instance, "
                "generation, started_at) VALUES (?, ?, 'e', 'a', 'i', 1, ?) "
                "ON CONFLICT (node_id) DO UPDATE SET lost_at = NULL",
                self.node_id,
                f"session-{self.node_id}",
                micros,
            )
            await tx.execute("UPDATE nodes SET state = 'ready' WHERE node_id = ?", self.node_id)

        await self.platform.store.transact(work)

    async def is_lost(self) -> None:
        """Nothing is heard of it."""

        async def work(tx: contract.Tx) -> None:
            await tx.execute(
                "UPDATE nodes SET state = 'unreachable' WHERE node_id = ?", self.node_id
            )

        await self.platform.store.transact(work)

    async def restarts(self, release: str) -> None:
        """Its Agent was started anew, of this release, and has run for twenty seconds."""
        self.release = release
        self.platform.clock.advance(2)
        self.started_at = self.platform.clock.now()
        self.platform.clock.advance(30)
        await self.beats()

    async def order(self) -> order_records.Order | None:
        """Its last order."""
        found = await self.platform.store.read(
            lambda tx: order_records.list_page(tx, node_id=self.node_id, limit=1, before=None)
        )
        return found[0] if found else None

    async def answers(self, event: order_states.Event, detail: str = "") -> None:
        """What it says of its order."""
        order = await self.order()
        assert order is not None
        await self.platform.store.transact(
            lambda tx: ending.happened(
                tx,
                order=order,
                event=event,
                environment="test",
                now=self.platform.clock.now(),
                detail=detail,
            )
        )

    async def takes_and_stages(self) -> None:
        """It takes its order, and says that the release is in its place."""
        await self.answers(order_states.Event.TAKE)
        await self.answers(order_states.Event.SUCCEED, "staged: it runs next.")

    async def scheduling(self) -> str:
        """Whether it takes work."""
        found = await self.platform.store.read(
            lambda tx: node_records.find(tx, node_id=self.node_id)
        )
        assert found is not None
        return found.scheduling


async def find_node(platform: domain.Domain, node_id: str) -> Node | None:
    """The machine behind a node that is there, with what it told last."""
    found = await platform.store.read(
        lambda tx: node_release.find_runs(tx, node_id=ids.parse_node_id(node_id))
    )
    if found is None:
        return None
    made = Node(platform, node_id)
    made.release, made.started_at = found.release, found.started_at
    return made


async def node(platform: domain.Domain, node_id: str) -> Node:
    """A node that has joined, dials out, and is ready."""
    token = await platform.new_token(node_id)
    said = await platform.knock(node_id, token)
    assert said.status == 201, said
    made = Node(platform, node_id)
    await made.beats()
    return made


async def place(
    store: contract.Store, *, folder: pathlib.Path, node_ids: Sequence[str] = ("web-1",)
) -> tuple[Engine, list[Node]]:
    """An engine and its nodes."""
    platform = await domain.build(store, folder=folder)
    return Engine(platform), [await node(platform, one) for one in node_ids]


async def actions_of(store: contract.Store) -> list[tuple[str, str, str | None]]:
    """Action, target and operation of each line of the action log, the first first."""
    rows = await store.read(
        lambda tx: tx.fetch_all(
            "SELECT action, target, operation FROM action_log ORDER BY seq LIMIT 1000"
        )
    )
    return [(row["action"], row["target"], row["operation"]) for row in rows]


async def events_of(store: contract.Store, kind: str = "operation.") -> list[tuple[str, str]]:
    """Kind and subject of the events whose kind begins so, the first first."""
    rows = await store.read(
        lambda tx: tx.fetch_all("SELECT kind, subject FROM events ORDER BY seq LIMIT 1000")
    )
    return [(row["kind"], row["subject"]) for row in rows if row["kind"].startswith(kind)]


def later(platform: domain.Domain, seconds: float) -> datetime.datetime:
    """A moment after now."""
    return platform.clock.now() + datetime.timedelta(seconds=seconds)
