"""A Google Compute Engine of our own, with the routes and bodies of Google's own description.

Orders are accepted and come to something, or to nothing, in an operation; the same request id gets
the same operation; lists over all zones leave out a zone that cannot be reached and say so; disks
go with their machine where they were flagged.

Known limit: filters are read in the few forms that the driver writes; anything else is refused.
"""

import datetime
import itertools
import re
from collections.abc import Mapping
from typing import Any, Final

from runtime_kit import clock as clock_kit
from tests.support.clouds import gcp_description as description
from tests.support.clouds import gcp_lives as lives
from tests.support.clouds import gcp_oauth, server
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

PROJECT: Final = gcp_oauth.PROJECT
LINK: Final = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/"
ZONES: Final = (
    "us-central1-a",
    "us-central1-b",
    "us-central1-f",
    "europe-west1-b",
    "europe-west3-a",
)
SIZES: Final = {"e2-small": (2, 2048), "e2-medium": (2, 4096), "e2-standard-4": (4, 16384),
                "n2-standard-2": (2, 8192)}  # fmt: skip
TAKES_SECONDS: Final = 20.0
STATUS: Final = {
    "notFound": 404,
    "alreadyExists": 409,
    "forbidden": 403,
    "quotaExceeded": 403,
    "QUOTA_EXCEEDED": 403,
    "rateLimitExceeded": 403,
    "authError": 401,
    "conditionNotMet": 412,
    "ZONE_RESOURCE_POOL_EXHAUSTED": 503,
    "backendError": 503,
    "server_error": 504,
}
_TEST: Final = "cloudresourcemanager.projects.testIamPermissions"
_ELSEWHERE: Final = frozenset({_TEST, "serviceusage.services.get"})
_VERBS: Final = {"insert": "create", "aggregatedList": "list"}


