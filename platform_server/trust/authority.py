"""The trust of this Platform as a running engine holds it: keys, answers, client certificate.

Made at start when dispatch is on; a supervised task (`keep`) follows what other engines publish,
carries rotation out and renews the client certificate. With dispatch off there is none, and trust
keys stay unpublished.
"""

import dataclasses
import datetime
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from platform_server.nodes import leading
from platform_server.sealing import envelope
from platform_server.store import contract
from platform_server.trust import addresses, answers, client_certificate, keys, rotation, statements
from runtime_kit import clock as clock_kit
from wire_protocol import statements as wire_statements

_LOG = logging.getLogger(__name__)
LEASE: Final = "trust-rotation"
FOLLOW_SECONDS: Final = 2.0  # how late this engine may notice what another has published
_LOOK_AGAIN: Final = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    own_keys: Sequence[keys.OwnTrustKey]
    answers: answers.Answers


class NotStarted(RuntimeError):
    """Trust was asked for before `start`: a fault of ours."""


class Authority:
    """Holds what the engine's trust stands on."""

    def __init__(
        self,
        store: contract.Store,
        *,
        keyring: envelope.Keyring,
        clock: clock_kit.Clock,
        identity: client_certificate.ClientIdentity,
        environment: str,
        place: str = "here",
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._clock = clock
        self._identity = identity
        self._environment = environment
        self._place = place
        self._held: _Held | None = None
        self._own: statements.Facts | None = None

    @property
    def answers(self) -> answers.Answers:
        """The ready-made answers of the present statement."""
        if self._held is None:
            raise NotStarted("Trust has not started.")
        return self._held.answers

    @property
    def published(self) -> statements.Published:
        """The present statement and its chain."""
        return self.answers.published

    @property
    def keyring(self) -> envelope.Keyring:
        """What seals the private halves."""
        return self._keyring

    def sign(self, content: bytes, *, context: str) -> tuple[wire_statements.Signature, ...]:
        """The signatures of every trust key that is valid now, the one that ends first first.

        Raises `NotStarted` where none is.
        """
        now = self._clock.now()
        held = () if self._held is None else self._held.own_keys
        signers = [key for key in held if key.public.is_valid_at(now)]
        if not signers:
            raise NotStarted("No trust key is valid now, so nothing can be signed.")
        return tuple(key.signature_of(content, context=context) for key in signers)

    async def start(self, facts: statements.Facts) -> None:
        """Publishes keys and facts if they changed, and issues the client certificate."""
        await self.publish(facts)

    async def publish(self, facts: statements.Facts | None) -> None:
        """Runs what rotation asks for and publishes these facts; None keeps the present ones.

        Of the addresses, those of other engines stay beside this one's.
        """
        now = self._clock.now()
        self._own = facts or self._own

        async def work(tx: contract.Tx) -> _Held:
            await tx.lock(statements.LOCK)
            await rotation.advance(
                tx,
                keyring=self._keyring,
                facts=await self._joined(tx, own=facts, now=now),
                environment=self._environment,
                now=now,
            )
            return await self._load(tx)

        self._hold(await self._store.transact(work))

    async def follow(self) -> bool:
        """Takes over what another engine has published; says whether there was anything."""

        async def look(tx: contract.Tx) -> _Held | None:
            number = await statements.find_number(tx)
            if self._held is not None and number == self.published.statement.number:
                return None
            return await self._load(tx)

        fresh = await self._store.read(look)
        if fresh is not None:
            self._hold(fresh)
        self._renew_certificate()
        return fresh is not None

    async def keep(self, *, on_change: Callable[[], Awaitable[None]] | None = None) -> None:
        """Runs for ever: follow, rotate when due, renew. For a supervised task.

        A store that is busy or away is waited for; everything in hand stays valid meanwhile.
        """
        lease = leading.Leading(self._store, name=LEASE, clock=self._clock)
        due = self._clock.now()
        stands = due + addresses.EVERY
        while True:
            await self._clock.sleep(FOLLOW_SECONDS)
            try:
                changed = await self.follow()
                now = self._clock.now()
                if now >= stands:
                    await self._stand(now)
                    stands = now + addresses.EVERY
                if now >= due and await lease.holds():
                    before = self.published.statement.number
                    await self.publish(None)
                    changed = changed or before != self.published.statement.number
                    due = self._next_look(now)
                if changed and on_change is not None:
                    await on_change()
            except contract.StoreError as fault:
                _LOG.warning("Trust could not be refreshed", extra={"reason": str(fault)})

    async def _joined(
        self, tx: contract.Tx, *, own: statements.Facts | None, now: datetime.datetime
    ) -> statements.Facts | None:
        found = await statements.find_published(tx)
        present = None if found is None else found.facts
        if own is not None:
            return await addresses.join(tx, place=self._place, own=own, now=now, present=present)
        if present is not None:
            return await addresses.without_old(tx, facts=present, now=now)
        return None

    async def _stand(self, now: datetime.datetime) -> None:
        """This engine's addresses stand; after a day's sleep they have to be published again."""
        own = self._own
        if own is None:
            return
        known = await self._store.transact(
            lambda tx: addresses.stand(tx, place=self._place, now=now)
        )
        if known < len(own.gateway_urls):
            await self.publish(own)

    def _next_look(self, now: datetime.datetime) -> datetime.datetime:
        ahead = rotation.plan(self.published.statement.trust_keys, now=now).look_again_at
        return min(ahead, now + _LOOK_AGAIN)

    async def _load(self, tx: contract.Tx) -> _Held:
        published = await statements.find_published(tx)
        if published is None:
            raise NotStarted("No statement has been published.")
        own = await keys.load(tx, keyring=self._keyring, now=self._clock.now())
        return _Held(own_keys=own, answers=answers.make(published))

    def _hold(self, held: _Held) -> None:
        self._held = held
        self._renew_certificate()

    def _renew_certificate(self) -> None:
        if self._held is None:
            return
        try:
            self._identity.ensure(
                self._held.own_keys,
                platform_id=self.published.statement.platform_id,
                now=self._clock.now(),
            )
        except (OSError, ValueError) as fault:
            _LOG.error("The client certificate could not be renewed", extra={"reason": str(fault)})
            if self._identity.present is None:
                raise
