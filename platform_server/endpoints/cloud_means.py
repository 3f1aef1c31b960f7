"""What the cloud routes have in common: when they can serve at all, and how they refuse.

Without an enrollment endpoint no ordered machine could enlist itself, so every cloud route answers
503 `cloud-unavailable` and says what to set. A provider that costs money needs the operator's
policy as well; without it that provider alone is refused.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from platform_server.cloud import (
    beside,
    breaker,
    catalogue,
    connecting,
    connections,
    consent,
    forgetting,
    machines,
    orphans,
    policy,
    requests,
    reserve,
    resources,
    using,
    wishes,
)
from platform_server.endpoints import calls, refusals
from platform_server.nodes import configured
from platform_server.store import contract
from provisioning import abilities, outcomes
from wire_protocol import ids

T = TypeVar("T")
_AGAIN_SECONDS: Final = 60  # longer than a client waits by itself: a person has to act first
ENROLLMENT_MISSING: Final = (
    "This Platform has no enrollment endpoint, so no machine could enlist itself: start it with "
    "--enrollment-port, or set [dispatch] enabled = true behind an https name."
)
INSTALLER_MISSING: Final = (
    "This Platform serves nothing that a new machine could install: start it with --bundle-port."
)
INSTALLER_BUILT: Final = (
    "This Platform has nothing yet that a new machine could install. Just started it builds a "
    "bundle of its own, in a minute or two; see: enlist platform bundles list"
)

_CODES: Final[Mapping[type[Exception], str]] = {
    connections.NoSuchConnection: "not-found",
    machines.NoSuchMachine: "not-found",
    requests.NoSuchOperation: "not-found",
    requests.NodeTaken: "node-exists",
    requests.WrongState: "operation-state",
    requests.Busy: "conflict",
    reserve.CapReached: "cap-reached",
    breaker.TemplateStopped: "template-stopped",
    wishes.Invalid: "invalid",
    wishes.CredentialKindRejected: "credential-kind-rejected",
    connecting.CredentialRefused: "credential-refused",
    connecting.ConnectionDiffers: "conflict",
    forgetting.ConnectionInUse: "connection-in-use",
    consent.NotWithinPolicy: "conflict",
    beside.NoSuchResource: "not-found",
    orphans.NoSuchOrphan: "not-found",
    resources.NameTaken: "conflict",
    resources.DoesNotFit: "conflict",
    catalogue.NotOffered: "conflict",
    catalogue.NoConnection: "conflict",
    abilities.Lacking: "conflict",
    using.Paused: "connection-paused",
    contract.StoreConflict: "conflict",
}
REFUSED: Final[tuple[type[Exception], ...]] = (*_CODES, policy.Unavailable, outcomes.Fault)

PROBLEMS: Final = ("cloud-unavailable",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CloudMeans:
    """What the handlers stand on. `changed` hears of operations that were stored."""

    clouds: using.StoredClouds
    connecting: connecting.Connecting
    policies: policy.Source
    operators: configured.ConfiguredNodes
    enrollment_url: Callable[[], str | None]
    installable: Callable[[], bool]
    builds: bool  # with a bundle port it builds what is missing, which takes a minute or two
    installation: str
    changed: Callable[[], None]

    def missing(self) -> tuple[str, ...]:
        """What stands in the way of every order; nothing where machines could enlist."""
        return () if self.enrollment_url() is not None else (ENROLLMENT_MISSING,)

    def require(self) -> None:
        """Refuses while the cloud cannot be used."""
        missing = self.missing()
        if missing:
            raise unavailable(*missing)

    def require_installable(self) -> None:
        """Refuses an order while a new machine would find nothing to install."""
        if not self.installable():
            refusal = unavailable(INSTALLER_BUILT if self.builds else INSTALLER_MISSING)
            refusal.members["building"] = self.builds
            raise refusal

    async def rules_of(self, provider: str) -> policy.Rules | None:
        """The operator's rules; raises `policy.Unavailable`. Not inside a transaction: it reads."""
        return await asyncio.to_thread(self.policies.find, provider)

    async def missing_of(self, provider: str) -> tuple[str, ...]:
        """What stands in the way of this provider alone."""
        try:
            await self.rules_of(provider)
        except policy.Unavailable as fault:
            return (str(fault),)
        return ()


async def refusing(work: Awaitable[T]) -> T:
    """What the work gives; its refusals become answers."""
    try:
        return await work
    except REFUSED as fault:
        raise refusal_of(fault) from None


def unavailable(*missing: str) -> refusals.Refusal:
    """503, with every sentence about what is missing."""
    return refusals.Refusal(
        "cloud-unavailable",
        " ".join(missing),
        retry_after_seconds=_AGAIN_SECONDS,
        members={"missing": list(missing)},
    )


def refusal_of(fault: Exception) -> refusals.Refusal:
    """What the caller is told of one of `REFUSED`."""
    if isinstance(fault, policy.Unavailable):
        return unavailable(str(fault))
    if isinstance(fault, outcomes.Fault):
        return _of_provider(fault)
    for kind, code in _CODES.items():
        if isinstance(fault, kind):
            return refusals.Refusal(code, str(fault))
    raise fault


def _of_provider(fault: outcomes.Fault) -> refusals.Refusal:
    members: dict[str, object] = {"outcome": fault.outcome.value, "topic": fault.topic.value}
    if fault.code:
        members["provider_code"] = fault.code
    if fault.link:
        members["link"] = fault.link
    if fault.outcome is outcomes.Outcome.AUTH_LOST:
        return refusals.Refusal("credential-refused", str(fault), members=members)
    if fault.outcome is outcomes.Outcome.NOT_DONE_PERMANENT:
        return refusals.Refusal("conflict", str(fault), members=members)
    wait = fault.retry_after
    return refusals.Refusal(
        "provider-unavailable",
        str(fault),
        retry_after_seconds=None if wait is None else max(1, round(wait.total_seconds())),
        members=members,
    )


def asked_of(call: calls.Call[Any, Any]) -> requests.Asked:
    """Who asks, when, and where."""
    return requests.Asked(
        by=call.principal.name, now=call.now(), environment=call.settings.platform.environment
    )


def machine_of(path: Mapping[str, str]) -> str:
    """The node id or machine id in the path, in its one spelling."""
    try:
        return ids.parse_node_id(path["machine"])
    except ValueError as fault:
        raise refusals.invalid("machine", f"machine: {fault}") from None
