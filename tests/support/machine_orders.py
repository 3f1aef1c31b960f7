"""An engine that carries orders of machines on, over a real store and a pocket provider.

The product's own: rows, kinds, reconciler, tickets, the enroll door, the use of connections. The
machine behind an order is played: it reads the first-boot data that its provider was given, reports
phases, enrolls by the door and answers as a node.
"""

import dataclasses
import functools
import json
import pathlib
import random
from typing import Any

from platform_server.cloud import (
    attempts,
    connections,
    consent,
    costs,
    create,
    delete,
    machines,
    means,
    reboot,
    requests,
    tickets,
    using,
    view,
)
from platform_server.operations import reconciler, records
from platform_server.store import contract
from provisioning import contract as provider
from runtime_kit import clock as clock_kit
from runtime_kit import retry
from tests.support import domain
from tests.support.clouds import pocket
from wire_protocol import enrollment_token, ids, pins
from wire_protocol import tickets as wire_tickets

TRIES = retry.Schedule(first_seconds=0.0, cap_seconds=0.0, tries=6)
NAME = "pocket"
URL = "https://platform.test:8444"
PIN = pins.Pin("sha256:" + "ab" * 32)
NO_CAPS: tuple[consent.Caps, ...] = ()


class Engine:
    """One engine's part in orders of machines."""

    def __init__(
        self,
        platform: domain.Domain,
        *,
        cloud: pocket.Pocket,
        limits: means.Limits | None = None,
        tries: retry.Schedule = TRIES,
        store: contract.Store | None = None,
    ) -> None:
        self.platform = platform
        self.cloud = cloud
        self.store = store or platform.store
        self.removed: list[str] = []
        self.caps: tuple[consent.Caps, ...] = NO_CAPS  # what a dearer plan is judged by
        installation = platform.trust.published.statement.platform_id

        async def opener(opening: using.Opening) -> provider.Driver:
            return pocket.Driver(cloud, observer=opening.observer)

        self.clouds = using.StoredClouds(
            self.store,
            keyring=platform.keyring,
            opener=opener,
            clock=platform.clock,
            environment="test",
        )
        self.viewer = view.Viewer(
            self.store, clouds=self.clouds, installation=installation, clock=platform.clock
        )
        self.means = means.Means(
            store=self.store,
            clouds=self.clouds,
            viewer=self.viewer,
            keyring=platform.keyring,
            minting=tickets.Minting(
                platform_id=installation,
                sign=functools.partial(platform.trust.sign, context=wire_tickets.CONTEXT),
                coordinates=lambda _provider: tickets.Coordinates(
                    url=URL, pins=(PIN,), trust_key_ids=(), bundle=None
                ),
                render=lambda ticket: json.dumps(dict(ticket)),
                operators=platform.operators,
            ),
            installation=installation,
            environment="test",
            limits=limits or means.Limits(),
            clock=platform.clock,
            node_changed=self.removed.append,
            caps_of=self._caps_of,
        )
        self.reconciler = reconciler.Reconciler(
            self.store,
            known=[
                create.CreateMachine(self.means),
                delete.DeleteMachine(self.means),
                reboot.RebootMachine(self.means),
            ],
            clock=platform.clock,
            chance=random.Random(4),
            tries=tries,
        )

    async def _caps_of(self, _connection_id: str) -> tuple[consent.Caps, ...]:
        return self.caps

    async def carry_on(self, *, rounds: int = 4, seconds: float = 11.0) -> None:
        """So many rounds, so far apart."""
        for _ in range(rounds):
            self.platform.clock.advance(seconds)
            await self.reconciler.round()

    def asked(self, by: str = "local:0") -> requests.Asked:
        return requests.Asked(by=by, now=self.platform.clock.now(), environment="test")

    async def connection(self) -> connections.Connection:
        """The one connection, made if it is not there."""
        return await self.store.transact(self._connection)

    async def _connection(self, tx: contract.Tx) -> connections.Connection:
        found = await connections.find(tx, connection_id=NAME)
        if found is not None:
            return found
        now = self.platform.clock.now()
        made = connections.Connection(
            connection_id="c-1",
            name=NAME,
            infra="default",
            provider=pocket.PROVIDER,
            settings={},
            credential_kind="none",
            credential_at=now,
            has_secret=False,
            external_id=None,
            account="pocket",
            principal="test",
            pause=None,
            checked_at=None,
            checked={},
            consent=None,
            offer_at=None,
            refreshed_at=None,
            created_at=now,
            created_by="local:0",
        )
        await connections.put(tx, connection=made, sealed=None, kek_id=None)
        return made

    async def order(
        self,
        node_id: str = "web-1",
        *,
        caps: tuple[consent.Caps, ...] = NO_CAPS,
        price: provider.Price | None = pocket.PRICE,
        **more: Any,
    ) -> requests.Made:
        """As the route does."""
        order = requests.Order(
            node_id=ids.parse_node_id(node_id),
            infra="default",
            connection=await self.connection(),
            region="here",
            size="small",
            image="debian-12",
            caps=caps,
            price=price,
            **more,
        )
        return await self.store.transact(
            lambda tx: requests.create_machine(
                tx, order=order, operators=self.platform.operators, asked=self.asked()
            )
        )

    async def delete(self, machine_id: str = "web-1", **more: Any) -> requests.Made:
        """As the route does."""
        return await self.store.transact(
            lambda tx: requests.delete_machine(
                tx, machine_id=machine_id, asked=self.asked(), **more
            )
        )

    async def cancel(self, made: requests.Made) -> requests.Made:
        """As the route does."""
        return await self.store.transact(
            lambda tx: requests.cancel(
                tx, operation_id=made.operation.operation_id, asked=self.asked()
            )
        )

    async def retry(self, made: requests.Made) -> requests.Made:
        """As the route does."""
        return await self.store.transact(
            lambda tx: requests.retry(
                tx, operation_id=made.operation.operation_id, asked=self.asked()
            )
        )

    async def stands(self, made: requests.Made) -> records.Operation:
        """The operation as it is now."""
        found = await self.store.read(
            lambda tx: records.find(tx, operation_id=made.operation.operation_id)
        )
        assert found is not None
        return found

    async def state(self, made: requests.Made) -> str:
        """Its state now."""
        return (await self.stands(made)).state.value

    async def machine(self, made: requests.Made) -> machines.Machine:
        """The machine as it is now."""
        return await self.store.read(
            lambda tx: machines.get(tx, machine_id=made.machine.machine_id)
        )

    async def tried(self, made: requests.Made) -> list[attempts.Attempt]:
        """Its attempts."""
        return list(
            await self.store.read(
                lambda tx: attempts.list_of(tx, machine_id=made.machine.machine_id)
            )
        )

    async def until(self, made: requests.Made, *states: str, rounds: int = 60) -> str:
        """Carries on until the operation stands in one of these; gives which."""
        for _ in range(rounds):
            present = await self.state(made)
            if present in states:
                return present
            await self.carry_on(rounds=1)
        raise AssertionError(await self.stands(made))

    async def spent_micros(self, made: requests.Made) -> int:
        """What the machine has cost by our own reckoning."""
        now = self.platform.clock.now()
        totals = await self.store.read(
            lambda tx: costs.total_of(tx, subject_ids=[made.machine.machine_id], now=now)
        )
        return sum(one.spent_micros for one in totals.get(made.machine.machine_id, ()))

    async def to_active(self, made: requests.Made) -> "Guest":
        """Ordered, booted, enrolled, ready."""
        await self.until(made, "booting")
        guest = Guest(self)
        await self.carry_on(rounds=3)
        assert await guest.joins() == 201
        assert await self.until(made, "active") == "active"
        return guest


