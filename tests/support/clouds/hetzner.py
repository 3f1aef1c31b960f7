"""A fake Hetzner Cloud: one project with servers, actions, volumes, addresses, keys, firewalls.

It behaves by itself as the fact sheet says: names unique in the project, actions that take their
time, machines that vanish a while after their deletion, a budget of calls that refills, a token
that reads or reads and writes. What goes wrong besides is the script's.
"""

import collections
import dataclasses
import datetime
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime_kit import clock as clock_kit
from tests.support.clouds import hetzner_shapes as shapes
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit
from tests.support.clouds import server

STATUS = {
    "unauthorized": 401,
    "forbidden": 403,
    "token_readonly": 403,
    "resource_limit_exceeded": 403,
    "not_found": 404,
    "uniqueness_error": 409,
    "conflict": 409,
    "resource_in_use": 409,
    "resource_unavailable": 412,
    "placement_error": 412,
    "invalid_input": 422,
    "server_not_stopped": 422,
    "locked": 423,
    "protected": 423,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "maintenance": 503,
    "unavailable": 504,
}
HOURLY_CALLS = 3600
MOST_PER_PAGE = 50
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_NUMBER = re.compile(r"(?<=/)\d+(?=/|$)")
_SELECTOR = re.compile(r"([A-Za-z0-9._/-]+)==?([A-Za-z0-9._-]*)")

Json = dict[str, Any]


