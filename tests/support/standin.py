"""A Platform in memory that behaves: what is issued can be listed, withdrawn, and used once.

It answers requests as values, so that the SDK's and the CLI's tests need neither socket nor
process. Its answers are made from the models of `wire_protocol.admin`; that the real Platform
answers alike is what tests/integration shows. Not for: judging what the Platform does.
"""

import dataclasses
import datetime
import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import httpx
import pydantic

from tests.support import standin_cloud
from wire_protocol import admin, enrollment_token, ids, problems

NOW = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)
PIN = f"sha256:{'ab' * 32}"
Answer = tuple[int, Any]


class Refusal(Exception):
    """The stand-in says no, with a problem code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = problems.Problem(code=code, detail=detail, request_id="req-1")


@dataclasses.dataclass(kw_only=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


class StandIn:
    """The Platform. `seen` keeps every request; `faults` are what the next requests meet."""

    def __init__(self, *, page: int = 100) -> None:
        self.nodes: dict[str, admin.Node] = {}
        self.enrollments: dict[str, admin.Enrollment] = {}
        self.tokens: dict[str, admin.ApiToken] = {}
        self.entries: list[admin.ActionEntry] = []
        self.events: list[admin.Event] = []
        self.orders: list[admin.Order] = []
        self.becomes: list[tuple[str, str | None]] = []  # an order's next states, each with why
        self.attempts: list[admin.EnrollmentAttempt] = []
        self.cloud = standin_cloud.Cloud()
        self.seen: list[Seen] = []
        self.faults: list[Callable[[httpx.Request], httpx.Response]] = []
        self.page = page
        self.has_address = True
        self.has_gateway = True
        self.endings = 1_000_000  # how many streams of events end before the token does
        self._kept: dict[str, Answer] = {}

    def add_node(self, node_id: str, **fields: Any) -> admin.Node:
        """A node that is there."""
        self.nodes[node_id] = node(node_id, **fields)
        return self.nodes[node_id]

    def answer(self, request: httpx.Request) -> httpx.Response:
        """One request's answer, as an httpx transport gives it."""
        parts = urllib.parse.urlsplit(str(request.url))
        seen = Seen(
            method=request.method,
            path=parts.path.removeprefix("/api/v1"),
            query=urllib.parse.parse_qs(parts.query),
            headers=dict(request.headers),
            body=json.loads(request.content) if request.content else None,
        )
        self.seen.append(seen)
        if self.faults:
            return self.faults.pop(0)(request)
        if seen.path == "/events":
            self.endings -= 1
            if self.endings < 0:
                return problem(problems.Problem(code="not-permitted", detail="The token ended."))
            return response(200, self._stream(seen))
        try:
            status, body = self._once(seen)
        except (Refusal, standin_cloud.Refused) as refusal:
            return problem(refusal.problem)
        content = (
            body.model_dump_json(by_alias=True)
            if isinstance(body, pydantic.BaseModel)
            else json.dumps(body)
        )
        return response(status, content.encode())

    def _once(self, seen: Seen) -> Answer:
        key = seen.headers.get("idempotency-key")
        if key in self._kept:
            status, body = self._kept[key]
            update = {"token": None, "join_token": None, "command": None}
            again = {name: update[name] for name in update if name in type(body).model_fields}
            return status, body.model_copy(update={**again, "code": "token-already-shown"})
        answer = self._route(seen)
        if key is not None:
            self._kept[key] = answer
        return answer

    def _route(self, seen: Seen) -> Answer:
        first, *rest = seen.path.strip("/").split("/")
        handler = getattr(self, f"_{seen.method.lower()}_{first}", None)
        if handler is None:
            raise Refusal("not-found", f"There is no {seen.path}.")
        found: Answer = handler(seen, [urllib.parse.unquote(part) for part in rest])
        return found

    def _get_nodes(self, seen: Seen, rest: list[str]) -> Answer:
        if rest[1:] == ["orders"]:
            return self._get_orders(seen)
        if rest:
            return 200, self._node(rest[0])
        start = int(seen.query.get("cursor", ["0"])[0])
        chosen = list(self.nodes.values())[start : start + self.page]
        more = start + self.page < len(self.nodes)
        return 200, admin.NodeList(
            nodes=chosen,
            enrollments=[one for one in self.enrollments.values() if one.state == "pending"],
            next_cursor=str(start + self.page) if more else None,
        )

    def _patch_nodes(self, seen: Seen, rest: list[str]) -> Answer:
        old = self._node(rest[0])
        merged = {**old.labels, **seen.body["labels"]}
        labels = {key: value for key, value in merged.items() if value is not None}
        if not _check(seen):
            self.nodes[old.node_id] = old.model_copy(update={"labels": labels})
            return 200, self.nodes[old.node_id]
        return 200, _checked("label", old.node_id)

    def _delete_nodes(self, seen: Seen, rest: list[str]) -> Answer:
        old = self._node(rest[0])
        if rest[1:2] == ["orders"]:
            return _done(seen, "cancel", rest[2])
        if old.roles and "force" not in seen.query:
            raise Refusal("node-in-use", f"Work is placed on {old.node_id}.")
        if not _check(seen):
            self.nodes[old.node_id] = old.model_copy(update={"state": "removed"})
        return _done(seen, "remove", old.node_id)

    def _post_nodes(self, seen: Seen, rest: list[str]) -> Answer:
        node_id, verb = rest
        old = self._node(node_id)
        if verb == "orders":
            return self._post_orders(seen, node_id)
        words = {"maintenance": "maintenance", "drain": "drained", "resume": "active"}
        if not _check(seen):
            update: dict[str, Any] = {"scheduling": words.get(verb, old.scheduling)}
            self.nodes[node_id] = old.model_copy(update=update)
            if verb == "allow":
                del self.nodes[node_id]
        return _done(seen, verb, node_id)

    def _post_orders(self, seen: Seen, node_id: str) -> Answer:
        if _check(seen):
            return 200, _checked("order", node_id)
        self.orders.insert(0, order(node_id, sequence=len(self.orders) + 1, **seen.body))
        return 201, self.orders[0]

    def _get_orders(self, seen: Seen) -> Answer:
        """Each look at the newest order finds it in its next state."""
        limit = int(seen.query.get("limit", ["100"])[0])
        if self.becomes:
            state, detail = self.becomes.pop(0)
            update = {"state": state, "detail": detail}
            self.orders[0] = self.orders[0].model_copy(update=update)
        return 200, admin.OrderList(orders=self.orders[:limit])

    def _get_enrollments(self, seen: Seen, rest: list[str]) -> Answer:
        del seen
        if rest == ["audit"]:
            return 200, admin.AttemptList(attempts=self.attempts)
        return 200, admin.EnrollmentList(enrollments=list(self.enrollments.values()))

    def _post_enrollments(self, seen: Seen, rest: list[str]) -> Answer:
        del rest
        asked = admin.IssueRequest.model_validate(seen.body)
        pending = [
            one
            for one in self.enrollments.values()
            if one.node_id == asked.node_id and one.state == "pending"
        ]
        if pending and not asked.replace:
            raise Refusal("enrollment-pending", f"{asked.node_id} has an unused enrollment.")
        if _check(seen):
            return 200, _checked("issue", asked.node_id)
        for one in pending:
            self.enrollments[one.enrollment_id] = one.model_copy(update={"state": "replaced"})
        token = enrollment_token.new()
        self.enrollments[token.enrollment_id] = admin.Enrollment(
            enrollment_id=token.enrollment_id,
            node_id=asked.node_id,
            state="pending",
            infra="default",
            labels=asked.labels,
            sources=asked.from_,
            reenroll=False,
            created_at=NOW,
            created_by="uid:0",
            expires_at=NOW + datetime.timedelta(minutes=asked.ttl_minutes),
            ended_at=None,
        )
        return 201, admin.IssueAnswer(
            node_id=asked.node_id,
            enrollment_id=token.enrollment_id,
            token=token.text(),
            join_token="enj_abc" if self.has_address else None,
            expires_at=self.enrollments[token.enrollment_id].expires_at,
            platform_url="https://10.0.0.1:8444",
            gateway_url="https://10.0.0.1:8445" if self.has_gateway else None,
            pins=[PIN],
            command="enlist worker join - <<'END'\nenj_abc\nEND" if self.has_address else None,
        )

    def _delete_enrollments(self, seen: Seen, rest: list[str]) -> Answer:
        old = self.enrollments[rest[0]]
        if not _check(seen):
            self.enrollments[rest[0]] = old.model_copy(update={"state": "revoked"})
        return _done(seen, "withdraw", old.node_id)

    def _post_enroll(self, seen: Seen, rest: list[str]) -> Answer:
        del rest
        token = enrollment_token.parse(seen.body["token"])
        if token.enrollment_id not in self.enrollments:
            raise Refusal("enrollment-refused", "Enrollment refused.")
        return 201, {
            "node_id": seen.body["node_id"],
            "agent_id": f"agent-{seen.body['node_id']}",
            "generation": 1,
            "statement": "e30=",
            "signatures": [],
            "trust_keys": [{"key_id": "0123456789abcdef"}],
            "pins": [PIN],
            "reachable": False,
            "reachable_reason": "connection refused",
        }

    def _get_tokens(self, seen: Seen, rest: list[str]) -> Answer:
        del seen, rest
        return 200, admin.ApiTokenList(tokens=list(self.tokens.values()))

    def _post_tokens(self, seen: Seen, rest: list[str]) -> Answer:
        del rest
        try:
            asked = admin.CreateApiTokenRequest.model_validate(seen.body)
        except pydantic.ValidationError as error:
            raise Refusal("invalid", f"permissions: {error.errors()[0]['msg']}") from error
        if _check(seen):
            return 200, _checked("create", asked.name)
        token_id = f"{len(self.tokens):016x}"
        days = asked.ttl_days
        self.tokens[token_id] = admin.ApiToken(
            token_id=token_id,
            name=asked.name,
            permissions=list(asked.permissions),
            infra="default",
            created_at=NOW,
            created_by="uid:0",
            expires_at=None if days is None else NOW + datetime.timedelta(days=days),
            revoked_at=None,
            last_used_at=None,
        )
        return 201, admin.CreateApiTokenAnswer(token="ena_secret", record=self.tokens[token_id])

    def _delete_tokens(self, seen: Seen, rest: list[str]) -> Answer:
        if rest[0] not in self.tokens:
            raise Refusal("not-found", f"There is no token {rest[0]}.")
        if not _check(seen):
            update = {"revoked_at": NOW}
            self.tokens[rest[0]] = self.tokens[rest[0]].model_copy(update=update)
        return _done(seen, "revoke", rest[0])

    def _get_audit(self, seen: Seen, rest: list[str]) -> Answer:
        if rest == ["verify"]:
            return 200, admin.ChainVerdict(
                intact=True,
                entries=len(self.entries),
                first_seq=1,
                last_seq=len(self.entries),
                last_hash="00",
                broken_at=None,
                detail=f"The log is whole: {len(self.entries)} entries.",
            )
        chosen = [one for one in self.entries if one.actor in seen.query.get("actor", [one.actor])]
        return 200, admin.ActionList(entries=chosen)

    def _get_platform(self, seen: Seen, rest: list[str]) -> Answer:
        del seen, rest
        return 200, admin.Platform(
            platform_id="p-1",
            node_id="local",
            version="0.1.0",
            environment="dev",
            infra="default",
            nodes_enabled=True,
            enrollment_url="https://10.0.0.1:8444",
            pins=[PIN],
            certificate_sha256=PIN,
            gateway_url=None,
            gateway_pins=[],
            bundle_url=None,
            api_pins=[PIN],
            trust_keys=[
                admin.PublicTrustKey(
                    key_id="0123456789abcdef",
                    algorithm="Ed25519",
                    public_key="AA==",
                    not_before=NOW,
                    not_after=NOW + datetime.timedelta(days=365),
                    certificate_pem="",
                )
            ],
            epoch=1,
            serial=1,
        )

    def _post_platform(self, seen: Seen, rest: list[str]) -> Answer:
        return _done(seen, rest[0], "platform")

    def _get_cloud(self, seen: Seen, rest: list[str]) -> Answer:
        return self.cloud.get(rest, seen.query)

    def _put_cloud(self, seen: Seen, rest: list[str]) -> Answer:
        return self.cloud.put(rest, seen.body, check=_check(seen))

    def _post_cloud(self, seen: Seen, rest: list[str]) -> Answer:
        return self.cloud.post(rest, seen.body or {}, check=_check(seen))

    def _delete_cloud(self, seen: Seen, rest: list[str]) -> Answer:
        return self.cloud.delete(rest, seen.query, check=_check(seen))

    def _get_operations(self, seen: Seen, rest: list[str]) -> Answer:
        if not rest:
            return self.cloud.list_operations(seen.query)
        return self.cloud.get_operation(rest[0])

    def _post_operations(self, seen: Seen, rest: list[str]) -> Answer:
        return self.cloud.act(rest[0], rest[1], check=_check(seen))

    def _node(self, node_id: str) -> admin.Node:
        if node_id not in self.nodes:
            raise Refusal("not-found", f"There is no node {node_id}.")
        return self.nodes[node_id]

    def _stream(self, seen: Seen) -> bytes:
        after = int(seen.query.get("after", ["0"])[0])
        later = [event for event in self.events if event.seq > after]
        return b": here\n\n" + b"".join(
            b"id: %d\nevent: %s\ndata: %s\n\n"
            % (event.seq, event.kind.encode(), event.model_dump_json().encode())
            for event in later
        )


