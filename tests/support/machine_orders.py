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
from typing import Any, Final

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
from platform_server.endpoints import calls, cloud_shown, mutations, operations, routes
from platform_server.operations import reconciler, records
from platform_server.store import contract
from provisioning import contract as provider
from runtime_kit import retry
from tests.support import domain, standard_asserts
from tests.support.clouds import pocket
from wire_protocol import cloud_machines, enrollment_token, ids, pins
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
        self.instead = ""  # what could be had where it is sold out
        self.keys = 0
        self.sent: dict[str, tuple[requests.Order, str]] = {}  # orders by key, and their operations
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
            instead_of=self._instead_of,
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

    async def _instead_of(self, _machine: machines.Machine) -> str:
        return self.instead

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
        return await self.send(order)

    async def send(self, order: requests.Order, *, key: str | None = None) -> requests.Made:
        """Sends an order with an Idempotency-Key, a new one where none is given."""
        if key is None:
            self.keys += 1
            key = f"key-{self.keys}"
        now = self.asked().now

        async def work(tx: contract.Tx) -> calls.Changed:
            made = await requests.create_machine(
                tx, order=order, operators=self.platform.operators, asked=self.asked()
            )
            (shown,) = await cloud_shown.machine_page(tx, [made.machine], now=now)
            return calls.Changed(
                changes=(),
                answer=cloud_machines.Ordered(
                    machine=shown,
                    operation=operations.shown(made.operation),
                    price=cloud_shown.price(order.price),
                    warnings=[],
                ),
            )

        once = mutations.Mutation(
            self.store,
            clock=self.platform.clock,
            route=_ORDERING,
            target=_ORDERING.path,
            principal="local:0",
            body=None,
            check=False,
            key=key,
        )
        reply = await once(work)
        assert reply.status == _ORDERING.status
        answer = (
            cloud_machines.Ordered.model_validate_json(reply.body)
            if isinstance(reply.body, bytes)
            else reply.body
        )
        assert isinstance(answer, cloud_machines.Ordered)
        self.sent[key] = (order, answer.operation.operation_id)
        return await self.store.read(
            lambda tx: _made_of(tx, operation_id=answer.operation.operation_id)
        )

    async def send_again(self) -> None:
        """Every order whose key is kept yet, once more: the same operation, and no other one."""
        before = await self.platform.count("operations")
        for key, (order, operation_id) in list(self.sent.items()):
            kept = await self.platform.count("idempotency", f"key = '{key}'")
            if kept:
                again = await self.send(order, key=key)
                assert again.operation.operation_id == operation_id
        assert await self.platform.count("operations") == before

    async def witness(self) -> standard_asserts.Witness:
        """What the provider knows."""
        ever = [one for one in self.cloud.ever() if _is_ours(self, one)]
        now = self.platform.clock.now().timestamp()
        return standard_asserts.Witness(
            machines=frozenset(one["ref"] for one in ever if one["died"] is None),
            children=frozenset(one["ref"] for one in self.cloud.hanging() if _is_ours(self, one)),
            lives={one["ref"]: (one["died"] or now) - one["born"] for one in ever},
            tickets=[one["user_data"] for one in ever if one["user_data"]],
            changing=[one for one in self.cloud.calls() if one in pocket.CHANGING],
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
    mutating: int,
    secrets: tuple[str, ...] = (),
    unseen_seconds: float = 60.0,
    vanished: frozenset[str] = frozenset(),
) -> None:
    """The asserts (a) to (f), and each order's key sent once more: see `standard_asserts`."""
    await standard_asserts.require(
        engine,
        mutating=mutating,
        secrets=secrets,
        unseen_seconds=unseen_seconds,
        vanished=vanished,
    )


def _is_ours(engine: Engine, one: dict[str, Any]) -> bool:
    owner = one["owner"]
    return owner is not None and owner["installation"] == engine.means.installation


async def _made_of(tx: contract.Tx, *, operation_id: str) -> requests.Made:
    operation = await records.find(tx, operation_id=operation_id)
    assert operation is not None
    machine = await machines.find(tx, machine_id=str(operation.request["machine_id"]))
    assert machine is not None
    return requests.Made(operation=operation, machine=machine)


async def _unused(call: calls.Call[Any, Any]) -> calls.Answer:
    raise NotImplementedError(call)


_ORDERING: Final = routes.Route(
    method="POST",
    path="/api/v1/cloud/machines",
    summary="As the route of the product is.",
    handler=_unused,
    answer=cloud_machines.Ordered,
    status=201,
    changes=True,
)
