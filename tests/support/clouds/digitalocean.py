"""A DigitalOcean of our own: droplets, their actions, and all that is particular about them.

Tags arrive late, GPU droplets stand in no list but their own, an accepted order can come to
nothing, quota is a 422 among many, pages are short, and deleting by tag deletes all that carry it.
"""

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from runtime_kit import clock as clock_kit
from tests.support.clouds import digitalocean_children as children_kit
from tests.support.clouds import digitalocean_routes as routes
from tests.support.clouds import digitalocean_shapes as shapes
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit
from tests.support.clouds import server

TOKEN: Final = "dop_v1_" + "0d" * 32  # shaped like theirs, and nobody's
PAGE: Final = 20
LONGEST_PAGE: Final = 200


@dataclasses.dataclass(slots=True, kw_only=True)
class Droplet:
    """One of them. `fails`: its create action will come to nothing."""

    ref: int
    name: str
    size: str
    region: str
    image: dict[str, Any]
    tags: list[str]
    born: datetime.datetime
    action: int
    status: str = "new"
    fails: bool = False
    is_dying: bool = False


class DigitalOcean:
    """The fake; serve it with `server.Served`."""

    def __init__(self, *, clock: clock_kit.Clock) -> None:
        self.clock = clock
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.droplets: dict[int, Droplet] = {}
        self.actions: dict[int, dict[str, Any]] = {}
        self.droplet_limit = 100
        self.tag_lag = 0.0  # seconds after which a new droplet carries its tags
        self.withdrawn: set[str] = set()
        self.missing_scopes: set[str] = set()  # names of calls that answer 403
        self.children = children_kit.Children(self)
        self._refs = itertools.count(3_164_444)
        self._action_refs = itertools.count(36_804_636)

    # --- what a test does by hand --------------------------------------------------------------

    def settle(self) -> None:
        """Lets everything under way come to its end."""
        for droplet in list(self.droplets.values()):
            if droplet.is_dying or (droplet.fails and droplet.status == "new"):
                if droplet.fails:
                    self.actions[droplet.action]["status"] = "errored"
                self._forget(droplet)
            elif droplet.status == "new":
                droplet.status = "active"
                self.actions[droplet.action]["status"] = "completed"
        self.children.settle()

    def plant(
        self, *, name: str, tags: Sequence[str], size: str = "s-1vcpu-2gb", region: str = "nyc3"
    ) -> int:
        """A droplet that somebody else made."""
        return self._make(
            {"name": name, "size": size, "region": region, "image": "debian-12-x64"},
            tags=list(tags),
            fails=False,
        ).ref

    # --- the server's side ---------------------------------------------------------------------

    def name_of(self, asked: server.Asked) -> str:
        """The call's name in the driver's table."""
        for method, pattern, name in routes.ROUTES:
            if method == asked.method and pattern.match(asked.path):
                return name
        return ""

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return self.unauthorized()
        if name in self.missing_scopes:
            return self.error(status=None, code="forbidden", message="")
        route = next((row for row in routes.ROUTES if row[2] == name), None)
        if route is None:
            return self.error(status=None, code="not_found", message="")
        found = route[1].match(asked.path)
        groups = found.groups() if found is not None else ()
        handlers: dict[str, Callable[[], server.Reply]] = {
            "GET /v2/account": self._account,
            "GET /v2/sizes": lambda: self.page(asked, "sizes", self._sizes()),
            "GET /v2/images": lambda: self.page(
                asked, "images", [shapes.image(slug) for slug in shapes.IMAGES]
            ),
            "GET /v2/images/{id}": lambda: self._one("image", self.children.image(groups[0])),
            "GET /v2/droplets": lambda: self._list(asked),
            "POST /v2/droplets": lambda: self._create(asked, async_fail),
            "DELETE /v2/droplets": lambda: self._delete_tagged(asked),
            "GET /v2/droplets/{id}": lambda: self._get(int(groups[0])),
            "DELETE /v2/droplets/{id}": lambda: self._delete(int(groups[0])),
            "POST /v2/droplets/{id}/actions": lambda: self._act(int(groups[0]), asked),
            "GET /v2/droplets/{id}/destroy_with_associated_resources": lambda: (
                self.children.companions(int(groups[0]))
            ),
            "GET /v2/actions/{id}": lambda: self._one("action", self.actions.get(int(groups[0]))),
        }
        handler = handlers.get(name)
        return handler() if handler else self.children.answer(asked, name=name, groups=groups)

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """DigitalOcean's error; our own words for its sentences are translated."""
        own = routes.REFUSALS.get(code)
        if own is not None:
            status, code, message = own[0] if status is None else status, own[1], own[2]
        return server.Reply(
            status=status or 400,
            document={"id": code, "message": message, "request_id": "4d9d8375-3c56-4925-a3e7"},
        )

    def unauthorized(self) -> server.Reply:
        """A token that is none."""
        return self.error(status=401, code="Unauthorized", message="Unable to authenticate you")

    def rate_limited(self) -> server.Reply:
        """A call too many."""
        return self.error(status=429, code="too_many_requests", message="API rate limit exceeded")

    # --- shared with the children --------------------------------------------------------------

    def now(self) -> datetime.datetime:
        """The fake's own time."""
        return self.script.now(self.clock)

    def new_action(
        self, kind: str, *, resource: int | None, resource_type: str, region: str
    ) -> dict[str, Any]:
        """An action that has begun."""
        ref = next(self._action_refs)
        self.actions[ref] = shapes.action(
            ref=ref,
            status="in-progress",
            kind=kind,
            resource=resource,
            resource_type=resource_type,
            at=region,
            started=self.now(),
        )
        return self.actions[ref]

    def page(self, asked: server.Asked, key: str, rows: Sequence[Any]) -> server.Reply:
        """One page of a list, with the links to the next."""
        most = min(LONGEST_PAGE, int(asked.first("per_page", str(PAGE))))
        if self.script.page_size is not None:
            most = min(most, self.script.page_size)
        number = int(asked.first("page", "1"))
        begin = (number - 1) * most
        pages: dict[str, str] = {}
        if begin + most < len(rows):
            base = f"https://api.digitalocean.com{asked.path}?page="
            pages = {
                "next": f"{base}{number + 1}",
                "last": f"{base}{(len(rows) + most - 1) // most}",
            }
        return server.Reply(
            document={
                key: list(rows[begin : begin + most]),
                "links": {"pages": pages} if pages else {},
                "meta": {"total": len(rows)},
            },
            headers={"ratelimit-limit": "5000", "ratelimit-remaining": "4987"},
        )

    def shown(self, droplet: Droplet) -> dict[str, Any]:
        """A droplet's document as of now."""
        age = (self.now() - droplet.born).total_seconds()
        return shapes.droplet(
            ref=droplet.ref,
            name=droplet.name,
            status=droplet.status,
            of=droplet.size,
            at=droplet.region,
            picture=droplet.image,
            tags=droplet.tags if age >= self.tag_lag else [],
            born=droplet.born,
            locked=droplet.is_dying or droplet.status == "new",
            volumes=self.children.volumes_of(droplet.ref),
        )

    # --- droplets ------------------------------------------------------------------------------

    def _account(self) -> server.Reply:
        account = {
            "droplet_limit": self.droplet_limit,
            "floating_ip_limit": 5,
            "email": "ops@example.net",
            "uuid": "b6fr89dbf6d9156cace5f3c78dc9851d957381ef",
            "email_verified": True,
            "status": "active",
            "status_message": "",
        }
        return server.Reply(document={"account": account})

    def _sizes(self) -> list[dict[str, Any]]:
        return [
            shapes.size(
                slug,
                regions=[] if slug in self.withdrawn else list(shapes.REGIONS),
                available=slug not in self.withdrawn,
            )
            for slug in shapes.SIZES
        ]

    def _one(self, key: str, document: dict[str, Any] | None) -> server.Reply:
        if document is None:
            return self.error(status=None, code="not_found", message="")
        return server.Reply(document={key: document})

    def _list(self, asked: server.Asked) -> server.Reply:
        tag, name, kind = (asked.first(one) for one in ("tag_name", "name", "type"))
        if tag and (name or kind == "gpus"):
            return self.error(
                status=422,
                code="unprocessable_entity",
                message="tag_name cannot be combined with name or type",
            )
        rows = []
        for droplet in self.droplets.values():
            if (self.now() - droplet.born).total_seconds() < self.script.list_lag:
                continue
            shown = self.shown(droplet)
            if shapes.is_gpu(droplet.size) is not (kind == "gpus"):
                continue
            if tag and tag not in shown["tags"]:
                continue
            if name and name.lower() != droplet.name.lower():
                continue
            rows.append(shown)
        return self.page(asked, "droplets", rows)

    def _create(self, asked: server.Asked, fail: script_kit.Armed | None) -> server.Reply:
        order = asked.json()
        slug, region = order["size"], order.get("region", "nyc3")
        if slug not in shapes.SIZES or slug in self.withdrawn or region not in shapes.REGIONS:
            return self.error(status=None, code="bad_size", message="")
        if shapes.image_of(order["image"]) is None and self.children.image(order["image"]) is None:
            return self.error(
                status=422, code="unprocessable_entity", message="You specified an invalid image"
            )
        if len(self.droplets) >= self.droplet_limit:
            return self.error(status=None, code="droplet_limit", message="")
        droplet = self._make(order, tags=order.get("tags") or [], fails=fail is not None)
        machine = self.ledger.machines[str(droplet.ref)]
        machine.user_data = (order.get("user_data") or "").encode()
        held = self.children.keys
        machine.keys = [held[str(one)]["public_key"] for one in order.get("ssh_keys") or []]
        machine.passwords = [] if machine.keys else ["do-mailed-password-77"]
        for ref in order.get("volumes") or []:
            self.children.hold(ref, droplet.ref)
        link = {
            "id": droplet.action,
            "rel": "create",
            "href": f"https://api.digitalocean.com/v2/actions/{droplet.action}",
        }
        return server.Reply(
            status=202,
            document={"droplet": self.shown(droplet), "links": {"actions": [link]}},
        )

    def _make(self, order: dict[str, Any], *, tags: list[str], fails: bool) -> Droplet:
        ref, region, size = next(self._refs), order.get("region", "nyc3"), order["size"]
        action = self.new_action("create", resource=ref, resource_type="droplet", region=region)
        picture = shapes.image_of(order["image"]) or self.children.image(order["image"])
        assert picture is not None
        droplet = Droplet(
            ref=ref,
            name=order["name"],
            size=size,
            region=region,
            image=picture,
            tags=tags,
            born=self.now(),
            action=action["id"],
            fails=fails,
        )
        self.droplets[ref] = droplet
        self.ledger.machines[str(ref)] = ledger_kit.Machine(
            ref=str(ref),
            name=droplet.name,
            tags=dict(one.split(":", 1) for one in tags if ":" in one),
            region=region,
            size=size,
            born=droplet.born,
            hourly_micros=shapes.hourly_micros(size),
        )
        return droplet

    def _get(self, ref: int) -> server.Reply:
        droplet = self.droplets.get(ref)
        if droplet is None:
            return self.error(status=None, code="not_found", message="")
        if (self.now() - droplet.born).total_seconds() < self.script.describe_lag:
            return self.error(status=None, code="not_found", message="")
        return server.Reply(document={"droplet": self.shown(droplet)})

    def _delete(self, ref: int) -> server.Reply:
        droplet = self.droplets.get(ref)
        if droplet is None:
            return self.error(status=None, code="not_found", message="")
        droplet.is_dying = True
        return server.Reply(status=204)

    def _delete_tagged(self, asked: server.Asked) -> server.Reply:
        for droplet in self.droplets.values():
            if asked.first("tag_name") in droplet.tags:
                droplet.is_dying = True
        return server.Reply(status=204)

    def _forget(self, droplet: Droplet) -> None:
        del self.droplets[droplet.ref]
        self.ledger.machines[str(droplet.ref)].died = self.now()
        self.children.let_go(droplet.ref)

    def _act(self, ref: int, asked: server.Asked) -> server.Reply:
        droplet, order = self.droplets.get(ref), asked.json()
        if droplet is None:
            return self.error(status=None, code="not_found", message="")
        action = self.new_action(
            order["type"], resource=ref, resource_type="droplet", region=droplet.region
        )
        if order["type"] == "snapshot":
            self.children.begin_snapshot(droplet.ref, order["name"], action, droplet.region)
        else:
            action["status"] = "completed"
        return server.Reply(status=201, document={"action": action})