@dataclasses.dataclass
class Guest:
    """The machine that was made last, seen from inside."""

    engine: Engine
    ref: str = ""
    instance_id: str | None = None

    def __post_init__(self) -> None:
        here = self.engine.cloud.ever()[-1]
        self.ref = self.ref or here["ref"]
        self.ticket = json.loads(
            next(one for one in self.engine.cloud.ever() if one["ref"] == self.ref)["user_data"]
        )
        self.document = wire_tickets.read_document(wire_tickets.of_wire(**self.ticket).content)
        self.certificate = domain.new_certificate()

    @property
    def token(self) -> enrollment_token.EnrollmentToken:
        return self.document.token

    async def knocks(self, **more: Any) -> domain.Said:
        """One enroll request."""
        given: dict[str, Any] = {
            "ticket": self.ticket,
            "instance": {"id": self.instance_id or self.ref},
            "certificate": self.certificate,
            **more,
        }
        return await self.engine.platform.knock(self.document.node_id, self.token.text(), **given)

    async def joins(self) -> int:
        """Enrolls and answers as a node; gives the status."""
        said = await self.knocks()
        if said.status == 201:
            await self.answers()
        return said.status

    async def answers(self) -> None:
        """The node is heard."""
        await self.engine.platform.mark_ready(self.document.node_id)

    async def reports(self, phase: str, detail: str = "", **more: Any) -> int:
        """One phase; gives the status."""
        self.engine.platform.clock.advance(1.5)
        body = {
            "node_id": self.document.node_id,
            "token": self.token.text(),
            "phase": phase,
            "detail": detail,
            "ticket": self.ticket,
            **more,
        }
        answered = await self.engine.platform.door.answer_enroll(
            json.dumps(body).encode(), address=domain.PEER, request_id=domain.REQUEST
        )
        return answered.status


