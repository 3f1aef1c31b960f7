"""`/platform`: what this Platform is, and turning its keys over.

What stands here is public or for the operator's eyes: addresses, pins, public keys. Changing the
master key is sealing's part and served elsewhere.
"""

import dataclasses
import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Literal

import pydantic

from platform_server.audit import events
from platform_server.endpoints import calls, refusals, routes
from platform_server.sealing import envelope
from platform_server.store import contract
from platform_server.trust import authority, port_certificate, rotation, statements
from runtime_kit import crash_points
from wire_protocol import admin, ids, pins, product, times

_MOST_DAYS: Final = 90
DEFAULT_AFTER_SECONDS: Final = 7 * 86_400
NEXT_STORED = crash_points.declare(
    "tls-key.next-stored", story="a port's next key is stored with its day, nobody knows its pin"
)
_NAMES: Final = {"enrollment": "The enrollment port", "gateway": "The gateway"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where this Platform is reached at present, and by which keys."""

    enrollment_url: str | None
    api_pins: Sequence[pins.Pin]
    pins: Sequence[pins.Pin]
    certificate_sha256: str | None  # None while the enrollment port is off
    gateway_is_on: bool = False
    bundle_url: str | None = None


class RotateTlsKeyRequest(admin.Request):
    """`POST /platform/rotate-tls-key`."""

    port: Literal["enrollment", "gateway"] = "enrollment"
    after_seconds: Annotated[
        int,
        pydantic.Field(
            ge=0,
            le=_MOST_DAYS * 86_400,
            description="How long the next key is published before it is served.",
        ),
        admin.WHOLE,
    ] = DEFAULT_AFTER_SECONDS


class PlatformRoutes:
    """The handlers. Without `trust` nodes are turned off and trust keys unpublished."""

    def __init__(
        self,
        *,
        trust: authority.Authority | None,
        keyring: envelope.Keyring,
        whereabouts: Callable[[], Whereabouts],
        ports_changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._trust = trust
        self._keyring = keyring
        self._whereabouts = whereabouts
        self._ports_changed = ports_changed

    async def show(self, call: calls.Call[None, routes.NoQuery]) -> admin.Platform:
        """Addresses, pins, trust keys, environment, version."""
        here = self._whereabouts()
        settings = call.settings
        if self._trust is None:
            platform_id = await call.read(statements.find_platform_id)
            trust_keys: list[admin.PublicTrustKey] = []
            epoch = serial = 0
            gateway_url, gateway_pins = None, []
        else:
            statement = self._trust.published.statement
            platform_id = statement.platform_id
            trust_keys = [
                admin.PublicTrustKey.model_validate(key.to_wire()) for key in statement.trust_keys
            ]
            epoch, serial = statement.number
            gateway_url = statement.gateway_urls[0] if statement.gateway_urls else None
            gateway_pins = list(statement.gateway_pins)
        return admin.Platform(
            platform_id=platform_id or "",
            node_id=settings.platform.node_id,
            version=product.VERSION,
            environment=settings.platform.environment,
            infra=settings.platform.infra,
            nodes_enabled=self._trust is not None,
            enrollment_url=here.enrollment_url,
            pins=list(here.pins),
            certificate_sha256=here.certificate_sha256,
            gateway_url=gateway_url,
            gateway_pins=list(gateway_pins),
            bundle_url=here.bundle_url,
            api_pins=list(here.api_pins),
            trust_keys=trust_keys,
            epoch=epoch,
            serial=serial,
        )

    async def rotate_trust_key(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Publishes a further trust key now; the present ones stay until their end."""
        trust = self._trust
        if trust is None:
            raise _disabled()
        now = call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            published = await rotation.rotate_now(tx, keyring=self._keyring, now=now)
            newest = published.statement.trust_keys[-1]
            await call.record(
                tx,
                action="trust.rotate",
                target=newest.key_id,
                details={"serial": published.statement.serial},
            )
            changes = [
                admin.Change(
                    action="publish",
                    target=f"trust key {newest.key_id}",
                    detail=f"valid until {times.to_rfc3339(newest.not_after)}; "
                    "the present keys stay trusted until their end",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        try:
            reply = await call.mutate(work)
        except rotation.TooManyKeys as fault:
            raise refusals.Refusal("conflict", str(fault)) from None
        if not call.check:
            await trust.follow()
        return reply

    async def rotate_tls_key(
        self, call: calls.Call[RotateTlsKeyRequest, routes.NoQuery]
    ) -> calls.Reply:
        """Makes the port's next key, publishes its pin, and sets the moment of the switch."""
        here = self._whereabouts()
        if here.enrollment_url is None:
            raise _disabled()
        is_on = {"enrollment": here.certificate_sha256 is not None, "gateway": here.gateway_is_on}
        if not is_on[call.body.port]:
            raise refusals.Refusal(
                "conflict", f"{_NAMES[call.body.port]} is off, so there is no key of it to change."
            )
        now = call.now()
        switch_at = now + datetime.timedelta(seconds=call.body.after_seconds)

        async def work(tx: contract.Tx) -> calls.Changed:
            pin = await port_certificate.rotate(
                tx, port=call.body.port, keyring=self._keyring, switch_at=switch_at, now=now
            )
            await call.record(
                tx,
                action="platform.rotate-tls-key",
                target=call.body.port,
                details={"pin": pin, "switch_at": times.to_rfc3339(switch_at)},
            )
            await events.append(
                tx,
                at=now,
                kind="platform.tls-key-published",
                subject=call.body.port,
                data={"pin": pin, "switch_at": times.to_rfc3339(switch_at)},
            )
            # under check the key is thrown away again, so its pin would mislead
            name = "next TLS key" if call.check else f"TLS key {pin}"
            changes = [
                admin.Change(
                    action="publish",
                    target=f"{call.body.port} {name}",
                    detail=_when(call.body, at=switch_at),
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        try:
            reply = await call.mutate(work)
        except port_certificate.RotationUnderWay as fault:
            raise refusals.Refusal("conflict", str(fault)) from None
        if not call.check:
            crash_points.reach(NEXT_STORED)
            await self._ports_changed()
        return reply

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        return (
            routes.Route(
                method="GET",
                path="/api/v1/platform",
                summary="Show addresses, pins, trust keys, environment and version.",
                handler=self.show,
                answer=admin.Platform,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/platform/rotate-trust-key",
                summary="Publish a further trust key now.",
                handler=self.rotate_trust_key,
                answer=admin.Done,
                changes=True,
                problems=("nodes-disabled", "conflict"),
            ),
            routes.Route(
                method="POST",
                path="/api/v1/platform/rotate-tls-key",
                summary="Publish a port's next TLS key and set the day of its switch.",
                handler=self.rotate_tls_key,
                request=RotateTlsKeyRequest,
                answer=admin.Done,
                changes=True,
                problems=("nodes-disabled", "conflict"),
            ),
        )


def _when(asked: RotateTlsKeyRequest, *, at: datetime.datetime) -> str:
    if asked.port == "gateway":
        if not asked.after_seconds:
            return "served at once; sessions stay open, nodes follow by the signed statement"
        return f"served from {times.to_rfc3339(at)}; until then nodes expect both pins"
    if not asked.after_seconds:
        return (
            "served at once; join tokens made before no longer match, machines that have joined "
            "follow by the signed statement"
        )
    return f"served from {times.to_rfc3339(at)}; join tokens made until then carry both pins"


def _disabled() -> refusals.Refusal:
    return refusals.Refusal(
        "nodes-disabled",
        "This Platform takes no nodes. Start it with --enrollment-port, or set "
        "[dispatch] enabled = true.",
    )


def key_ids_of(published: statements.Published) -> Sequence[ids.KeyId]:
    """The ids that a join token names: one of these keys must sign the machine's first set."""
    return [key.key_id for key in published.statement.trust_keys]