def problem(found: problems.Problem) -> httpx.Response:
    """A problem document as an answer."""
    return response(found.meaning.status, found.to_json())


def response(status: int, content: bytes) -> httpx.Response:
    """An answer that is yet to be read, as from a socket."""
    return httpx.Response(status, stream=httpx.ByteStream(content))


def refusing(code: str, detail: str = "No.", retry_after: int | None = None) -> Any:
    """A fault: the next request is answered with this problem."""
    found = problems.Problem(code=code, detail=detail, request_id="req-1", retry_after=retry_after)
    return lambda _request: problem(found)


def node(node_id: str, **fields: Any) -> admin.Node:
    """A ready node."""
    usual: dict[str, Any] = {
        "node_id": node_id,
        "agent_id": ids.agent_id_of(ids.NodeId(node_id)),
        "state": "ready",
        "scheduling": "active",
        "connectivity": "listen",
        "certificate_sha256": PIN,
        "pin": PIN,
        "generation": 1,
        "version": "0.1.0",
        "compatibility": "current",
        "labels": {},
        "reported_labels": {},
        "roles": [],
        "capacity": None,
        "infra": "default",
        "enrolled_at": NOW,
        "last_seen_at": NOW,
        "clock_offset_ms": 12,
        "address": "10.0.0.2:8443",
        "provider_state": None,
        "heartbeat_age_ms": None,
        "probe_answered_at": NOW,
        "reason": None,
    }
    return admin.Node(**{**usual, **fields})


