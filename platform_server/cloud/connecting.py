"""Saves and checks connections: kept only once the credential has proved itself.

A credential with a secret is tried first and stored only if the provider knows it and it has the
rights that machines need. One that works without a secret but has to be set up at the provider
first (a role, a federation) is stored unproved and held back, since the text to set up names ids
that are made here; a check opens it. Saving over a connection is a rotation: same provider, same
account, nothing restarted, and a pause ends with it.
"""

import dataclasses
import datetime
import itertools
import secrets as random_ids
from collections.abc import Callable, Sequence
from typing import Final

from platform_server.audit import actions, events
from platform_server.cloud import (
    checking,
    connections,
    machines,
    pausing,
    setup_text,
    wishes,
)
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract as store_contract
from provisioning import credentials, outcomes, providers
from runtime_kit import secret as secret_kit

UNPROVED: Final = "unproved"
LOCAL: Final = "local"
_AWS: Final = "aws"
_MOST_MACHINES: Final = 2000
_MOST_KNOWN: Final = 5


class CredentialRefused(Exception):
    """The provider does not know the credential, or it lacks rights; nothing was stored."""

    def __init__(self, sentence: str, *, setup: str) -> None:
        super().__init__(sentence)
        self.setup = setup


class ConnectionDiffers(Exception):
    """The connection of this name is to another provider or account; nothing was changed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What was stored, what the check found, and what to set up at the provider."""

    connection: connections.Connection
    checked: checking.Checked
    setup: str