async def build(
    store: contract.Store,
    *,
    folder: pathlib.Path,
    rules: pocket.Rules | None = None,
    limits: means.Limits | None = None,
    tries: retry.Schedule = TRIES,
) -> Engine:
    """An engine with a provider of its own."""
    platform = await domain.build(store, folder=folder)
    cloud = pocket.Pocket(clock=platform.clock, rules=rules)
    engine = Engine(platform, cloud=cloud, limits=limits, tries=tries)
    await engine.connection()
    return engine


async def require_standard(
    engine: Engine,
    *,
    mutating: int | None = None,
    secrets: tuple[str, ...] = (),
    unseen_seconds: float = 60.0,
) -> None:
    """The asserts (a) to (f) that hold after every trial.

    `unseen_seconds`: for how long at most a machine's end may have gone unnoticed (an engine that
    was down); until it is confirmed it costs.
    """
    cloud, store = engine.cloud, engine.store
    rows = await store.read(
        lambda tx: tx.fetch_all(
            "SELECT machine_id, provider_ref FROM cloud_machines WHERE gone_at IS NULL "
            "AND forgotten_at IS NULL AND provider_ref IS NOT NULL LIMIT 1000"
        )
    )
    ours = {one["ref"] for one in cloud.standing() if _is_ours(engine, one)}
    assert {row["provider_ref"] for row in rows} >= ours  # (a)
    children = await store.read(
        lambda tx: tx.fetch_all(
            "SELECT provider_ref FROM cloud_children WHERE gone_at IS NULL LIMIT 1000"
        )
    )
    known = {row["provider_ref"] for row in children}
    assert {one["ref"] for one in cloud.hanging()} <= known  # (b)
    await _require_tokens(engine)  # (c)
    await _require_spend(engine, unseen_seconds=unseen_seconds)  # (d)
    await _require_no_secret(engine, secrets=secrets)  # (e)
    if mutating is not None:
        made = [one for one in cloud.calls() if one in pocket.CHANGING]
        assert len(made) <= mutating, made  # (f)


def _is_ours(engine: Engine, one: dict[str, Any]) -> bool:
    owner = one["owner"]
    return owner is not None and owner["installation"] == engine.means.installation


async def _require_tokens(engine: Engine) -> None:
    """Each that was minted is spent, ended, or bound to an attempt that is open and not too old."""
    now = clock_kit.to_micros(engine.platform.clock.now())
    loose = await engine.store.read(
        lambda tx: tx.fetch_all(
            "SELECT e.enrollment_id FROM enrollments e WHERE e.state = 'pending' "
            "AND e.expires_at > ? AND e.created_by LIKE 'operation:%' AND NOT EXISTS ("
            "SELECT 1 FROM cloud_attempts a JOIN operations o ON o.operation_id = a.operation_id "
            "WHERE a.enrollment_id = e.enrollment_id AND a.state IN ('written', 'sent', 'present') "
            "AND o.ended_at IS NULL) LIMIT 100",
            now,
        )
    )
    assert not [row["enrollment_id"] for row in loose]


async def _require_spend(engine: Engine, *, unseen_seconds: float) -> None:
    """What is shown is what the ledger's lives cost, never less, more by what went unnoticed."""
    now = engine.platform.clock.now()
    totals = await engine.store.read(lambda tx: costs.total_by_connection(tx, now=now))
    shown = sum(one.spent_micros for own in totals.values() for one in own)
    lives = engine.cloud.hourly_seconds() * pocket.PRICE.hourly_micros / 3600
    unseen = unseen_seconds * pocket.PRICE.hourly_micros / 3600 * max(1, len(engine.cloud.ever()))
    assert lives - 2 * (1 + len(engine.cloud.ever())) <= shown <= lives + unseen, (shown, lives)


async def _require_no_secret(engine: Engine, *, secrets: tuple[str, ...]) -> None:
    """No token in any text of the store."""
    tokens = [
        wire_tickets.read_document(
            wire_tickets.of_wire(**json.loads(one["user_data"])).content
        ).token.text()
        for one in engine.cloud.ever()
        if one["user_data"]
    ]
    for table, column in (
        ("events", "data"),
        ("action_log", "details"),
        ("operation_steps", "detail"),
        ("operation_steps", "output"),
        ("operations", "request"),
        ("cloud_machines", "wish"),
        ("cloud_machines", "seen"),
        ("cloud_attempts", "request"),
        ("boot_phases", "detail"),
    ):
        rows = await engine.store.read(functools.partial(_texts_of, table=table, column=column))
        for text in rows:
            assert not [one for one in (*tokens, *secrets) if one in text]


async def _texts_of(tx: contract.Tx, *, table: str, column: str) -> list[str]:
    rows = await tx.fetch_all(f"SELECT {column} AS text FROM {table} LIMIT 5000")  # noqa: S608 - constants
    return [str(row["text"]) for row in rows]
