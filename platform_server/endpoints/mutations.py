"""Runs a change once: committed, rehearsed, or answered from what a former try left.

An idempotency key is written in the transaction of the change it stands for, with the answer, for
24 hours and per principal. The row is inserted before the work, so that two tries at once meet at
its primary key and one waits for the other on either store.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import pydantic

from platform_server.endpoints import calls, refusals, routes
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import admin

KEEP_SECONDS: Final = 24 * 3600
KEY_PATTERN: Final = "^[!-~]{1,128}$"
_SHOWN_ONCE: Final = "token-already-shown"

Work = Callable[[contract.Tx], Awaitable[calls.Changed]]


class Mutation:
    """The `run` of one call."""

    def __init__(
        self,
        store: contract.Store,
        *,
        clock: clock_kit.Clock,
        route: routes.Route,
        target: str,
        principal: str,
        body: pydantic.BaseModel | None,
        check: bool,
        key: str | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._route = route
        self._target = target
        self._principal = principal
        self._body = body
        self._check = check
        self._key = key

    async def __call__(self, work: Work) -> calls.Reply:
        """Commits the work, or rehearses it; raises what the work raises."""
        if self._check:
            changed = await self._store.rehearse(work)
            return calls.Reply(body=admin.Checked(changes=list(changed.changes)), status=200)
        if self._key is None:
            return self._reply_of(await self._store.transact(work))
        return await self._store.transact(lambda tx: self._once(tx, work=work))

    async def _once(self, tx: contract.Tx, *, work: Work) -> calls.Reply:
        now = clock_kit.to_micros(self._clock.now())
        hashes = json.dumps(field_hashes(self._body), sort_keys=True).encode()
        await tx.execute(
            "DELETE FROM idempotency WHERE principal = ? AND key = ? AND created_at < ?",
            self._principal,
            self._key,
            now - KEEP_SECONDS * 1_000_000,
        )
        won = await tx.execute(
            "INSERT INTO idempotency(principal, key, route, body_hash, status, answer, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (principal, key) DO NOTHING",
            self._principal,
            self._key,
            self._target,
            hashes,
            0,
            "",
            now,
        )
        if not won:
            return await self._replay(tx, hashes=hashes)
        reply = self._reply_of(await work(tx))
        await tx.execute(
            "UPDATE idempotency SET status = ?, answer = ? WHERE principal = ? AND key = ?",
            reply.status,
            self._stored(reply.body),
            self._principal,
            self._key,
        )
        return reply

    async def _replay(self, tx: contract.Tx, *, hashes: bytes) -> calls.Reply:
        row = await tx.fetch_one(
            "SELECT route, body_hash, status, answer FROM idempotency "
            "WHERE principal = ? AND key = ?",
            self._principal,
            self._key,
        )
        if row is None:
            raise contract.StoreBusy("The idempotency key is in use by another call. Try again.")
        if row["route"] != self._target:
            raise _mismatch("path", "for another path")
        field = _first_difference(bytes(row["body_hash"]), hashes)
        if field is not None:
            raise _mismatch(field, f"with another {field}")
        if not row["answer"]:
            return calls.Reply(body=None, status=int(row["status"]))
        status = 200 if self._route.secret_fields else int(row["status"])
        return calls.Reply(body=str(row["answer"]).encode(), status=status)

    def _reply_of(self, changed: calls.Changed) -> calls.Reply:
        return calls.Reply(body=changed.answer, status=changed.status or self._route.status)

    def _stored(self, body: Any) -> str:
        """The answer as a replay gives it: without what is shown once."""
        if body is None:
            return ""
        content: dict[str, Any] = json.loads(body.model_dump_json(by_alias=True))
        for field in self._route.secret_fields:
            content[field] = None
        if self._route.secret_fields:
            content["code"] = _SHOWN_ONCE
        return json.dumps(content, separators=(",", ":"))


def field_hashes(body: pydantic.BaseModel | None) -> Mapping[str, str]:
    """A hash of each field, so that a mismatch can be named without keeping the body."""
    if body is None:
        return {}
    content = body.model_dump(mode="json", by_alias=True)
    return {
        name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
        for name, value in content.items()
    }


def read_key(text: str | None) -> str | None:
    """The header `Idempotency-Key`; raises `Refusal` when it is out of shape."""
    if text is None:
        return None
    if not re.fullmatch(KEY_PATTERN, text):
        raise refusals.invalid(
            "Idempotency-Key",
            "Idempotency-Key is 1 to 128 printable ASCII characters without blanks.",
        )
    return text


async def purge(tx: contract.Tx, *, now_micros: int) -> int:
    """Removes keys older than a day; gives how many."""
    return await tx.execute(
        "DELETE FROM idempotency WHERE created_at < ?", now_micros - KEEP_SECONDS * 1_000_000
    )


def _first_difference(stored: bytes, given: bytes) -> str | None:
    if stored == given:
        return None
    before, now = json.loads(stored), json.loads(given)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            return str(name)
    return None


def _mismatch(field: str, how: str) -> refusals.Refusal:
    return refusals.Refusal(
        "idempotency-mismatch",
        f"This Idempotency-Key was used {how}. Use a new key for a new request.",
        members={"field": field},
    )