def order(node_id: str, **fields: Any) -> admin.Order:
    """An order that waits for its node."""
    ttl = datetime.timedelta(seconds=fields.pop("ttl_seconds", 3600))
    return admin.Order.model_validate(
        {
            "order_id": "00112233445566ff",
            "node_id": node_id,
            "kind": "renew",
            "state": "queued",
            "infra": "default",
            "epoch": 1,
            "sequence": 1,
            "purpose": None,
            "created_at": NOW,
            "created_by": "uid:0",
            "expires_at": NOW + ttl,
            "tries": 0,
            "accepted_at": None,
            "ended_at": None,
            "detail": None,
            **fields,
        }
    )


def event(seq: int, kind: str = "node.ready") -> admin.Event:
    """An event."""
    return admin.Event(
        seq=seq, at=NOW, kind=kind, subject="web-1", infra="default", data={"a": "b"}
    )


def attempt(**fields: Any) -> admin.EnrollmentAttempt:
    """A line of the log of attempts."""
    usual: dict[str, Any] = {
        "outcome": "refused",
        "reason": "token-unknown",
        "node_id": "web-1",
        "version": None,
        "count": 3,
        "first_at": NOW,
        "last_at": NOW,
    }
    return admin.EnrollmentAttempt(**{**usual, **fields})


def entry(seq: int, **fields: Any) -> admin.ActionEntry:
    """A line of the action log."""
    usual: dict[str, Any] = {
        "seq": seq,
        "at": NOW,
        "actor": "uid:0",
        "action": "nodes.remove",
        "target": "node:web-1",
        "operation": None,
        "infra": "default",
        "environment": "dev",
        "mfa_verified": False,
        "details": {},
        "previous_hash": "00",
        "hash": "01",
    }
    return admin.ActionEntry(**{**usual, **fields})


def _check(seen: Seen) -> bool:
    return seen.query.get("check") == ["true"]


def _checked(action: str, target: str) -> admin.Checked:
    return admin.Checked(changes=[admin.Change(action=action, target=target, detail="as asked")])


def _done(seen: Seen, action: str, target: str) -> Answer:
    checked = _checked(action, target)
    return 200, checked if _check(seen) else admin.Done(changes=checked.changes)
