"""One call as a handler sees it: who asks, for what, and the store.

A handler that changes something does so inside `mutate`, which commits, or with `?check=true`
rolls back and gives the list of changes instead. Reading the clock goes through the call too.
"""

import dataclasses
import datetime
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import pydantic

from platform_server.access import principals
from platform_server.audit import actions
from platform_server.endpoints import refusals
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import admin

BodyT = TypeVar("BodyT")
QueryT = TypeVar("QueryT")
ResultT = TypeVar("ResultT")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a change did: the answer for the caller and the list for `?check=true`."""

    changes: Sequence[admin.Change]
    answer: pydantic.BaseModel | None = None
    status: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer with a status of its own, or one that is already JSON."""

    body: pydantic.BaseModel | Mapping[str, object] | bytes | None
    status: int
    media_type: str = "application/json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer sent piece by piece until its end or until the caller leaves.

    One that is `whole` is worth nothing in part: where it cannot be finished, the connection is
    broken off, so that the reader sees it.
    """

    parts: AsyncGenerator[bytes, None]
    media_type: str
    whole: bool = False
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


Answer = pydantic.BaseModel | Changed | Reply | Stream | None


class Mutator(Protocol):
    """Runs a change: commits it, rehearses it, or answers what a former try answered."""

    async def __call__(self, work: Callable[[contract.Tx], Awaitable[Changed]]) -> Reply:
        """Gives the reply; raises what the work raises."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[BodyT, QueryT]):
    """Everything a handler may use."""

    principal: principals.Principal
    store: contract.Store
    settings: groups.Settings
    clock: clock_kit.Clock
    body: BodyT
    query: QueryT
    path: Mapping[str, str]
    check: bool
    request_id: str
    peer: str | None
    run: Mutator
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def now(self) -> datetime.datetime:
        """The Platform's time, the only one that judges anything."""
        return self.clock.now()

    def require(self, permission: str) -> None:
        """Refuses unless the caller also has this permission, or only asks what would happen.

        The gate has seen that he may look; `?check=true` needs no more than that.
        """
        if not self.check and not self.principal.may(permission):
            raise refusals.Refusal(
                "not-permitted", f"This needs the permission {permission} as well."
            )

    async def read(self, work: Callable[[contract.Tx], Awaitable[ResultT]]) -> ResultT:
        """Runs the work on a snapshot that it cannot change."""
        return await self.store.read(work)

    async def mutate(self, work: Callable[[contract.Tx], Awaitable[Changed]]) -> Reply:
        """Runs the work in one transaction; with `?check=true` it is rolled back."""
        return await self.run(work)

    async def record(
        self,
        tx: contract.Tx,
        *,
        action: str,
        target: str,
        infra: str = "default",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the action into the chained log, in the transaction of the change."""
        await actions.append(
            tx,
            action=actions.Action(
                at=self.clock.now(),
                actor=self.principal.name,
                action=action,
                target=target,
                infra=infra,
                environment=self.settings.platform.environment,
                mfa_verified=self.principal.mfa_verified,
                details=dict(details or {}),
            ),
        )
