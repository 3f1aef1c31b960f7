"""An OpenStack of our own, as libcloud speaks to it: Keystone, Nova and Glance at one address."""

import base64
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.support.clouds import server, small_cloud

APPLICATION: Final = "423f19a4ac1e4f48bbb4180756e6eb6c"
SECRET: Final = "rEaqvJka48mpv-of-nobody"
TOKEN: Final = "gAAAAABnTOKENOFNOBODY"
FLAVORS: Final = {"m1.small": ("1", 1, 2048, 20), "m1.medium": ("2", 2, 4096, 40)}
IMAGES: Final = {
    "debian-12": "3f1a2c6e-6a0b-4b52-9a53-1c6fbb2a6d01",
    "ubuntu-24.04": "3f1a2c6e-6a0b-4b52-9a53-1c6fbb2a6d02",
}
_REASONS: Final = {
    "quota": (403, "forbidden", "Quota exceeded for instances: Requested 1, but already used 10"),
    "capacity": (409, "conflictingRequest", "No valid host was found. Not enough hosts available"),
    "catalogue": (400, "badRequest", "Can not find requested image"),
    "locked": (409, "conflictingRequest", "Cannot delete while it is in task_state spawning"),
}


class OpenStack(small_cloud.SmallCloud):
    """The fake; serve it with `server.Served`, then tell it its own `address`."""

    routes = small_cloud.routes(
        ("POST", r"/v3/auth/tokens", "/v3/auth/tokens"),
        ("GET", r"/compute/v2\.1/limits", "/limits"),
        ("GET", r"/compute/v2\.1/flavors/detail", "/flavors/detail"),
        ("GET", r"/image/v2/images", "/v2/images"),
        ("GET", r"/compute/v2\.1/servers/detail", "/servers/detail"),
        ("POST", r"/compute/v2\.1/servers", "/servers"),
        ("GET", r"/compute/v2\.1/servers/([^/]+)", "/servers/{id}"),
        ("DELETE", r"/compute/v2\.1/servers/([^/]+)", "/servers/{id}"),
        ("POST", r"/compute/v2\.1/servers/([^/]+)/action", "/servers/{id}/action"),
    )
    begun = "BUILD"
    running = "ACTIVE"
    address = ""
    is_token_expired = False

    def is_proved(self, asked: server.Asked) -> bool:
        if asked.path == "/v3/auth/tokens":
            proof = asked.json()["auth"]["identity"]["application_credential"]
            return bool(proof == {"id": APPLICATION, "secret": SECRET})
        return asked.headers.get("x-auth-token") == TOKEN and not self.is_token_expired

    def tags(self, marks: Any) -> Mapping[str, str]:
        return dict(marks)

    def new_ref(self) -> str:
        return str(uuid.UUID(int=int(super().new_ref()), version=4))

    def fail(self, machine: small_cloud.Small) -> None:
        machine.state = "ERROR"

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        if code in _REASONS:
            usual, code, message = _REASONS[code]
            status = status or usual
        status = status or 400
        return server.Reply(
            status=status, document={code or "badRequest": {"code": status, "message": message}}
        )

    def handlers(
        self, asked: server.Asked, groups: tuple[str, ...], *, fails: bool
    ) -> Mapping[str, Callable[[], server.Reply]]:
        limits = {"maxTotalInstances": 10, "totalInstancesUsed": len(self.machines)}
        return {
            "POST /v3/auth/tokens": self._token,
            "GET /limits": lambda: server.Reply(
                document={"limits": {"absolute": limits, "rate": []}}
            ),
            "GET /flavors/detail": lambda: server.Reply(
                document={"flavors": [_flavor(*pair) for pair in FLAVORS.items()]}
            ),
            "GET /v2/images": lambda: server.Reply(
                document={"images": [{"id": ref, "name": name} for name, ref in IMAGES.items()]}
            ),
            "GET /servers/detail": lambda: self._list(asked),
            "POST /servers": lambda: self._create(asked, fails=fails),
            "GET /servers/{id}": lambda: self._get(groups[0]),
            "DELETE /servers/{id}": lambda: self.remove(groups[0]) or server.Reply(status=204),
            "POST /servers/{id}/action": lambda: (
                server.Reply(status=202) if self.seen(groups[0]) else self.not_found()
            ),
        }

    def _token(self) -> server.Reply:
        self.is_token_expired = False
        catalog = [
            {
                "type": kind,
                "name": name,
                "endpoints": [
                    {
                        "region": "RegionOne",
                        "region_id": "RegionOne",
                        "interface": "public",
                        "url": f"{self.address}{path}",
                    }
                ],
            }
            for kind, name, path in (
                ("compute", "nova", "/compute/v2.1"),
                ("image", "glance", "/image"),
            )
        ]
        expires = self.now().replace(year=self.now().year + 10)
        return server.Reply(
            status=201,
            headers={"x-subject-token": TOKEN},
            document={
                "token": {
                    "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
                    "user": {"id": "u-1", "name": "ops", "domain": {"id": "default"}},
                    "roles": [{"id": "r-1", "name": "member"}],
                    "catalog": catalog,
                }
            },
        )

    def _create(self, asked: server.Asked, *, fails: bool) -> server.Reply:
        order = asked.json()["server"]
        flavor = next((name for name, one in FLAVORS.items() if one[0] == order["flavorRef"]), None)
        if flavor is None or order["imageRef"] not in IMAGES.values():
            return self.error(status=None, code="catalogue", message="")
        machine = self.make(
            name=order["name"],
            region="RegionOne",
            size=flavor,
            image=order["imageRef"],
            marks=order["metadata"],
            user_data=base64.b64decode(order["user_data"], validate=True),
            fails=fails,
        )
        password = "aDm1nOfNobody"
        self.ledger.machines[machine.ref].passwords.append(password)  # always, and with a key too
        made = {"id": machine.ref, "adminPass": password, "links": []}
        return server.Reply(status=202, document={"server": made})

    def _get(self, ref: str) -> server.Reply:
        machine = self.seen(ref)
        if machine is None:
            return self.not_found()
        return server.Reply(document={"server": _shown(machine)})

    def _list(self, asked: server.Asked) -> server.Reply:
        rows = list(map(_shown, self.listed()))
        size = int(asked.first("limit", "1000"))
        if self.script.page_size is not None:
            size = min(size, self.script.page_size)
        marker = asked.first("marker")
        begin = 1 + [one["id"] for one in rows].index(marker) if marker else 0
        document: dict[str, Any] = {"servers": rows[begin : begin + size]}
        if begin + size < len(rows):
            href = f"{self.address}/compute/v2.1/servers/detail?marker=…"
            document["servers_links"] = [{"rel": "next", "href": href}]
        return server.Reply(document=document)


def _flavor(name: str, what: tuple[str, int, int, int]) -> dict[str, Any]:
    ref, cores, megabytes, disk = what
    return {"id": ref, "name": name, "vcpus": cores, "ram": megabytes, "disk": disk}


def _shown(machine: small_cloud.Small) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": machine.ref,
        "name": machine.name,
        "status": machine.state,
        "metadata": dict(machine.marks),
        "flavor": {"id": FLAVORS[machine.size][0]},
        "image": {"id": machine.image},
        "addresses": {"public": [{"addr": "203.0.113.11", "version": 4}]},
        "created": machine.born.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if machine.state == "ERROR":
        shown["fault"] = {"code": 500, "message": "No valid host was found."}
    return shown
