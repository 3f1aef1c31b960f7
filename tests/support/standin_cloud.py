"""The cloud routes of the Platform in memory: orders that go on at each look, and what they cost.

Made of the models of `wire_protocol`, as `standin`, which hands requests here.
"""

import datetime
from typing import Any

from wire_protocol import admin, cloud, cloud_machines, operations, problems

NOW = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)
PRICE = cloud.Price(hourly_micros=6_000, currency="EUR", monthly_cap_micros=3_790_000)
CREATE_WAY = ("validating", "creating", "booting", "bootstrapping", "enrolling", "verifying",
              "active")  # fmt: skip
Answer = tuple[int, Any]


class Refused(Exception):
    """No, with a problem code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = problems.Problem(code=code, detail=detail, request_id="req-1")


class Cloud:
    """What is there. `becomes` are the states that the newest operation has at the next looks."""

    def __init__(self) -> None:
        self.connections: dict[str, cloud.Connection] = {}
        self.machines: dict[str, cloud_machines.Machine] = {}
        self.operations: dict[str, operations.OperationDetails] = {}
        self.offered: list[cloud.Offered] = []
        self.becomes: list[dict[str, Any]] = []
        self.children: list[cloud_machines.Child] = []
        self.check = checked()
        self.fits: int | None = None
        self.orphans: list[cloud_machines.Orphan] = []
        self.console: str | None = None

    # --- /cloud ---------------------------------------------------------------------------------

    def get(self, rest: list[str], query: dict[str, list[str]]) -> Answer:
        """GET /cloud/…"""
        lists: dict[str, Any] = {
            "connections": cloud.ConnectionList(connections=list(self.connections.values())),
            "catalog": cloud.Catalog(offered=self.offered, images={}, missing=[]),
            "costs": costs(self.machines),
            "machines": cloud_machines.MachineList(
                machines=[
                    one for one in self.machines.values() if one.gone_at is None or "ended" in query
                ]
            ),
        }
        lists["orphans"] = cloud_machines.OrphanList(orphans=self.orphans, more=False)
        kept = cloud_machines.ChildList(children=self.children)
        lists.update(volumes=kept, snapshots=kept, addresses=kept)
        match rest:
            case []:
                return 200, facts()
            case ["connections", name]:
                return 200, self._connection(name)
            case ["machines", name, "console"]:
                return 200, self._console(name)
            case ["machines", name]:
                return 200, self._details(name)
        return 200, lists[rest[0]]

    def put(self, rest: list[str], body: dict[str, Any], *, check: bool) -> Answer:
        """PUT /cloud/…"""
        name = rest[1]
        if rest[2:] == ["consent"]:
            old = self._connection(name)
            given = cloud.Consent(
                most_machines=body["most_machines"],
                most_hourly_micros=body["most_hourly_micros"],
                currency=body["currency"],
                expires_at=NOW + datetime.timedelta(days=body["days"]),
                given_at=NOW,
                given_by="uid:0",
            )
            self.connections[name] = old.model_copy(update={"consent": given})
            return 200, self.connections[name]
        if check:
            return 200, would("save", name)
        made = connection(name, provider=body["provider"], kind=body["credential"]["kind"])
        self.connections[name] = made
        return 200, cloud.SavedConnection(
            connection=made, check=self.check, setup="Allow this.\n", fits=self.fits
        )

    def post(self, rest: list[str], body: dict[str, Any], *, check: bool) -> Answer:
        """POST /cloud/…"""
        match rest:
            case ["connections", name, "check"]:
                return 200, cloud.SavedConnection(
                    connection=self._connection(name), check=self.check, setup="", fits=self.fits
                )
            case ["machines"]:
                detail = "cx22 in fsn1 at hetzner, 0.0060 EUR/h"
                if check:
                    return 200, would("order", body["node_id"], detail)
                made = machine(body["node_id"], **_wished(body))
                self.machines[made.node_id] = made
                begun = self.begin("create-machine", made.node_id, CREATE_WAY)
                return 201, cloud_machines.Ordered(
                    machine=made, operation=begun, price=made.price, warnings=["No default net."]
                )
            case ["machines", name, "refresh"]:
                return 200, self._details(name)
            case ["machines", name, "reboot"]:
                begun = self.begin("reboot-machine", name, ("running", "done"))
                return 201, cloud_machines.Begun(operation=begun)
            case ["machines", name, "forget"]:
                update = {"forgotten_at": NOW, "forgotten_by": "uid:0"}
                self.machines[name] = self.machines[name].model_copy(update=update)
                return 200, admin.Done(changes=would("forget", name).changes)
        raise Refused("not-found", "There is nothing at this address.")

    def delete(self, rest: list[str], query: dict[str, list[str]], *, check: bool) -> Answer:
        """DELETE /cloud/…"""
        kind, name = rest[:2]
        if check:
            return 200, would("delete", name)
        if kind == "machines":
            self._details(name)
            begun = self.begin("delete-machine", name, ("deleting", "deleted"))
            return 202, cloud_machines.Begun(operation=begun)
        if rest[2:] == ["consent"]:
            old = self._connection(name)
            self.connections[name] = old.model_copy(update={"consent": None})
            return 200, self.connections[name]
        if any(one.connection == name and one.still_billed for one in self.machines.values()):
            raise Refused("connection-in-use", f"Machines of {name} are not confirmed gone.")
        del query, self.connections[name]
        return 200, admin.Done(changes=would("forget", name).changes)

    # --- /operations ----------------------------------------------------------------------------

    def begin(self, kind: str, node_id: str, way: tuple[str, ...]) -> operations.OperationDetails:
        """A new operation, which goes that way at the next looks."""
        made = operation(f"{len(self.operations) + 1:016x}", kind=kind, node_id=node_id)
        self.operations[made.operation_id] = made
        self.becomes = [{"state": state} for state in way]
        return made

    def list_operations(self, query: dict[str, list[str]]) -> Answer:
        """Those on one node, newest first, or those of them that are open."""
        found = [
            one
            for one in reversed(self.operations.values())
            if one.node_id in query["node_id"]
            and ("open" not in query or one.state not in operations.ENDED)
        ]
        return 200, operations.OperationList(operations=list(found))

    def get_operation(self, operation_id: str) -> Answer:
        """Each look finds it in its next state."""
        found = self.operations.get(operation_id)
        if found is None:
            raise Refused("not-found", f"There is no operation {operation_id}.")
        if self.becomes:
            update = self.becomes.pop(0)
            step = operations.Step(
                at=NOW, event="e", state=update["state"], detail=update.get("detail", "")
            )
            found = found.model_copy(update={**update, "steps": [*found.steps, step]})
            self.operations[operation_id] = found
        return 200, found

    def act(self, operation_id: str, verb: str, *, check: bool) -> Answer:
        """retry, cancel, resolve."""
        found = self.operations.get(operation_id)
        if found is None:
            raise Refused("not-found", f"There is no operation {operation_id}.")
        if check:
            return 200, would(verb, operation_id)
        if found.state in operations.ENDED and verb != "retry":
            raise Refused("operation-state", f"The operation {operation_id} is {found.state}.")
        return 201, found

    # Inside.

    def _connection(self, name: str) -> cloud.Connection:
        if name not in self.connections:
            raise Refused("not-found", f"There is no connection {name}.")
        return self.connections[name]

    def _console(self, name: str) -> cloud_machines.Console:
        if self.console is None:
            raise Refused("conflict", "Enlist has no console that can be read at hetzner.")
        return cloud_machines.Console(node_id=name, text=self.console or None, read_at=NOW)

    def _details(self, name: str) -> cloud_machines.MachineDetails:
        for one in self.machines.values():
            if name in (one.node_id, one.machine_id):
                phase = cloud_machines.BootPhase(at=NOW, phase="joining", detail="")
                return cloud_machines.MachineDetails(
                    **one.model_dump(), children=[], phases=[phase]
                )
        raise Refused("not-found", f"There is no machine {name}.")


def _wished(body: dict[str, Any]) -> dict[str, Any]:
    return {"provider": body["provider"], "role": body.get("role", "general")}


def would(action: str, target: str, detail: str = "") -> admin.Checked:
    """One change."""
    return admin.Checked(changes=[admin.Change(action=action, target=target, detail=detail)])


def facts() -> cloud.Cloud:
    """Two providers."""
    return cloud.Cloud(
        available=True,
        missing=[],
        credential_policy="federated",
        policy_file="/etc/enlist/cloud.toml",
        issuer_url=None,
        providers=[
            cloud.ProviderFacts(
                provider=name,
                title=name,
                costs_money=name != "local-nspawn",
                credential_kinds=kinds,
                available=True,
                missing=[],
                capabilities=["reboot"],
            )
            for name, kinds in PROVIDER_KINDS
        ],
    )


PROVIDER_KINDS: Any = (
    ("local-nspawn", ["none"]),
    ("hetzner", ["token"]),
    ("gcp", ["gcp-federated", "gcp-key"]),
)


def checked(**fields: Any) -> cloud.Checked:
    """A credential that may everything."""
    usual: dict[str, Any] = {
        "ok": True,
        "account": "project-1",
        "principal": "token",
        "missing": [],
        "unproved": [],
        "warnings": [],
        "room": None,
        "checked_at": NOW,
    }
    return cloud.Checked(**{**usual, **fields})


def connection(name: str, *, provider: str = "hetzner", kind: str = "token") -> cloud.Connection:
    """One that works."""
    return cloud.Connection(
        connection_id="c" * 16,
        name=name,
        infra="default",
        provider=provider,
        state="ready",
        paused_at=None,
        paused_reason=None,
        settings={},
        credential_kind=kind,
        credential_at=NOW,
        external_id=None,
        account="project-1",
        principal="token",
        capabilities=["price"],
        costs_money=True,
        machines=1,
        totals=[cloud.Total(currency="EUR", spent_micros=12_340_000, hourly_micros=6_000)],
        last_check=checked(),
        consent=None,
        created_at=NOW,
        created_by="uid:0",
    )


def machine(node_id: str, **fields: Any) -> cloud_machines.Machine:
    """One that runs."""
    usual: dict[str, Any] = {
        "machine_id": "a" * 16,
        "node_id": node_id,
        "infra": "default",
        "provider": "hetzner",
        "connection": "hetzner",
        "operation_id": "1" * 16,
        "state": "active",
        "region": "fsn1",
        "size": "cx22",
        "image": "debian-12",
        "role": "general",
        "labels": {},
        "provider_ref": "4711",
        "provider_name": f"{node_id}-0123456789",
        "power": "running",
        "addresses": ["192.0.2.7"],
        "seen_at": NOW,
        "price": PRICE,
        "spent_micros": 120_000,
        "still_billed": True,
        "ordered_at": NOW,
        "ordered_by": "uid:0",
        "present_at": NOW,
        "active_at": NOW,
        "delete_asked_at": None,
        "gone_at": None,
        "forgotten_at": None,
        "forgotten_by": None,
    }
    return cloud_machines.Machine(**{**usual, **fields})


def operation(
    operation_id: str, *, kind: str = "create-machine", **fields: Any
) -> operations.OperationDetails:
    """One that was just stored."""
    usual: dict[str, Any] = {
        "operation_id": operation_id,
        "kind": kind,
        "state": "requested",
        "infra": "default",
        "node_id": "demo",
        "parent_id": None,
        "depends_on": [],
        "target": None,
        "created_at": NOW,
        "created_by": "uid:0",
        "updated_at": NOW,
        "ended_at": None,
        "deadline_at": None,
        "tries": 0,
        "reason": None,
        "class": None,
        "retryable": False,
        "steps": [],
        "parts": [],
    }
    return operations.OperationDetails.model_validate({**usual, **fields})


def offered(**fields: Any) -> cloud.Offered:
    """A small tier."""
    usual: dict[str, Any] = {
        "provider": "hetzner",
        "connection": "hetzner",
        "region": "fsn1",
        "tier": "small",
        "size": "cx22",
        "architecture": "x86_64",
        "cores": 2,
        "memory_bytes": 4_000_000_000,
        "disk_bytes": 40_000_000_000,
        "nested_virt": False,
        "price": PRICE,
        "tested": True,
        "available": True,
        "reason": None,
        "withdrawn_after": None,
    }
    return cloud.Offered(**{**usual, **fields})


def orphan(connection: str) -> cloud_machines.Orphan:
    """A machine that nobody knows, through this connection."""
    return cloud_machines.Orphan(
        connection=connection,
        provider="hetzner",
        kind="machine",
        provider_ref="4711",
        name="enlist-1",
        region="fsn1",
        operation_id="0" * 16,
        price=None,
        made_at=None,
        first_seen_at=NOW,
        last_seen_at=NOW,
        delete_asked_at=None,
    )


def costs(machines: dict[str, cloud_machines.Machine]) -> cloud.Costs:
    """What these cost."""
    return cloud.Costs(
        connections=[
            cloud.ConnectionCosts(
                connection="hetzner",
                provider="hetzner",
                machines=len(machines),
                most_machines=5,
                hourly_micros=6_000 * len(machines),
                most_hourly_micros=100_000,
                currency="EUR",
                spent_micros=120_000,
            )
        ],
        subjects=[
            cloud.MachineCosts(
                subject_id=one.machine_id,
                what="machine",
                node_id=one.node_id,
                connection="hetzner",
                hourly_micros=6_000,
                currency="EUR",
                spent_micros=120_000,
                since=NOW,
                until=None,
            )
            for one in machines.values()
        ],
        at=NOW,
    )