class Refused(Exception):
    """The answer is an error with this reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Gcp:
    """The fake; serve it with `server.Served`."""

    def __init__(self, *, clock: clock_kit.Clock) -> None:
        self.clock = clock
        self.project = PROJECT
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.oauth = gcp_oauth.OAuth(self.now, lambda: self.script.clock)
        self.held: dict[str, lives.Thing] = {}
        self.operations: dict[str, lives.Operation] = {}
        self.missing_rights: set[str] = set()
        self.asked_rights: set[str] = set()
        self.unreachable: set[str] = set()  # zones
        self.full: dict[str, tuple[str, ...]] = {}  # sold-out zones, and those that have room
        self.crossing_is_refused = False  # deleting what is being made
        self.service = "ENABLED"
        self.quotas = {"CPUS": (1000.0, 0.0), "INSTANCES": (1000.0, 0.0),
                       "IN_USE_ADDRESSES": (1000.0, 0.0)}  # fmt: skip
        self.withdrawn: set[str] = set()
        self._count = itertools.count(1)
        for zone in ZONES:
            region = zone.rpartition("-")[0]
            self.put(f"regions/{region}/subnetworks/default", {"network": f"{LINK}x"})
        self.put("global/networks/default", {"autoCreateSubnetworks": True})

    # --- what a test does by hand --------------------------------------------------------------

    def now(self) -> datetime.datetime:
        """The fake's own time."""
        return self.script.now(self.clock)

    def settle(self) -> None:
        """Lets everything under way come to its end."""
        self._advance(until=None)

    def put(self, ref: str, body: Mapping[str, Any]) -> lives.Thing:
        """Puts a thing there at once."""
        scope, kind, name = _parts(ref)
        number = str(4_000_000_000_000_000_000 + next(self._count))
        made = lives.Thing(ref=ref, kind=kind, scope=scope, born=self.now(), body=dict(body))
        made.body |= {
            "id": number,
            "name": name,
            "selfLink": f"{LINK}{ref}",
            "creationTimestamp": self.now().isoformat(timespec="milliseconds"),
        }
        if scope.startswith("zones/"):
            made.body["zone"] = f"{LINK}{scope}"
        self.held[ref] = made
        lives.enter(self.ledger, made)
        return made

    def plant(self, *, name: str, tags: Mapping[str, str], zone: str = "us-central1-a") -> str:
        """A machine that somebody else made."""
        body = {
            "machineType": f"{LINK}zones/{zone}/machineTypes/e2-small",
            "labels": dict(tags),
            "status": "RUNNING",
            "disks": [],
            "networkInterfaces": [],
            "metadata": {"items": []},
        }
        return self.put(f"zones/{zone}/instances/{name}", body).ref

    # --- the server's side ---------------------------------------------------------------------

    def name_of(self, asked: server.Asked) -> str:
        """The call's name in the driver's table."""
        door = self.oauth.name_of(asked)
        found = description.route(asked) if not door else None
        return door or (f"{asked.method} {found[0]['id']}" if found is not None else "")

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work."""
        if name.endswith("oauth2.token"):
            return self.oauth.answer(asked)
        if not self.oauth.knows(asked.headers.get("authorization", "")):
            return self.unauthorized()
        self._advance(until=self.now())
        try:
            document = self._done(asked, async_fail)
        except Refused as refusal:
            return self.error(status=None, code=refusal.reason, message=refusal.message)
        return server.Reply(document=document)

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """An error in Google's form."""
        status = status or STATUS.get(code, 400)
        one = {"message": message, "domain": "global", "reason": code}
        error = {"code": status, "message": message, "errors": [one]}
        return server.Reply(status=status, document={"error": error})

    def unauthorized(self) -> server.Reply:
        """How a dead token is refused."""
        words = "Request had invalid authentication credentials."
        reply = self.error(status=401, code="authError", message=words)
        reply.document["error"]["status"] = "UNAUTHENTICATED"
        return reply

    def rate_limited(self) -> server.Reply:
        """A call too many: a 403 here."""
        return self.error(status=403, code="rateLimitExceeded", message="Rate Limit Exceeded")

    # --- routes --------------------------------------------------------------------------------

    def _done(self, asked: server.Asked, async_fail: script_kit.Armed | None) -> dict[str, Any]:
        found = description.route(asked)
        if found is None:
            raise Refused("notFound", "There is no such route.")
        method, parts, _ = found
        self._allow(method["id"])
        if method["id"] in _ELSEWHERE:
            return self._elsewhere(method["id"], asked)
        kind, _, verb = method["id"].removeprefix("compute.").partition(".")
        ref = asked.path.partition(f"/projects/{PROJECT}/")[2]
        if kind == "regions":
            return self._region(parts["region"])
        if verb.endswith("ist") and not kind.endswith("Operations"):
            is_whole = verb == "aggregatedList"
            return self._aggregated(kind, asked) if is_whole else self._list(kind, ref, asked)
        if kind.endswith("Operations"):
            return self._operation(verb, ref, asked)
        return self._of_one(verb, ref, asked, async_fail)

    def _elsewhere(self, method: str, asked: server.Asked) -> dict[str, Any]:
        if method == _TEST:
            wanted = asked.json()["permissions"]
            return {"permissions": [one for one in wanted if one not in self.missing_rights]}
        return {"name": asked.path.removeprefix("/v1/"), "state": self.service}

    def _of_one(
        self,
        verb: str,
        ref: str,
        asked: server.Asked,
        async_fail: script_kit.Armed | None,
    ) -> dict[str, Any]:
        if verb == "insert":
            return self._insert(ref, asked, async_fail)
        target, _, action = ref.rpartition("/") if verb not in {"get", "delete"} else (ref, "", "")
        there = self.held.get(target)
        is_lagging = there is not None and there.kind == "instances"
        lag = datetime.timedelta(seconds=self.script.describe_lag if is_lagging else 0)
        if there is None or (verb == "get" and self.now() < there.born + lag):
            raise Refused("notFound", f"The resource 'projects/{PROJECT}/{target}' was not found")
        if verb == "get":
            return lives.shown(self, there)
        return self._delete(there) if verb == "delete" else self._act(there, action, asked)

    def _insert(
        self, ref: str, asked: server.Asked, async_fail: script_kit.Armed | None
    ) -> dict[str, Any]:
        again = self._again(asked.first("requestId"), scope=ref)
        if again is not None:
            return again
        body = asked.json()
        target = f"{ref}/{body['name']}"
        there = self.held.get(target)
        if there is not None:
            words = f"The resource 'projects/{PROJECT}/{target}' already exists"
            raise Refused("alreadyExists", words)
        if ref.endswith("/instances"):
            lives.check_instance(self, ref, body)
        made = self.put(target, lives.made_of(self, ref, body))
        if made.kind == "instances":
            lives.make_disks(self, made)
        fails = async_fail
        zone = made.scope.removeprefix("zones/")
        if made.kind == "instances" and zone in self.full and fails is None:
            fails = script_kit.Armed(
                verb=script_kit.Verb.ASYNC_FAIL, code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
            )
        return self._started(made, "insert", request_id=asked.first("requestId"), fails=fails)

    def _delete(self, there: lives.Thing) -> dict[str, Any]:
        is_new = any(
            one.thing is there and one.verb == "insert" and not one.is_done
            for one in self.operations.values()
        )
        if is_new and self.crossing_is_refused:
            words = f"The resource 'projects/{PROJECT}/{there.ref}' is not ready"
            raise Refused("resourceNotReady", words)
        user = lives.user_of(self, there)
        if user is not None:
            words = f"The {there.kind} resource '{there.ref}' is already being used by '{user}'"
            raise Refused("resourceInUseByAnotherResource", words)
        if there.body.get("deletionProtection"):
            words = "Invalid resource usage: 'Resource cannot be deleted if it's protected "
            raise Refused("invalid", f"{words}against deletion.'")
        if there.kind == "instances":
            there.body["status"] = "STOPPING"
        return self._started(there, "delete")

    def _act(self, there: lives.Thing, action: str, asked: server.Asked) -> dict[str, Any]:
        if action == "serialPort":
            return {"contents": there.console, "start": "0", "next": str(len(there.console))}
        if action == "createSnapshot":
            body = asked.json()
            more = {
                "sourceDisk": f"{LINK}{there.ref}",
                "diskSizeGb": there.body.get("sizeGb", "20"),
            }
            ref = f"global/snapshots/{body['name']}"
            if ref in self.held:
                raise Refused("alreadyExists", f"{ref} already exists")
            made = self.put(ref, {**body, **more, "status": "READY"})
            return self._started(made, "createSnapshot")
        lives.act(self, there, action, asked)
        return self._started(there, action)

    def _operation(self, verb: str, ref: str, asked: server.Asked) -> dict[str, Any]:
        if verb == "list":
            rows = [one.shown() for one in self.operations.values() if one.ref.startswith(ref)]
            return {"items": [one for one in rows if lives.fits(asked.first("filter"), one)]}
        found = self.operations.get(ref)
        if found is None:
            raise Refused("notFound", f"The operation {ref} was not found")
        return found.shown()

    def _aggregated(self, kind: str, asked: server.Asked) -> dict[str, Any]:
        if kind == "machineTypes":
            rows = [(f"zones/{zone}", row) for zone in ZONES for row in self.sizes(zone)]
        else:
            rows = [
                (one.scope, lives.shown(self, one))
                for one in self.held.values()
                if one.kind == kind and self._is_listed(one)
            ]
        wanted = [row for row in rows if lives.fits(asked.first("filter"), row[1])]
        page, following = self._page(wanted, asked)
        items: dict[str, dict[str, Any]] = {f"zones/{zone}": {} for zone in ZONES}
        for scope, row in page:
            items.setdefault(scope, {}).setdefault(kind, []).append(row)
        for scope, inside in items.items():
            if scope.removeprefix("zones/") in self.unreachable:
                inside["warning"] = {"code": "UNREACHABLE", "message": f"{scope} is not reachable"}
            elif not inside:
                words = f"There are no results for scope '{scope}' on this page."
                inside["warning"] = {"code": "NO_RESULTS_ON_PAGE", "message": words}
        document: dict[str, Any] = {"items": items, **following}
        if self.unreachable:
            document["unreachables"] = [f"zones/{one}" for one in sorted(self.unreachable)]
        return document

    def _list(self, kind: str, ref: str, asked: server.Asked) -> dict[str, Any]:
        if kind == "zones":
            rows = [{"name": one, "status": "UP", "region": f"{LINK}regions/{one[:-2]}"}
                    for one in ZONES]  # fmt: skip
        else:
            rows = [
                lives.shown(self, one)
                for one in self.held.values()
                if one.ref.startswith(f"{ref}/") and self._is_listed(one)
            ]
        wanted = [row for row in rows if lives.fits(asked.first("filter"), row)]
        page, following = self._page(wanted, asked)
        return {"items": page, **following} if page else following

    def _page(self, rows: list[Any], asked: server.Asked) -> tuple[list[Any], dict[str, str]]:
        size = min(int(asked.first("maxResults", "500")), self.script.page_size or 500)
        start = int(asked.first("pageToken", "0"))
        following = {"nextPageToken": str(start + size)} if start + size < len(rows) else {}
        return rows[start : start + size], following

    def _region(self, name: str) -> dict[str, Any]:
        if name not in {zone.rpartition("-")[0] for zone in ZONES}:
            raise Refused("notFound", f"The resource 'regions/{name}' was not found")
        quotas = [{"metric": metric, "limit": limit, "usage": used}
                  for metric, (limit, used) in self.quotas.items()]  # fmt: skip
        return {"name": name, "status": "UP", "quotas": quotas}

    def sizes(self, zone: str) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "guestCpus": cores,
                "memoryMb": memory,
                "architecture": "X86_64",
                "zone": zone,
            }
            for name, (cores, memory) in SIZES.items()
            if name not in self.withdrawn
        ]

    # --- time and rights -----------------------------------------------------------------------

    def _again(self, request_id: str, *, scope: str) -> dict[str, Any] | None:
        if request_id and not re.fullmatch(
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", request_id
        ):
            raise Refused("invalid", "Invalid value for field 'requestId'. Must be a UUID.")
        for one in self.operations.values():
            if request_id and one.request_id == request_id and one.thing.ref.startswith(scope):
                return one.shown()
        return None

    def _started(
        self,
        thing: lives.Thing,
        verb: str,
        *,
        request_id: str = "",
        fails: script_kit.Armed | None = None,
    ) -> dict[str, Any]:
        number = next(self._count)
        ref = f"{thing.scope}/operations/operation-{number:013d}-{number:08x}"
        takes = TAKES_SECONDS if thing.kind == "instances" and verb in {"insert", "delete"} else 0.0
        operation = lives.Operation(
            ref=ref,
            thing=thing,
            verb=verb,
            number=str(6_000_000_000_000_000_000 + number),
            request_id=request_id,
            due=self.now() + datetime.timedelta(seconds=takes),
            fails=fails,
            link=LINK,
            begun=self.now(),
        )
        self.operations[ref] = operation
        return operation.shown()

    def _advance(self, *, until: datetime.datetime | None) -> None:
        for one in list(self.operations.values()):
            if not one.is_done and (until is None or one.due <= until):
                lives.finish(self, one)

    def forget(self, thing: lives.Thing) -> None:
        """It is gone."""
        self.held.pop(thing.ref, None)
        entry = self.ledger.machines.get(thing.ref) or self.ledger.things.get(thing.ref)
        if entry is not None:
            entry.died = self.now()

    def _is_listed(self, one: lives.Thing) -> bool:
        lag = datetime.timedelta(seconds=self.script.list_lag)
        zone = one.scope.removeprefix("zones/")
        return zone not in self.unreachable and self.now() >= one.born + lag

    def _allow(self, method: str) -> None:
        kind, _, verb = method.rpartition(".")
        if method == _TEST:
            return
        right = f"{kind}.{_VERBS.get(verb, verb)}"
        self.asked_rights.add(right)
        if right in self.missing_rights:
            words = f"Required '{right}' permission for 'projects/{PROJECT}'"
            raise Refused("forbidden", words)


def _parts(ref: str) -> tuple[str, str, str]:
    head, _, name = ref.rpartition("/")
    scope, _, kind = head.rpartition("/")
    return scope, kind, name