class Refused(Exception):
    """What is answered with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclasses.dataclass(slots=True)
class Action:
    """One action; it ends at `until`, well, or with `error`."""

    number: int
    command: str
    started: datetime.datetime
    until: datetime.datetime
    resources: list[tuple[str, int]]
    error: tuple[str, str] | None = None
    ended: Callable[[], None] | None = None


class FakeHetzner:
    """One project. `tokens` says what each token may: `rw` or `ro`."""

    def __init__(self, *, clock: clock_kit.Clock, action_seconds: float = 5.0) -> None:
        self.clock = clock
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.tokens = {
            "hz-token-of-the-tests-0123456789": "rw",
            "hz-reading-token-0123456789": "ro",
        }
        self.action_seconds = action_seconds
        self.server_limit = 5000
        self.sold_out: set[tuple[str, str]] = set()
        self.ends: dict[str, datetime.datetime] = {}  # of server types
        self.gone_types: set[str] = set()
        self.budget = float(HOURLY_CALLS)
        self.on_list: Callable[[int], None] | None = None  # told the page before it is made
        self._budget_at = clock.monotonic()
        self._numbers = itertools.count(1_000_001)
        self.servers: dict[int, Json] = {}
        self.volumes: dict[int, Json] = {}
        self.primary_ips: dict[int, Json] = {}
        self.ssh_keys: dict[int, Json] = {}
        self.firewalls: dict[int, Json] = {}
        self.networks: dict[int, Json] = {}
        self.snapshots: dict[int, Json] = {}
        self.actions: dict[int, Action] = {}
        self._busy: dict[str, datetime.datetime] = {}
        self._routes: Mapping[str, Callable[[server.Asked], server.Reply]] = {
            "GET /v1/servers": lambda asked: self._list(asked, "servers", self._seen_servers()),
            "GET /v1/servers/{id}": self._get_server,
            "DELETE /v1/servers/{id}": self._delete_server,
            "POST /v1/servers/{id}/actions/reboot": self._reboot,
            "POST /v1/servers/{id}/actions/create_image": self._snapshot,
            "GET /v1/actions": self._get_actions,
            "GET /v1/server_types": self._get_types,
            "GET /v1/pricing": lambda _: server.Reply(document={"pricing": shapes.pricing()}),
            "GET /v1/images": self._get_images,
            "GET /v1/images/{id}": self._get_image,
            "DELETE /v1/images/{id}": lambda asked: self._drop(asked, self.snapshots),
            "GET /v1/networks": lambda asked: self._list(asked, "networks", self.networks),
            "POST /v1/placement_groups": self._placement_group,
            "GET /v1/volumes": lambda asked: self._list(asked, "volumes", self.volumes),
            "GET /v1/volumes/{id}": lambda asked: self._get(asked, "volume", self.volumes),
            "POST /v1/volumes": self._create_volume,
            "DELETE /v1/volumes/{id}": lambda asked: self._drop(asked, self.volumes),
            "POST /v1/volumes/{id}/actions/attach": self._attach_volume,
            "POST /v1/volumes/{id}/actions/detach": self._detach_volume,
            "GET /v1/primary_ips": lambda asked: self._list(asked, "primary_ips", self.primary_ips),
            "GET /v1/primary_ips/{id}": lambda asked: self._get(
                asked, "primary_ip", self.primary_ips
            ),
            "POST /v1/primary_ips": self._create_address,
            "DELETE /v1/primary_ips/{id}": lambda asked: self._drop(asked, self.primary_ips),
            "POST /v1/primary_ips/{id}/actions/assign": self._assign,
            "POST /v1/primary_ips/{id}/actions/unassign": self._unassign,
            "GET /v1/ssh_keys": lambda asked: self._list(asked, "ssh_keys", self.ssh_keys),
            "GET /v1/ssh_keys/{id}": lambda asked: self._get(asked, "ssh_key", self.ssh_keys),
            "POST /v1/ssh_keys": self._create_key,
            "DELETE /v1/ssh_keys/{id}": lambda asked: self._drop(asked, self.ssh_keys),
            "GET /v1/firewalls": lambda asked: self._list(asked, "firewalls", self.firewalls),
            "GET /v1/firewalls/{id}": lambda asked: self._get(asked, "firewall", self.firewalls),
            "POST /v1/firewalls": self._create_firewall,
            "POST /v1/firewalls/{id}/actions/set_rules": self._set_rules,
            "DELETE /v1/firewalls/{id}": lambda asked: self._drop(asked, self.firewalls),
        }

    # --- what the server asks for -----------------------------------------------------------

    def name_of(self, asked: server.Asked) -> str:
        """The route, its numbers replaced."""
        name = f"{asked.method} {_NUMBER.sub('{id}', asked.path)}"
        return name if name in self._routes or name == "POST /v1/servers" else ""

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work of one request."""
        self.settle()
        if self.on_list is not None and "page" in asked.query:
            self.on_list(int(asked.first("page")))
        if not self._take_budget():
            return self.rate_limited()
        may = self.tokens.get(asked.headers.get("authorization", "").removeprefix("Bearer "))
        if may is None:
            return self.unauthorized()
        if may == "ro" and asked.method != "GET":
            return self.error(status=None, code="token_readonly", message="read only")
        if not name:
            return self.error(status=None, code="not_found", message="no such route")
        try:
            if name == "POST /v1/servers":
                reply = self._create_server(asked, async_fail)
            else:
                reply = self._routes[name](asked)
        except Refused as refused:
            reply = self.error(status=None, code=refused.code, message=refused.message)
        return dataclasses.replace(reply, headers={**reply.headers, **self._budget_headers()})

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """An error in the provider's form."""
        document = {"error": {"code": code, "message": message, "details": None}}
        return server.Reply(status=status or STATUS.get(code, 400), document=document)

    def unauthorized(self) -> server.Reply:
        """How a token that is none is refused."""
        return self.error(
            status=None, code="unauthorized", message="the token you provided is invalid"
        )

    def rate_limited(self) -> server.Reply:
        """How a call too many is refused."""
        reply = self.error(status=None, code="rate_limit_exceeded", message="limit of 3600 an hour")
        return dataclasses.replace(reply, headers=self._budget_headers())

    # --- time -------------------------------------------------------------------------------

    @property
    def now(self) -> datetime.datetime:
        """The fake's own time."""
        return self.script.now(self.clock)

    def settle(self) -> None:
        """Ends whatever is over by now."""
        for action in self.actions.values():
            if action.ended is not None and action.until <= self.now:
                ended, action.ended = action.ended, None
                ended()

    def _take_budget(self) -> bool:
        elapsed, self._budget_at = self.clock.monotonic() - self._budget_at, self.clock.monotonic()
        self.budget = min(float(HOURLY_CALLS), self.budget + elapsed)  # one a second, steadily
        if self.budget < 1:
            return False
        self.budget -= 1
        return True

    def _budget_headers(self) -> dict[str, str]:
        missing = HOURLY_CALLS - self.budget
        return {
            "ratelimit-limit": str(HOURLY_CALLS),
            "ratelimit-remaining": str(int(self.budget)),
            "ratelimit-reset": str(int(self.now.timestamp() + missing)),
        }

    def _act(
        self,
        command: str,
        *resources: tuple[str, int],
        seconds: float | None = None,
        ended: Callable[[], None] | None = None,
        error: tuple[str, str] | None = None,
    ) -> Action:
        lasts = datetime.timedelta(seconds=self.action_seconds if seconds is None else seconds)
        action = Action(
            number=next(self._numbers),
            command=command,
            started=self.now,
            until=self.now + lasts,
            resources=list(resources),
            error=error,
            ended=ended,
        )
        self.actions[action.number] = action
        return action

    def _shown(self, action: Action) -> Json:
        is_over = action.until <= self.now
        status = "running" if not is_over else "error" if action.error else "success"
        return shapes.action(
            action.number,
            command=action.command,
            status=status,
            started=action.started,
            finished=action.until if is_over else None,
            resources=action.resources,
            error=action.error if is_over else None,
        )

    # --- lists ------------------------------------------------------------------------------

    def _list(self, asked: server.Asked, many: str, held: Mapping[int, Json]) -> server.Reply:
        return self._listed(asked, many, held.values())

    def _listed(self, asked: server.Asked, many: str, held: Iterable[Json]) -> server.Reply:
        number = int(asked.first("page", "1"))
        found = [one for one in held if self._is_asked_for(asked, one)]
        asked_for = min(int(asked.first("per_page", "25")), MOST_PER_PAGE)
        per_page = min(asked_for, self.script.page_size or asked_for)
        shown, meta = shapes.page(found, number=number, per_page=per_page)
        return server.Reply(document={many: shown, "meta": meta})

    def _is_asked_for(self, asked: server.Asked, one: Json) -> bool:
        if "name" in asked.query and one["name"] != asked.first("name"):
            return False
        if "fingerprint" in asked.query and one["fingerprint"] != asked.first("fingerprint"):
            return False
        if "type" in asked.query and one["type"] not in asked.query["type"]:
            return False
        if "architecture" in asked.query and one["architecture"] not in asked.query["architecture"]:
            return False
        for term in filter(None, asked.first("label_selector").split(",")):
            matched = _SELECTOR.fullmatch(term)
            if matched is None:
                raise Refused("invalid_input", f"label_selector: expected comma in {term!r}")
            if one["labels"].get(matched[1]) != matched[2]:
                return False
        return True

    def _seen_servers(self) -> Mapping[int, Json]:
        return {
            number: one
            for number, one in self.servers.items()
            if self._age(one) >= self.script.list_lag
        }

    def _age(self, one: Json) -> float:
        born = datetime.datetime.fromisoformat(one["created"])
        return (self.now - born).total_seconds()

    def _get(self, asked: server.Asked, key: str, held: Mapping[int, Json]) -> server.Reply:
        return server.Reply(document={key: self._one(asked, held)})

    def _one(self, asked: server.Asked, held: Mapping[int, Json]) -> Json:
        number = int(asked.path.split("/")[3])
        if number not in held:
            raise Refused("not_found", f"{number} was not found")
        return held[number]

    # --- servers ----------------------------------------------------------------------------

    def _create_server(
        self, asked: server.Asked, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        told: Json = asked.json()
        place = told.get("location", "fsn1")
        self._judge_server(told, place)
        number = next(self._numbers)
        addresses = self._addresses_for(told, place, number)
        image = self._image(told)
        one: Json = {
            "id": number,
            "name": told["name"],
            "status": "initializing",
            "created": shapes.stamp(self.now),
            "public_net": {**addresses, "floating_ips": [], "firewalls": []},
            "private_net": [
                {"network": net, "ip": f"10.0.0.{number % 250 + 2}", "alias_ips": []}
                | {"mac_address": "86:00:00:00:00:01"}
                for net in told.get("networks", [])
            ],
            "server_type": shapes.server_type(told["server_type"]),
            "datacenter": shapes.datacenter(place),
            "location": shapes.location(place),
            "image": image,
            "iso": None,
            "rescue_enabled": False,
            "locked": False,
            "backup_window": None,
            "outgoing_traffic": None,
            "ingoing_traffic": None,
            "included_traffic": 20 * 10**12,
            "protection": {"delete": False, "rebuild": False},
            "labels": dict(told.get("labels", {})),
            "volumes": list(told.get("volumes", [])),
            "load_balancers": [],
            "primary_disk_size": image["disk_size"],
            "placement_group": None,
        }
        self.servers[number] = one
        for volume in one["volumes"]:
            self.volumes[volume]["server"] = number
        for row in told.get("firewalls", []):
            self._apply(row["firewall"], number)
        self.ledger.machines[str(number)] = ledger_kit.Machine(
            ref=str(number),
            name=told["name"],
            tags=one["labels"],
            region=place,
            size=told["server_type"],
            born=self.now,
            user_data=str(told.get("user_data", "")).encode(),
            hourly_micros=round(float(shapes.TYPES[told["server_type"]][4]) * 1_000_000),
        )
        error = (async_fail.code, async_fail.message) if async_fail is not None else None

        def ended() -> None:
            if error is not None:
                self._vanish(number)
            elif one["status"] == "initializing":
                one["status"] = "running"

        action = self._act("create_server", ("server", number), ended=ended, error=error)
        after = self._act("start_server", ("server", number), error=error)
        return server.Reply(
            status=201,
            document={
                "server": one,
                "action": self._shown(action),
                "next_actions": [self._shown(after)],
                "root_password": None if told.get("ssh_keys") else "hz-root-password-9f8e7d",
            },
        )

    def _judge_server(self, told: Json, place: str) -> None:
        name = str(told["name"])
        if not _NAME.fullmatch(name):
            raise Refused("invalid_input", f"invalid input in field 'name': {name!r}")
        for key, value in told.get("labels", {}).items():
            if value and not _LABEL.fullmatch(value):
                raise Refused("invalid_input", f"invalid label value for {key}: {value!r}")
        busy = self._busy.get(name)
        if (busy is not None and busy > self.now) or any(
            one["name"] == name for one in self.servers.values()
        ):
            raise Refused("uniqueness_error", "server name is already used")
        self._judge_place(told, place)
        if len(self.servers) >= self.server_limit:
            raise Refused("resource_limit_exceeded", "server limit exceeded")
        if (told["server_type"], place) in self.sold_out:
            raise Refused("resource_unavailable", "error during placement")

    def _judge_place(self, told: Json, place: str) -> None:
        kind = told["server_type"]
        if kind not in shapes.TYPES or kind in self.gone_types or self._is_over(kind):
            raise Refused("invalid_input", "unsupported server type")
        if place not in [one["name"] for one in shapes.server_type(kind)["locations"]]:
            raise Refused("invalid_input", "unsupported location for server type")
        if len(str(told.get("user_data", "")).encode()) > 32 * 1024:
            raise Refused("invalid_input", "invalid input in field 'user_data': too long")
        self._image(told)
        for ref in told.get("volumes", []):
            if ref not in self.volumes:
                raise Refused("not_found", f"volume {ref} not found")
            if self.volumes[ref]["location"]["name"] != place:
                raise Refused("invalid_input", "volume is in another location")

    def _is_over(self, kind: str) -> bool:
        return kind in self.ends and self.ends[kind] <= self.now

    def _image(self, told: Json) -> Json:
        wanted, kind = str(told["image"]), told["server_type"]
        for one in [*self._system_images(), *self.snapshots.values()]:
            architecture = "arm" if kind.startswith("cax") else "x86"
            if one["architecture"] == architecture and wanted in {one["name"], str(one["id"])}:
                return one
        raise Refused("invalid_input", "image not found")

    def _addresses_for(self, told: Json, place: str, number: int) -> Json:
        public = told.get("public_net", {})
        found: Json = {"ipv4": None, "ipv6": None}
        for kind in ("ipv4", "ipv6"):
            if not public.get(f"enable_{kind}", True):
                continue
            ref = public.get(kind)
            if ref is not None:
                if ref not in self.primary_ips:
                    raise Refused("not_found", f"primary_ip {ref} not found")
                held = self.primary_ips[ref]
                if held["location"]["name"] != place:
                    raise Refused("invalid_input", "primary_ip_datacenter_mismatch")
                held["assignee_id"] = number
            else:
                held = self._primary_ip(
                    kind, name=f"primary_ip-{number}-{kind}", place=place, auto_delete=True
                )
                held["assignee_id"] = number
            pointer: Any = "static.example" if kind == "ipv4" else []
            found[kind] = {
                "id": held["id"],
                "ip": held["ip"],
                "blocked": False,
                "dns_ptr": pointer,
            }
        return found

    def _get_server(self, asked: server.Asked) -> server.Reply:
        one = self._one(asked, self.servers)
        if self._age(one) < self.script.describe_lag:
            raise Refused("not_found", "server not found")
        return server.Reply(document={"server": one})

    def _delete_server(self, asked: server.Asked) -> server.Reply:
        one = self._one(asked, self.servers)
        if one["protection"]["delete"]:
            raise Refused("protected", "server deletion is protected")
        number = int(one["id"])
        one["status"] = "deleting"
        action = self._act("delete_server", ("server", number), ended=lambda: self._vanish(number))
        return server.Reply(document={"action": self._shown(action)})

    def vanish(self, ref: str) -> None:
        """Takes a server away behind everybody's back."""
        self._vanish(int(ref))

    def _vanish(self, number: int) -> None:
        one = self.servers.pop(number, None)
        if one is None:
            return
        self.ledger.machines[str(number)].died = self.now
        if self.script.name_busy:
            self._busy[one["name"]] = self.now + datetime.timedelta(seconds=self.script.name_busy)
        for ref, held in list(self.primary_ips.items()):
            if held["assignee_id"] == number:
                held["assignee_id"] = None
                if held["auto_delete"]:
                    self._end_thing(self.primary_ips, ref)
        for volume in self.volumes.values():
            if volume["server"] == number:
                volume["server"] = None
        for firewall in self.firewalls.values():
            firewall["applied_to"] = [
                row for row in firewall["applied_to"] if row["server"]["id"] != number
            ]

    def _reboot(self, asked: server.Asked) -> server.Reply:
        one = self._one(asked, self.servers)
        action = self._act("reboot_server", ("server", one["id"]))
        return server.Reply(status=201, document={"action": self._shown(action)})

    def _get_actions(self, asked: server.Asked) -> server.Reply:
        wanted = [int(one) for one in asked.query.get("id", [])]
        found = [self.actions[one] for one in wanted if one in self.actions]
        return server.Reply(document={"actions": [self._shown(one) for one in found]})

    # --- the catalogue ----------------------------------------------------------------------

    def _get_types(self, asked: server.Asked) -> server.Reply:
        types = [
            shapes.server_type(name, ends=self.ends.get(name), sold_out=self.sold_out)
            for name in shapes.TYPES
            if name not in self.gone_types
        ]
        return self._listed(asked, "server_types", types)

    def _system_images(self) -> list[Json]:
        return [
            shapes.image(number, name=name, architecture=architecture, disk=disk, created=self.now)
            for number, (name, architecture, disk) in shapes.IMAGES.items()
        ]

    def _get_images(self, asked: server.Asked) -> server.Reply:
        return self._listed(asked, "images", [*self._system_images(), *self.snapshots.values()])

    def _get_image(self, asked: server.Asked) -> server.Reply:
        held = {int(one["id"]): one for one in self._system_images()} | self.snapshots
        return self._get(asked, "image", held)

    def _placement_group(self, asked: server.Asked) -> server.Reply:
        told = asked.json() if asked.body else {}
        if "name" not in told or "type" not in told:
            raise Refused("invalid_input", "invalid input in fields 'name', 'type'")
        raise Refused("forbidden", "no test makes placement groups")

    # --- what hangs on servers --------------------------------------------------------------

    def _create_volume(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.volumes)
        if told["size"] < 10:
            raise Refused("invalid_input", "invalid input in field 'size'")
        number = next(self._numbers)
        self.volumes[number] = {
            "id": number,
            "name": told["name"],
            "created": shapes.stamp(self.now),
            "format": None,
            "labels": dict(told.get("labels", {})),
            "linux_device": f"/dev/disk/by-id/scsi-0HC_Volume_{number}",
            "location": shapes.location(told["location"]),
            "protection": {"delete": False},
            "server": None,
            "size": told["size"],
            "status": "available",
        }
        self._note(number, "volume", self.volumes[number], told["location"])
        action = self._act("create_volume", ("volume", number))
        document = {
            "volume": self.volumes[number],
            "action": self._shown(action),
            "next_actions": [],
        }
        return server.Reply(status=201, document=document)

    def _attach_volume(self, asked: server.Asked) -> server.Reply:
        one, told = self._one(asked, self.volumes), asked.json()
        target = self.servers.get(told["server"])
        if target is None:
            raise Refused("not_found", "server not found")
        if target["location"]["name"] != one["location"]["name"]:
            raise Refused("invalid_input", "server and volume are in different locations")
        if one["server"] is not None:
            raise Refused("volume_already_attached", "volume is already attached")
        one["server"] = told["server"]
        target["volumes"].append(one["id"])
        self.ledger.things[str(one["id"])].attached_to = str(told["server"])
        action = self._act("attach_volume", ("volume", one["id"]))
        return server.Reply(status=201, document={"action": self._shown(action)})

    def _detach_volume(self, asked: server.Asked) -> server.Reply:
        one = self._one(asked, self.volumes)
        if one["server"] in self.servers:
            self.servers[one["server"]]["volumes"].remove(one["id"])
        one["server"] = None
        self.ledger.things[str(one["id"])].attached_to = None
        action = self._act("detach_volume", ("volume", one["id"]))
        return server.Reply(status=201, document={"action": self._shown(action)})

    def _create_address(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.primary_ips)
        made = self._primary_ip(
            told["type"],
            name=told["name"],
            place=told["location"],
            auto_delete=told.get("auto_delete", False),
            labels=told.get("labels", {}),
        )
        return server.Reply(status=201, document={"primary_ip": made})

    def _primary_ip(
        self,
        kind: str,
        *,
        name: str,
        place: str,
        auto_delete: bool,
        labels: Mapping[str, str] | None = None,
    ) -> Json:
        number = next(self._numbers)
        made: Json = {
            "id": number,
            "name": name,
            "type": kind,
            "ip": f"192.0.2.{number % 250 + 1}" if kind == "ipv4" else f"2001:db8:{number:x}::/64",
            "assignee_id": None,
            "assignee_type": "server",
            "auto_delete": auto_delete,
            "blocked": False,
            "created": shapes.stamp(self.now),
            "datacenter": shapes.datacenter(place),
            "location": shapes.location(place),
            "dns_ptr": [],
            "labels": dict(labels or {}),
            "protection": {"delete": False},
        }
        self.primary_ips[number] = made
        self._note(number, "address", made, place, hourly=800 if kind == "ipv4" else 0)
        return made

    def _assign(self, asked: server.Asked) -> server.Reply:
        one, told = self._one(asked, self.primary_ips), asked.json()
        target = self.servers.get(told["assignee_id"])
        if target is None:
            raise Refused("not_found", "server not found")
        if target["status"] != "off":
            raise Refused("server_not_stopped", "server must be off")
        one["assignee_id"] = told["assignee_id"]
        action = self._act("assign_primary_ip", ("primary_ip", one["id"]))
        return server.Reply(status=201, document={"action": self._shown(action)})

    def _unassign(self, asked: server.Asked) -> server.Reply:
        one = self._one(asked, self.primary_ips)
        target = self.servers.get(one["assignee_id"] or 0)
        if target is not None and target["status"] != "off":
            raise Refused("server_not_stopped", "server must be off")
        one["assignee_id"] = None
        action = self._act("unassign_primary_ip", ("primary_ip", one["id"]))
        return server.Reply(status=201, document={"action": self._shown(action)})

    def _snapshot(self, asked: server.Asked) -> server.Reply:
        one, told = self._one(asked, self.servers), asked.json()
        number = next(self._numbers)
        self.snapshots[number] = shapes.image(
            number,
            name=None,
            architecture=one["server_type"]["architecture"],
            disk=one["server_type"]["disk"],
            created=self.now,
            kind=told.get("type", "snapshot"),
            description=told.get("description", ""),
            labels=told.get("labels", {}),
            of=(one["id"], one["name"]),
        )
        self._note(number, "snapshot", self.snapshots[number], one["location"]["name"])
        action = self._act("create_image", ("server", one["id"]), ("image", number))
        document = {"image": self.snapshots[number], "action": self._shown(action)}
        return server.Reply(status=201, document=document)

    def _create_key(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.ssh_keys)
        fingerprint = shapes.fingerprint(told["public_key"])
        if any(one["fingerprint"] == fingerprint for one in self.ssh_keys.values()):
            raise Refused("uniqueness_error", "SSH key with the same fingerprint already exists")
        number = next(self._numbers)
        self.ssh_keys[number] = {
            "id": number,
            "name": told["name"],
            "fingerprint": fingerprint,
            "public_key": told["public_key"],
            "labels": dict(told.get("labels", {})),
            "created": shapes.stamp(self.now),
        }
        self._note(number, "ssh-key", self.ssh_keys[number], "")
        return server.Reply(status=201, document={"ssh_key": self.ssh_keys[number]})

    def _create_firewall(self, asked: server.Asked) -> server.Reply:
        told: Json = asked.json()
        self._judge_name(told, self.firewalls)
        number = next(self._numbers)
        self.firewalls[number] = {
            "id": number,
            "name": told["name"],
            "labels": dict(told.get("labels", {})),
            "created": shapes.stamp(self.now),
            "rules": _whole(told.get("rules", [])),
            "applied_to": [],
        }
        self._note(number, "security-group", self.firewalls[number], "")
        document = {"firewall": self.firewalls[number], "actions": []}
        return server.Reply(status=201, document=document)

    def _set_rules(self, asked: server.Asked) -> server.Reply:
        one = self._one(asked, self.firewalls)
        one["rules"] = _whole(asked.json()["rules"])
        action = self._act("set_firewall_rules", ("firewall", one["id"]))
        return server.Reply(status=201, document={"actions": [self._shown(action)]})

    def _apply(self, firewall: int, number: int) -> None:
        if firewall not in self.firewalls:
            raise Refused("not_found", f"firewall {firewall} not found")
        self.firewalls[firewall]["applied_to"].append({"type": "server", "server": {"id": number}})
        self.servers[number]["public_net"]["firewalls"].append(
            {"id": firewall, "status": "applied"}
        )

    def _drop(self, asked: server.Asked, held: dict[int, Json]) -> server.Reply:
        one = self._one(asked, held)
        in_use = one.get("server") or one.get("assignee_id") or one.get("applied_to")
        if in_use:
            raise Refused("resource_in_use", "resource is in use")
        if one.get("protection", {}).get("delete"):
            raise Refused("protected", "deletion is protected")
        self._end_thing(held, one["id"])
        return server.Reply(status=204)

    def _end_thing(self, held: dict[int, Json], number: int) -> None:
        del held[number]
        self.ledger.things[str(number)].died = self.now

    def _judge_name(self, told: Json, held: Mapping[int, Json]) -> None:
        if any(one["name"] == told["name"] for one in held.values()):
            raise Refused("uniqueness_error", "name is already used")

    def _note(self, number: int, kind: str, one: Json, place: str, *, hourly: int = 0) -> None:
        self.ledger.things[str(number)] = ledger_kit.Thing(
            ref=str(number),
            kind=kind,
            name=one["name"] or one.get("description", ""),
            tags=one["labels"],
            region=place,
            born=self.now,
            hourly_micros=hourly,
        )

    def mutations(self) -> collections.Counter[str]:
        """How often each changing call came."""
        return collections.Counter(
            one.name for one in self.ledger.seen if one.method not in {"GET", "HEAD"}
        )


def _whole(rules: list[Json]) -> list[Json]:
    empty: Json = {"description": None, "port": None, "destination_ips": [], "source_ips": []}
    return [empty | rule for rule in rules]