class Connecting:
    """One engine's part. `changed` is called after a commit that others may wait for."""

    def __init__(
        self,
        means: checking.Means,
        *,
        keyring: envelope.Keyring,
        cloud: groups.CloudGroup,
        environment: str,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._means = means
        self._store = means.store
        self._clock = means.clock
        self._keyring = keyring
        self._cloud = cloud
        self._environment = environment
        self._changed = changed

    async def save(self, wish: wishes.Wish, *, rehearse: bool = False) -> Saved:
        """Proves the credential and stores it, in place of a former one of this name.

        With `rehearse` it is proved and not stored. Raises `wishes.Invalid`,
        `wishes.CredentialKindRejected`, `CredentialRefused`, `ConnectionDiffers`, `outcomes.Fault`
        (the provider gave no clear answer: nothing was stored, try again), and `StoreError`.
        """
        parsed = wishes.parse(wish, cloud=self._cloud)
        provider, credential = parsed.provider, parsed.credential
        former = await self._store.read(lambda tx: connections.find(tx, connection_id=wish.name))
        if former is not None and former.provider != provider.name:
            raise ConnectionDiffers(
                f"The connection {wish.name} is to {former.provider}. Save this one under another "
                "name."
            )
        candidate = self._candidate(wish, former=former, parsed=parsed)
        secret = None
        if credential.kind is not credentials.Kind.NONE:
            secret = secret_kit.Secret(credentials.sealed_form(credential).decode())
        known = () if former is None else await self._list_known(former)
        checked = await checking.check(
            self._means, connection=candidate, secret=secret, actor=wish.actor, known=known
        )
        _require_same_account(former, checked=checked, known=known)
        saved = self._found(candidate, credential=credential, checked=checked)
        may_wait = credential.kind in wishes.SET_UP_FIRST and _is_unproved(former)
        if not checked.is_well and not may_wait:
            raise CredentialRefused(checked.trouble, setup=saved.setup)
        if not rehearse:
            await self._store.transact(
                lambda tx: self._keep(
                    tx, saved=saved, secret=secret, former=former, actor=wish.actor
                )
            )
            self._changed()
        return saved

    async def check(self, name: str, *, actor: str, wanted: int = 1) -> Saved:
        """Tries the stored credential, names each missing right, creates nothing.

        What is found is stored; a connection that was paused goes on where all is well. Raises
        `connections.NoSuchConnection`, `outcomes.Fault` and `StoreError`.
        """

        async def read(tx: store_contract.Tx) -> tuple[connections.Connection, bytes | None]:
            found = await connections.get(tx, connection_id=name)
            return found, await connections.open_secret(
                tx, keyring=self._keyring, connection_id=found.connection_id
            )

        connection, raw = await self._store.read(read)
        secret = None if raw is None else secret_kit.Secret(raw.decode())
        checked = await checking.check(
            self._means, connection=connection, secret=secret, actor=actor, wanted=wanted
        )
        credential: credentials.Credential = credentials.Nothing()
        if raw is not None:
            credential = credentials.from_sealed_form(raw)
        saved = self._found(connection, credential=credential, checked=checked)
        await self._store.transact(lambda tx: self._note(tx, saved=saved, actor=actor))
        self._changed()
        return saved

    # Inside.

    async def _list_known(self, former: connections.Connection) -> Sequence[machines.Machine]:
        """Some machines that the provider has shown to the former credential, the newest first."""
        live = await self._store.read(
            lambda tx: machines.list_live(
                tx, connection_id=former.connection_id, limit=_MOST_MACHINES
            )
        )
        seen = [
            one for one in live if one.provider_ref and one.seen_at is not None and not one.missed
        ]
        return seen[: -_MOST_KNOWN - 1 : -1]

    def _found(
        self,
        connection: connections.Connection,
        *,
        credential: credentials.Credential,
        checked: checking.Checked,
    ) -> Saved:
        found = checking.with_findings(connection, checked=checked)
        known = {"installation": self._means.installation}
        if checked.hints:
            known["base_principal"] = checked.hints[0]
        setup = setup_text.text_of(
            found,
            credential=credential,
            calls=checked.calls,
            issuer_url=self._cloud.issuer_url,
            known=known,
        )
        return Saved(connection=found, checked=checked, setup=setup)

    def _candidate(
        self,
        wish: wishes.Wish,
        *,
        former: connections.Connection | None,
        parsed: wishes.Parsed,
    ) -> connections.Connection:
        kind, settings = parsed.credential.kind, parsed.settings
        now = self._clock.now()
        if former is not None:  # a later moment, which tells this credential from those before
            now = max(now, former.credential_at + datetime.timedelta(microseconds=1))
            return dataclasses.replace(
                former,
                settings=settings,
                credential_kind=kind.value,
                credential_at=now,
            )
        external_id = f"enlist-{random_ids.token_hex(16)}" if parsed.provider.name == _AWS else None
        return connections.new(
            connection_id=random_ids.token_hex(8),
            name=wish.name,
            infra=wish.infra,
            provider=parsed.provider.name,
            settings=settings,
            credential_kind=kind.value,
            external_id=external_id,
            now=now,
            created_by=wish.actor,
        )

    async def _keep(
        self,
        tx: store_contract.Tx,
        *,
        saved: Saved,
        secret: secret_kit.Secret | None,
        former: connections.Connection | None,
        actor: str,
    ) -> None:
        connection = saved.connection
        await connections.lock(tx, connection_id=connection.name)
        await connections.lock(tx, connection_id=connection.connection_id)
        present = await connections.find(tx, connection_id=connection.name)
        before = None if former is None else former.credential_at
        if (None if present is None else present.credential_at) != before:
            raise ConnectionDiffers(
                f"The connection {connection.name} was saved by somebody else meanwhile. Look at "
                f"it: enlist cloud connections show {connection.name}"
            )
        sealed, kek_id = None, None
        if secret is not None:
            sealed, kek_id = await connections.seal_secret(
                tx,
                keyring=self._keyring,
                connection_id=connection.connection_id,
                secret=secret.reveal().encode(),
            )
        await connections.put(tx, connection=connection, sealed=sealed, kek_id=kek_id)
        if saved.checked.is_well:
            await self._resume(tx, connection=connection, actor=actor)
        else:
            await pausing.hold(
                tx,
                connection=connection,
                reason=saved.checked.trouble,
                topic=UNPROVED,
                now=self._clock.now(),
            )
        await self._tell(tx, saved=saved, is_rotation=former is not None, actor=actor)

    async def _note(self, tx: store_contract.Tx, *, saved: Saved, actor: str) -> None:
        connection, checked = saved.connection, saved.checked
        if not await connections.put_findings(tx, connection=connection):
            return  # another credential was saved meanwhile, and this says nothing of it
        if checked.is_well:
            await self._resume(tx, connection=connection, actor=actor)
        elif checked.refused is not None:
            await pausing.pause(
                tx,
                connection=connection,
                reason=checked.refused,
                topic=outcomes.Topic.AUTH.value,
                environment=self._environment,
                now=self._clock.now(),
            )

    async def _resume(
        self, tx: store_contract.Tx, *, connection: connections.Connection, actor: str
    ) -> None:
        await pausing.resume(
            tx,
            connection=connection,
            actor=actor,
            environment=self._environment,
            now=self._clock.now(),
        )

    async def _tell(
        self, tx: store_contract.Tx, *, saved: Saved, is_rotation: bool, actor: str
    ) -> None:
        connection, now = saved.connection, self._clock.now()
        details = {
            "connection_id": connection.connection_id,
            "provider": connection.provider,
            "credential_kind": connection.credential_kind,
            "account": connection.account,
            "principal": connection.principal,
            "proved": saved.checked.is_well,
            "rotation": is_rotation,
        }
        await events.append(
            tx,
            at=now,
            kind="cloud-connection.saved",
            subject=connection.name,
            infra=connection.infra,
            data=details,
        )
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=actor,
                action="cloud.connections.save",
                target=connection.name,
                environment=self._environment,
                infra=connection.infra,
                details=details,
            ),
        )


