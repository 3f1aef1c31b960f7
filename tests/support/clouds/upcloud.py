"""An UpCloud of our own: every document is a recorded one with our values put in.

Servers begin in maintenance, must be stopped before they are deleted, may pay no heed to a soft
stop, and take with them all that is attached if asked to.
"""

import copy
import datetime
import itertools
import re
import uuid
from collections.abc import Callable
from typing import Any, Final

from runtime_kit import clock as clock_kit
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import recordings, server
from tests.support.clouds import script as script_kit
from tests.support.clouds import upcloud_children as children_kit

TOKEN: Final = "ucat_" + "01HUPCLOUDTOKENOFNOBODY" * 2
TEMPLATE: Final = "01000000-0000-4000-8000-000020070100"

_ROUTES: Final = tuple(
    (method, re.compile(f"^{pattern}/?$"), f"{method} {name}")
    for method, pattern, name in (
        ("GET", r"/1\.3/account", "/1.3/account"),
        ("GET", r"/1\.3/plan", "/1.3/plan"),
        ("GET", r"/1\.3/zone", "/1.3/zone"),
        ("GET", r"/1\.3/price", "/1.3/price"),
        ("GET", r"/1\.3/server", "/1.3/server"),
        ("POST", r"/1\.3/server", "/1.3/server"),
        ("GET", r"/1\.3/server/([^/]+)", "/1.3/server/{uuid}"),
        ("DELETE", r"/1\.3/server/([^/]+)", "/1.3/server/{uuid}"),
        ("POST", r"/1\.3/server/([^/]+)/stop", "/1.3/server/{uuid}/stop"),
        ("POST", r"/1\.3/server/([^/]+)/restart", "/1.3/server/{uuid}/restart"),
        *children_kit.ROUTES,
    )
)
_STATUS: Final = {
    "AUTHENTICATION_FAILED": 401,
    "ACTION_FORBIDDEN": 403,
    "SERVER_CORE_LIMIT_REACHED": 403,
    "INSUFFICIENT_CREDITS": 402,
    "SERVER_NOT_FOUND": 404,
    "STORAGE_NOT_FOUND": 404,
    "IP_ADDRESS_NOT_FOUND": 404,
    "SERVER_STATE_ILLEGAL": 409,
    "STORAGE_STATE_ILLEGAL": 409,
    "SERVER_RESOURCES_UNAVAILABLE": 409,
    "ZONE_NOT_FOUND": 404,
}
_ONCE: Final = ("password", "progress", "username")
_HOST: Final = 5_872_304_771


