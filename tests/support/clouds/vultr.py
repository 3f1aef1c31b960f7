"""A Vultr of our own, as libcloud speaks to it (API v2)."""

import base64
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from provisioning import naming, packed_owner
from tests.support.clouds import server, small_cloud

TOKEN: Final = "VULTRKEYOFNOBODY0123456789ABCDEF0123"
REGIONS: Final = ("ewr", "ams", "fra")
PLANS: Final = {"vc2-1c-2gb": (1, 2048, 55, 10), "vc2-2c-4gb": (2, 4096, 80, 20)}
SYSTEMS: Final = {2136: "Debian 12 x64", 2284: "Ubuntu 24.04 LTS x64"}
_REASONS: Final = {
    "quota": (400, "You have reached the maximum number of active virtual machines"),
    "capacity": (400, "Server add failed: plan is sold out in this location"),
    "catalogue": (400, "Invalid plan: not available in the selected region"),
    "locked": (409, "Server is currently locked"),
}


class Vultr(small_cloud.SmallCloud):
    """The fake; serve it with `server.Served`."""

    routes = small_cloud.routes(
        ("GET", r"/v2/account", "/v2/account"),
        ("GET", r"/v2/plans", "/v2/plans"),
        ("GET", r"/v2/os", "/v2/os"),
        ("GET", r"/v2/instances", "/v2/instances"),
        ("POST", r"/v2/instances", "/v2/instances"),
        ("GET", r"/v2/instances/([^/]+)", "/v2/instances/{id}"),
        ("DELETE", r"/v2/instances/([^/]+)", "/v2/instances/{id}"),
        ("POST", r"/v2/instances/([^/]+)/reboot", "/v2/instances/{id}/reboot"),
    )
    begun = "pending"
    running = "active"

    def is_proved(self, asked: server.Asked) -> bool:
        return asked.headers.get("authorization") == f"Bearer {TOKEN}"

    def tags(self, marks: Any) -> Mapping[str, str]:
        owner = packed_owner.owner_of_line(marks)
        return {} if owner is None else naming.tags_of(owner)

    def new_ref(self) -> str:
        return str(uuid.UUID(int=int(super().new_ref()), version=4))

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        known = _REASONS.get(code)
        status = status or (known[0] if known else 400)
        reason = known[1] if known else f"{code}: {message}"
        return server.Reply(status=status, document={"error": reason, "status": status})

    def handlers(
        self, asked: server.Asked, groups: tuple[str, ...], *, fails: bool
    ) -> Mapping[str, Callable[[], server.Reply]]:
        account = {
            "name": "ops",
            "email": "ops@example.net",
            "acls": ["subscriptions_view", "subscriptions", "provisioning", "billing"],
        }
        return {
            "GET /v2/account": lambda: server.Reply(document={"account": account}),
            "GET /v2/plans": lambda: self._page(
                asked, "plans", [_plan(*pair) for pair in PLANS.items()]
            ),
            "GET /v2/os": lambda: self._page(
                asked, "os", [{"id": ref, "name": name} for ref, name in SYSTEMS.items()]
            ),
            "GET /v2/instances": lambda: self._page(
                asked, "instances", list(map(_shown, self.listed()))
            ),
            "POST /v2/instances": lambda: self._create(asked, fails=fails),
            "GET /v2/instances/{id}": lambda: self._get(groups[0]),
            "DELETE /v2/instances/{id}": lambda: self.remove(groups[0]) or server.Reply(status=204),
            "POST /v2/instances/{id}/reboot": lambda: (
                server.Reply(status=204) if self.seen(groups[0]) else self.not_found()
            ),
        }

    def _create(self, asked: server.Asked, *, fails: bool) -> server.Reply:
        order = asked.json()
        if order["plan"] not in PLANS or order["region"] not in REGIONS:
            return self.error(status=None, code="catalogue", message="")
        if order["os_id"] not in SYSTEMS:
            return self.error(status=400, code="", message="Invalid os_id")
        machine = self.make(
            name=order["label"],
            region=order["region"],
            size=order["plan"],
            image=str(order["os_id"]),
            marks=order["tag"],
            user_data=base64.b64decode(order["user_data"], validate=True),
            fails=fails,
        )
        password = "vU1tr-0f-nobody"
        self.ledger.machines[machine.ref].passwords.append(password)  # always, and with a key too
        document = {"instance": _shown(machine) | {"default_password": password}}
        return server.Reply(status=202, document=document)

    def _get(self, ref: str) -> server.Reply:
        machine = self.seen(ref)
        if machine is None:
            return self.not_found()
        return server.Reply(document={"instance": _shown(machine)})

    def _page(self, asked: server.Asked, key: str, rows: list[dict[str, Any]]) -> server.Reply:
        size = int(asked.first("per_page", "100"))
        if self.script.page_size is not None:
            size = min(size, self.script.page_size)
        begin = int(asked.first("cursor", "next__0").removeprefix("next__"))
        more = f"next__{begin + size}" if begin + size < len(rows) else ""
        return server.Reply(
            document={
                key: rows[begin : begin + size],
                "meta": {"total": len(rows), "links": {"next": more, "prev": ""}},
            }
        )


def _plan(name: str, what: tuple[int, int, int, int]) -> dict[str, Any]:
    cores, megabytes, disk, monthly = what
    return {
        "id": name,
        "vcpu_count": cores,
        "ram": megabytes,
        "disk": disk,
        "disk_count": 1,
        "bandwidth": 2000,
        "monthly_cost": monthly,
        "type": "vc2",
        "locations": list(REGIONS),
    }


def _shown(machine: small_cloud.Small) -> dict[str, Any]:
    is_up = machine.state == "active"
    return {
        "id": machine.ref,
        "label": machine.name,
        "region": machine.region,
        "plan": machine.size,
        "os_id": int(machine.image),
        "status": machine.state,
        "power_status": "running" if is_up else "stopped",
        "server_status": "ok" if is_up else "none",
        "main_ip": "203.0.113.9" if is_up else "0.0.0.0",
        "v6_main_ip": "",
        "internal_ip": "",
        "tag": machine.marks,
        "tags": [machine.marks],
        "date_created": machine.born.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
    }