async def ensure_local(
    tx: store_contract.Tx, *, actor: str, now: datetime.datetime, infra: str = "default"
) -> connections.Connection:
    """The connection to this very host, made where there is none: it needs no credential."""
    provider = providers.get(LOCAL)
    await connections.lock(tx, connection_id=LOCAL)
    present = await connections.list_page(tx, limit=1, provider=provider.name, infra=infra)
    if present:
        return present[0]
    made = connections.new(
        connection_id=random_ids.token_hex(8),
        name=await _free_name(tx, LOCAL if infra == "default" else f"{LOCAL}-{infra}"),
        infra=infra,
        provider=provider.name,
        settings={},
        credential_kind=credentials.Kind.NONE.value,
        external_id=None,
        now=now,
        created_by=actor,
    )
    await connections.put(tx, connection=made, sealed=None, kek_id=None)
    return made


async def _free_name(tx: store_contract.Tx, wanted: str) -> str:
    """The name, or the first one numbered after it that no connection has."""
    for number in itertools.count(1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if await connections.find(tx, connection_id=name) is None:
            return name
    raise AssertionError("There is always another number.")


def _is_unproved(former: connections.Connection | None) -> bool:
    """Whether nothing works yet that a credential which does not would end."""
    return former is None or (former.pause is not None and former.pause.topic == UNPROVED)


def _require_same_account(
    former: connections.Connection | None,
    *,
    checked: checking.Checked,
    known: Sequence[machines.Machine],
) -> None:
    """Machines of the former account could be neither seen nor deleted with another one's."""
    if former is None or checked.validation is None or not former.account:
        return
    if known and not checked.sees_known:
        names = ", ".join(one.node_id for one in known)
        raise ConnectionDiffers(
            f"This credential does not see what was made through {former.name} ({names}): it is of "
            "another account or project, so save it under another name. Where those machines were "
            "deleted there by hand, have them deleted and forgotten here first: enlist cloud "
            "machines delete|forget NODE"
        )
    if checked.validation.account != former.account:
        raise ConnectionDiffers(
            f"The connection {former.name} is to the account {former.account}, and this credential "
            f"is of {checked.validation.account}. Save it under another name."
        )