class UpCloud:
    """The fake; serve it with `server.Served`."""

    def __init__(self, *, clock: clock_kit.Clock) -> None:
        self.clock = clock
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.servers: dict[str, dict[str, Any]] = {}
        self.born: dict[str, datetime.datetime] = {}
        self.ends_in: dict[str, str] = {}  # the state in which a maintenance ends
        self.heeds_soft_stops = True
        self.ignores_paging = False
        self.core_limit = 100
        self.credits = 10_000.0
        self.withdrawn: set[str] = set()
        self.children = children_kit.Children(self)
        self._numbers = itertools.count(1)

    # --- what a test does by hand --------------------------------------------------------------

    def settle(self) -> None:
        """Lets maintenance end."""
        for ref, one in self.servers.items():
            if one["state"] == "maintenance":
                one["state"] = self.ends_in.get(ref, "started")

    def plant(self, *, name: str, labels: list[dict[str, str]], zone: str = "fi-hel1") -> str:
        """A server that somebody else made."""
        order = {
            "title": name,
            "hostname": name,
            "zone": zone,
            "plan": "1xCPU-2GB",
            "labels": {"label": labels},
            "storage_devices": {
                "storage_device": [{"action": "clone", "storage": TEMPLATE, "title": "theirs"}]
            },
        }
        return str(self._make(order)["uuid"])

    # --- the server's side ---------------------------------------------------------------------

    def name_of(self, asked: server.Asked) -> str:
        """The call's name in the driver's table."""
        for method, pattern, name in _ROUTES:
            if method == asked.method and pattern.match(asked.path):
                return name
        return ""

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return self.unauthorized()
        route = next((row for row in _ROUTES if row[2] == name), None)
        found = None if route is None else route[1].match(asked.path)
        groups = () if found is None else found.groups()
        handlers: dict[str, Callable[[], server.Reply]] = {
            "GET /1.3/account": self._account,
            "GET /1.3/plan": self._plans,
            "GET /1.3/zone": lambda: _recorded("getzones", "/1.3/zone"),
            "GET /1.3/price": self._prices,
            "GET /1.3/server": lambda: self._list(asked),
            "POST /1.3/server": lambda: self._create(asked, async_fail),
            "GET /1.3/server/{uuid}": lambda: self._get(groups[0]),
            "DELETE /1.3/server/{uuid}": lambda: self._delete(groups[0], asked),
            "POST /1.3/server/{uuid}/stop": lambda: self._stop(groups[0], asked),
            "POST /1.3/server/{uuid}/restart": lambda: self._restart(groups[0]),
        }
        handler = handlers.get(name)
        return handler() if handler else self.children.answer(asked, name=name, groups=groups)

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """UpCloud's error."""
        return server.Reply(
            status=status or _STATUS.get(code, 400),
            document={"error": {"error_code": code, "error_message": message or code}},
        )

    def unauthorized(self) -> server.Reply:
        """A token that is none."""
        return self.error(
            status=None, code="AUTHENTICATION_FAILED", message="Authentication failed."
        )

    def rate_limited(self) -> server.Reply:
        """A call too many."""
        return self.error(status=429, code="RATE_LIMIT", message="Too many requests.")

    # --- shared with the children --------------------------------------------------------------

    def now(self) -> datetime.datetime:
        """The fake's own time."""
        return self.script.now(self.clock)

    def new_uuid(self, beginning: str) -> str:
        """An id of UpCloud's kind: servers begin with 00, storages with 01."""
        plain = str(uuid.UUID(int=next(self._numbers), version=4))
        return beginning + plain[len(beginning) :]

    def cut(self, asked: server.Asked, rows: list[Any]) -> list[Any]:
        """The part of a list that was asked for."""
        if self.ignores_paging:
            return rows
        most = min(100, int(asked.first("limit", "100")))
        begin = int(asked.first("offset", "0"))
        if self.script.page_size is not None:  # a page that is cut shorter than asked for
            most = min(most, self.script.page_size)
        return rows[begin : begin + most]

    # --- servers -------------------------------------------------------------------------------

    def _account(self) -> server.Reply:
        limits = {"cores": self.core_limit, "memory": 307_200, "public_ipv4": 100}
        account = {"credits": self.credits, "username": "enlist", "resource_limits": limits}
        return server.Reply(document={"account": account})

    def _plans(self) -> server.Reply:
        told = copy.deepcopy(recordings.first("getplans", "GET", "/1.3/plan"))
        rows = told["plans"]["plan"]
        told["plans"]["plan"] = [row for row in rows if row["name"] not in self.withdrawn]
        return server.Reply(document=told)

    def _prices(self) -> server.Reply:
        return _recorded("getpricezones", "/1.3/price")

    def _list(self, asked: server.Asked) -> server.Reply:
        shown = recordings.first("getserverswithfilters", "GET", "/1.3/server/?")
        keys = shown["servers"]["server"][0].keys()
        rows = [
            {key: one.get(key) for key in keys}
            for ref, one in self.servers.items()
            if (self.now() - self.born[ref]).total_seconds() >= self.script.list_lag
            and all(_has(one, wanted) for wanted in asked.query.get("label", []))
        ]
        return server.Reply(document={"servers": {"server": self.cut(asked, rows)}})

    def _create(self, asked: server.Asked, fail: script_kit.Armed | None) -> server.Reply:
        order = asked.json()["server"]
        if order.get("metadata") != "yes":
            return self.error(status=400, code="METADATA_DISABLED_ON_CLOUD-INIT", message="")
        zones = recordings.first("getzones", "GET", "/1.3/zone")["zones"]["zone"]
        if order["zone"] not in {one["id"] for one in zones}:
            return self.error(status=None, code="ZONE_NOT_FOUND", message="")
        plans = recordings.first("getplans", "GET", "/1.3/plan")["plans"]["plan"]
        plan = next((one for one in plans if one["name"] == order["plan"]), None)
        if plan is None or plan["name"] in self.withdrawn:
            return self.error(status=404, code="PLAN_NOT_FOUND", message="")
        used = sum(int(one["core_number"]) for one in self.servers.values())
        if used + plan["core_number"] > self.core_limit:
            return self.error(status=None, code="SERVER_CORE_LIMIT_REACHED", message="")
        made = self._make(order, cores=plan["core_number"], memory=plan["memory_amount"])
        if fail is not None:
            self.ends_in[made["uuid"]] = "error"
        # the answer to an order alone tells these, the password even where none was asked for
        recorded = recordings.first("createdeleteserverandstorage", "POST", "/1.3/server")["server"]
        once = {key: recorded[key] for key in _ONCE}
        return server.Reply(status=202, document={"server": made | once})

    def _make(self, order: dict[str, Any], *, cores: int = 1, memory: int = 2048) -> dict[str, Any]:
        recorded = recordings.first("createdeleteserverandstorage", "POST", "/1.3/server")
        made: dict[str, Any] = copy.deepcopy(recorded["server"])
        ref = self.new_uuid("00")
        for key in _ONCE:
            del made[key]
        made |= {key: order[key] for key in ("title", "hostname", "zone", "plan", "labels")}
        made |= {
            "uuid": ref,
            "state": "maintenance",
            "host": _HOST,
            "metadata": order.get("metadata", "no"),
            "core_number": str(cores),
            "memory_amount": str(memory),
            "created": int(self.now().timestamp()),
            "storage_devices": {"storage_device": []},
        }
        for device in order["storage_devices"]["storage_device"]:
            self.children.join(made, device)
        self.servers[ref], self.born[ref] = made, self.now()
        self.ledger.machines[ref] = ledger_kit.Machine(
            ref=ref,
            name=made["title"],
            tags={one["key"]: one["value"] for one in made["labels"]["label"]},
            region=made["zone"],
            size=made["plan"],
            born=self.now(),
            user_data=order.get("user_data", "").encode(),
            hourly_micros=_hourly_micros(made["zone"], made["plan"]),
            passwords=["up-password-4b1c"] if _makes_a_password(order) else [],
            keys=list(order.get("login_user", {}).get("ssh_keys", {}).get("ssh_key", [])),
        )
        return made

    def _get(self, ref: str) -> server.Reply:
        found = self.servers.get(ref)
        if found is None or (
            (self.now() - self.born[ref]).total_seconds() < self.script.describe_lag
        ):
            return self.error(status=None, code="SERVER_NOT_FOUND", message="")
        return server.Reply(document={"server": found})

    def _stop(self, ref: str, asked: server.Asked) -> server.Reply:
        found = self.servers.get(ref)
        if found is None:
            return self.error(status=None, code="SERVER_NOT_FOUND", message="")
        if found["state"] != "started":
            return self.error(status=None, code="SERVER_STATE_ILLEGAL", message="")
        before = copy.deepcopy(found)  # recorded: the answer shows the state from before
        if asked.json()["stop_server"]["stop_type"] == "hard" or self.heeds_soft_stops:
            found["state"] = "stopped"
        return server.Reply(document={"server": before})

    def _restart(self, ref: str) -> server.Reply:
        found = self.servers.get(ref)
        if found is None:
            return self.error(status=None, code="SERVER_NOT_FOUND", message="")
        if found["state"] != "started":
            return self.error(status=None, code="SERVER_STATE_ILLEGAL", message="")
        return server.Reply(document={"server": found})

    def _delete(self, ref: str, asked: server.Asked) -> server.Reply:
        found = self.servers.get(ref)
        if found is None:
            return self.error(status=None, code="SERVER_NOT_FOUND", message="")
        if found["state"] not in {"stopped", "error"}:
            return self.error(status=None, code="SERVER_STATE_ILLEGAL", message="")
        del self.servers[ref]
        self.ledger.machines[ref].died = self.now()
        self.children.server_is_gone(
            found,
            with_storages=asked.first("storages") == "1",
            backups=asked.first("backups") or "keep",
        )
        return server.Reply(status=204)


def _recorded(cassette: str, path: str) -> server.Reply:
    return server.Reply(document=recordings.first(cassette, "GET", path))


def _makes_a_password(order: dict[str, Any]) -> bool:
    """What UpCloud does unless told otherwise: one for the user, sent by mail."""
    login = order.get("login_user", {})
    return login.get("create_password") != "no" or order.get("password_delivery") != "none"


def _has(one: dict[str, Any], wanted: str) -> bool:
    key, is_pair, value = wanted.partition("=")
    pairs = {label["key"]: label["value"] for label in one["labels"]["label"]}
    return key in pairs and (not is_pair or pairs[key] == value)


def _hourly_micros(zone: str, plan: str) -> int:
    zones = recordings.first("getpricezones", "GET", "/1.3/price")["prices"]["zone"]
    told = next(one for one in zones if one["name"] == zone)[f"server_plan_{plan}"]
    return round(float(told["price"]) * 10_000)
