"""A Linode of our own, as libcloud speaks to it (API v4)."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from provisioning import naming
from provisioning.libcloud_drivers import linode as linode_driver
from tests.support.clouds import server, small_cloud

TOKEN: Final = "lin-token-of-nobody-0123456789abcdef"
REGIONS: Final = ("us-east", "eu-central", "us-west")
TYPES: Final = {
    "g6-standard-1": (1, 2048, 51_200, 0.018, 12),
    "g6-standard-2": (2, 4096, 81_920, 0.036, 24),
}
IMAGES: Final = ("linode/debian12", "linode/debian13", "linode/ubuntu24.04")
LONGEST_TAG: Final = 50
_REASONS: Final = {
    "quota": (400, "Account Limit reached. Please open a support ticket."),
    "capacity": (400, "This region is currently unavailable: no capacity for this plan."),
    "catalogue": (400, "A valid plan type by that ID was not found: not available in region."),
    "locked": (409, "Linode busy."),
}


class Linode(small_cloud.SmallCloud):
    """The fake; serve it with `server.Served`."""

    routes = small_cloud.routes(
        ("GET", r"/v4/profile", "/v4/profile"),
        ("GET", r"/v4/linode/types", "/v4/linode/types"),
        ("GET", r"/v4/regions", "/v4/regions"),
        ("GET", r"/v4/images", "/v4/images"),
        ("GET", r"/v4/linode/instances", "/v4/linode/instances"),
        ("POST", r"/v4/linode/instances", "/v4/linode/instances"),
        ("GET", r"/v4/linode/instances/(\d+)", "/v4/linode/instances/{id}"),
        ("DELETE", r"/v4/linode/instances/(\d+)", "/v4/linode/instances/{id}"),
        ("POST", r"/v4/linode/instances/(\d+)/reboot", "/v4/linode/instances/{id}/reboot"),
    )
    begun = "provisioning"
    running = "running"

    def is_proved(self, asked: server.Asked) -> bool:
        return asked.headers.get("authorization") == f"Bearer {TOKEN}"

    def tags(self, marks: Any) -> Mapping[str, str]:
        owner = linode_driver.owner_of(marks)
        return {} if owner is None else naming.tags_of(owner)

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        known = _REASONS.get(code)
        reason = known[1] if known else f"{code}: {message}"
        return server.Reply(
            status=status or (known[0] if known else 400), document={"errors": [{"reason": reason}]}
        )

    def handlers(
        self, asked: server.Asked, groups: tuple[str, ...], *, fails: bool
    ) -> Mapping[str, Callable[[], server.Reply]]:
        return {
            "GET /v4/profile": lambda: server.Reply(
                document={"username": "ops", "email": "ops@example.net"}
            ),
            "GET /v4/linode/types": lambda: self._page(
                asked, [_type(*pair) for pair in TYPES.items()]
            ),
            "GET /v4/regions": lambda: self._page(asked, [{"id": one} for one in REGIONS]),
            "GET /v4/images": lambda: self._page(asked, [{"id": one} for one in IMAGES]),
            "GET /v4/linode/instances": lambda: self._page(asked, list(map(_shown, self.listed()))),
            "POST /v4/linode/instances": lambda: self._create(asked, fails=fails),
            "GET /v4/linode/instances/{id}": lambda: self._get(groups[0]),
            "DELETE /v4/linode/instances/{id}": lambda: (
                self.remove(groups[0]) or server.Reply(document={})
            ),
            "POST /v4/linode/instances/{id}/reboot": lambda: (
                server.Reply(document={}) if self.seen(groups[0]) else self.not_found()
            ),
        }

    def _create(self, asked: server.Asked, *, fails: bool) -> server.Reply:
        order = asked.json()
        if order["type"] not in TYPES or order["region"] not in REGIONS:
            return self.error(status=None, code="catalogue", message="")
        if not order.get("root_pass"):
            return self.error(status=400, code="", message="root_pass is required")
        if any(not 3 <= len(tag) <= LONGEST_TAG for tag in order["tags"]):
            return self.error(
                status=400, code="", message="Tags must be between 3 and 50 characters"
            )
        if any(one.name == order["label"] for one in self.machines.values()):
            return self.error(
                status=400, code="", message="Label must be unique among your linodes"
            )
        machine = self.make(
            name=order["label"],
            region=order["region"],
            size=order["type"],
            image=order["image"],
            marks=order["tags"],
            user_data=base64.b64decode(order["metadata"]["user_data"], validate=True),
            fails=fails,
        )
        # The root password is the caller's own: neither answered nor mailed.
        self.ledger.machines[machine.ref].keys += order.get("authorized_keys") or []
        return server.Reply(document=_shown(machine))

    def _get(self, ref: str) -> server.Reply:
        machine = self.seen(ref)
        return self.not_found() if machine is None else server.Reply(document=_shown(machine))

    def _page(self, asked: server.Asked, rows: list[dict[str, Any]]) -> server.Reply:
        size = int(asked.first("page_size", "100"))
        if self.script.page_size is not None:
            size = min(size, self.script.page_size)
        page = int(asked.first("page", "1"))
        return server.Reply(
            document={
                "data": rows[(page - 1) * size : page * size],
                "page": page,
                "pages": max(1, (len(rows) + size - 1) // size),
                "results": len(rows),
            }
        )


def _type(name: str, what: tuple[int, int, int, float, int]) -> dict[str, Any]:
    cores, megabytes, disk, hourly, monthly = what
    return {
        "id": name,
        "label": name,
        "vcpus": cores,
        "memory": megabytes,
        "disk": disk,
        "price": {"hourly": hourly, "monthly": monthly},
    }


def _shown(machine: small_cloud.Small) -> dict[str, Any]:
    return {
        "id": int(machine.ref),
        "label": machine.name,
        "region": machine.region,
        "type": machine.size,
        "image": machine.image,
        "status": "deleting" if machine.is_dying else machine.state,
        "tags": list(machine.marks),
        "ipv4": ["203.0.113.7"],
        "ipv6": "2600:3c00::f03c:91ff:fe24:e3b5/128",
        "created": machine.born.strftime("%Y-%m-%dT%H:%M:%S"),
    }
