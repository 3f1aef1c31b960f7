"""With what calls are signed: keys, this host's own identity, or a session of a role.

A session is taken on when it is first needed and renewed when 80 % of its life has passed, before
a call and never during one. Every session of a role is narrowed to what we do. A role is taken on
with its ExternalId; whether it would also let us in without, `is_open_without_external_id` tries.

Known limit: a session that AWS ends early is noticed by the call it refuses.
"""

import asyncio
import dataclasses
import datetime
from collections.abc import MutableMapping
from typing import Any, Final

from provisioning import contract, credentials, federation, outcomes, providers
from provisioning.aws import calls, errors, link, policy_text, trust
from runtime_kit import clock as clock_kit

SESSION_SECONDS: Final = 3600  # the most that a chained role gives, and every role's default
RENEW_AT: Final = 0.8
SESSION_NAME: Final = "enlist"
_HELD: Final = "session"  # in the memory that openings of one credential share


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Keys with their life; without `until` they have none that we know of."""

    keys: link.Keys = dataclasses.field(repr=False)
    since: datetime.datetime
    until: datetime.datetime | None = None

    def is_fresh(self, now: datetime.datetime) -> bool:
        """Whether no renewal is due."""
        return self.until is None or now < self.since + RENEW_AT * (self.until - self.since)


class Identity:
    """Whoever the connection is at AWS."""

    def __init__(
        self,
        *,
        credential: credentials.Credential,
        assertion: providers.Assertion | None,
        through: link.Link,
        clock: clock_kit.Clock,
        region: str,
        installation: str | None,
        memory: MutableMapping[str, Any],
    ) -> None:
        self._credential = credential
        self._assertion = assertion
        self._link = through
        self._clock = clock
        self._region = region
        self._policy = policy_text.session_policy(installation=installation)
        self._memory = memory
        self._turn = asyncio.Lock()

    @property
    def has_external_id(self) -> bool:
        """Whether a role is taken on with an ExternalId."""
        given = self._credential
        return bool(getattr(given, "role_arn", "") and getattr(given, "external_id", ""))

    @property
    def can_renew(self) -> bool:
        """Whether a session that has ended can be had anew without a person."""
        given = self._credential
        return not (isinstance(given, credentials.AwsKeys) and not given.role_arn)

    async def keys(self) -> link.Keys:
        """What to sign with now. Raises `Fault`, mostly `AUTH_LOST`."""
        async with self._turn:
            held: Session | None = self._memory.get(_HELD)
            if held is None or not held.is_fresh(self._clock.now()):
                held = self._memory[_HELD] = await self._take_on()
            return held.keys

    def end(self, keys: link.Keys) -> None:
        """Says that AWS has refused these keys as expired: the next call takes new ones."""
        held: Session | None = self._memory.get(_HELD)
        if held is not None and held.keys == keys:
            self.forget()

    def forget(self) -> None:
        """Ends what is remembered: the next call proves anew that we are let in."""
        self._memory.pop(_HELD, None)

    async def base_keys(self) -> link.Keys | None:
        """What a role is taken on with; None where nothing of ours is at AWS (web identity)."""
        given = self._credential
        if isinstance(given, credentials.AwsKeys):
            token = given.session_token
            return link.Keys(
                given.access_key_id,
                given.secret_access_key.reveal(),
                token.reveal() if token is not None else None,
            )
        if isinstance(given, credentials.AwsRole | credentials.AwsAmbient):
            return await self._link.ambient_keys()
        return None

    async def is_open_without_external_id(self) -> bool:
        """Whether the role lets us in without its ExternalId, or with a wrong one.

        Then anybody whom it trusts can be made to use it for somebody else. What such a try is
        given is thrown away. Raises `Fault` for anything but a clear yes or no.
        """
        for wrong in ("", trust.new_external_id()):
            try:
                await self._assume(external_id=wrong)
            except outcomes.Fault as fault:
                if fault.code != "AccessDenied":
                    raise
            else:
                return True
        return False

    async def _take_on(self) -> Session:
        given, now = self._credential, self._clock.now()
        role = getattr(given, "role_arn", "")
        if isinstance(given, credentials.AwsWebIdentity):
            answer = await self._assume_by_assertion(given)
        elif role:
            answer = await self._assume_or_explain(getattr(given, "external_id", ""))
        else:
            keys = await self.base_keys()
            if keys is None:
                raise outcomes.Fault(
                    f"A credential of kind {given.kind} proves nothing at AWS.",
                    outcome=outcomes.Outcome.AUTH_LOST,
                    topic=outcomes.Topic.AUTH,
                )
            # what this host finds is renewed by whoever gives it, so it is asked for again
            until = None
            if isinstance(given, credentials.AwsAmbient):
                until = now + datetime.timedelta(seconds=300)
            return Session(keys=keys, since=now, until=until)
        told = answer["Credentials"]
        return Session(
            keys=link.Keys(told["AccessKeyId"], told["SecretAccessKey"], told["SessionToken"]),
            since=now,
            until=told["Expiration"].astimezone(datetime.UTC),
        )

    async def _assume_or_explain(self, external_id: str) -> dict[str, Any]:
        try:
            return await self._assume(external_id=external_id)
        except outcomes.Fault as fault:
            if fault.code != "AccessDenied":
                raise
            principal = await self._base_principal()
            raise outcomes.Fault(
                f"The role does not let us in. AWS knows this Platform as {principal}: the role's "
                f"trust policy has to name it, with the ExternalId {external_id or 'of this'}. "
                "A new policy takes some seconds to work.",
                outcome=fault.outcome,
                topic=fault.topic,
                code=fault.code,
                hints=(principal,),
            ) from fault

    async def _base_principal(self) -> str:
        """Who takes the role on, as a trust policy names it."""
        keys = await self.base_keys()
        told = await self._call(calls.CALLER, keys=keys)
        return trust.principal_of(str(told["Arn"]))

    async def _assume(self, *, external_id: str) -> dict[str, Any]:
        further: dict[str, Any] = {"ExternalId": external_id} if external_id else {}
        return await self._call(
            calls.ASSUME,
            keys=await self.base_keys(),
            RoleArn=getattr(self._credential, "role_arn", ""),
            RoleSessionName=SESSION_NAME,
            DurationSeconds=SESSION_SECONDS,
            Policy=self._policy,
            **further,
        )

    async def _assume_by_assertion(self, given: credentials.AwsWebIdentity) -> dict[str, Any]:
        token = federation.needed(self._assertion)(federation.AWS_AUDIENCE)
        return await self._call(
            calls.ASSUME_WEB,
            keys=None,
            hide=(token,),
            RoleArn=given.role_arn,
            RoleSessionName=SESSION_NAME,
            DurationSeconds=SESSION_SECONDS,
            Policy=self._policy,
            WebIdentityToken=token,
        )

    async def _call(
        self,
        row: contract.ApiCall,
        *,
        keys: link.Keys | None,
        hide: tuple[str, ...] = (),
        **parameters: Any,
    ) -> dict[str, Any]:
        return await self._link.call(
            row,
            region=self._region,
            keys=keys,
            table=errors.TRUST_TABLE,
            hide=hide,
            **parameters,
        )
