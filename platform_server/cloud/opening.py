"""Makes a driver of a connection's row: settings, credential, addresses, our own assertions.

What belongs to the provider stands in `provisioning`; this adds what only the Platform knows: the
ExternalId of the row (never one that a person typed), the issuer's present key, and the settings of
this installation that every connection of a provider shares.
"""

import asyncio
import dataclasses
import datetime
import importlib
import pathlib
from collections.abc import Mapping
from typing import Any, Final

from platform_server.cloud import connections, using
from platform_server.cloud.issuer import documents, signers
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract as store_contract
from provisioning import contract, credentials, outcomes, providers
from runtime_kit import clock as clock_kit

ENDPOINT: Final = "endpoint"
FEDERATING: Final = frozenset(
    {
        credentials.Kind.AWS_WEB_IDENTITY,
        credentials.Kind.AZURE_FEDERATED,
        credentials.Kind.GCP_FEDERATED,
    }
)


class ProviderOpener:
    """The `using.Opener` of an engine. `shared` are settings of this installation by provider."""

    def __init__(
        self,
        store: store_contract.Store,
        *,
        keyring: envelope.Keyring,
        clock: clock_kit.Clock,
        cloud: groups.CloudGroup,
        shared: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._clock = clock
        self._cloud = cloud
        self._shared = shared or {}
        self._memories: dict[str, tuple[datetime.datetime, dict[str, Any]]] = {}

    async def __call__(self, opening: using.Opening) -> contract.Driver:
        """See `using.Opener`; raises `outcomes.Fault` where the connection cannot be opened."""
        connection = opening.connection
        settings, endpoints = split_settings(connection.settings)
        if endpoints and not self._cloud.allow_endpoints:
            raise _lost(
                f"The connection {connection.name} names an address of its own, and "
                "[cloud] allow_endpoints is off."
            )
        try:
            provider = providers.get(connection.provider)
            await asyncio.to_thread(importlib.import_module, provider.module)  # some take a second
            return providers.open_driver(
                provider.name,
                providers.Opening(
                    settings={**self._shared.get(provider.name, {}), **settings},
                    credential=credential_of(opening),
                    observer=opening.observer,
                    clock=self._clock,
                    endpoints=endpoints,
                    assertion=await self._assertion(opening),
                    token_folder=None
                    if self._cloud.token_folder is None
                    else pathlib.Path(self._cloud.token_folder),
                    memory=self._memory(connection),
                    may_stay_here=self._cloud.allow_endpoints,
                ),
            )
        except (providers.Refused, providers.Unknown, credentials.Unusable) as fault:
            raise _lost(str(fault)) from fault

    def _memory(self, connection: connections.Connection) -> dict[str, Any]:
        """What drivers of this very credential handed on; another credential begins anew."""
        since, memory = self._memories.get(connection.connection_id, (None, {}))
        if since != connection.credential_at:
            memory = {}
            self._memories[connection.connection_id] = connection.credential_at, memory
        return memory

    async def _assertion(self, opening: using.Opening) -> providers.Assertion | None:
        connection = opening.connection
        if connection.credential_kind not in FEDERATING:
            return None
        url = self._cloud.issuer_url
        if url is None:
            raise _lost(
                "This Platform has no public address for its issuer: set [cloud] issuer_url."
            )
        try:
            signer = await self._store.read(
                lambda tx: signers.load(tx, keyring=self._keyring, url=url, now=self._clock.now())
            )
        except (signers.NoKey, documents.Refused) as fault:
            raise _lost(str(fault)) from fault
        subject = signers.subject_of(connection.connection_id)

        def sign(audience: str, /) -> str:
            return signer.assertion(subject=subject, audience=audience, now=self._clock.now())

        return sign


def split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The provider's own settings, and addresses in place of its usual ones by their names.

    `endpoint` is the only one's, `endpoint_sts` that called `sts`.
    """
    own: dict[str, Any] = {}
    endpoints: dict[str, str] = {}
    for name, value in settings.items():
        if name == ENDPOINT or name.startswith(f"{ENDPOINT}_"):
            endpoints[name.removeprefix(ENDPOINT).removeprefix("_")] = str(value)
        else:
            own[name] = value
    return own, endpoints


def credential_of(opening: using.Opening) -> credentials.Credential:
    """The credential, with the ExternalId of the row; raises `credentials.Unusable`."""
    if opening.secret is None:
        return credentials.Nothing()
    found = credentials.from_sealed_form(opening.secret.reveal().encode())
    if isinstance(found, credentials.AwsRole | credentials.AwsKeys):
        return dataclasses.replace(found, external_id=opening.connection.external_id or "")
    return found


def _lost(sentence: str) -> outcomes.Fault:
    return outcomes.Fault(
        sentence, outcome=outcomes.Outcome.AUTH_LOST, topic=outcomes.Topic.AUTH, code="not-opened"
    )
