"""A connection as somebody wants it, judged before anything is called: kind, fields, addresses.

Under `federated` a secret that lives long is refused wherever the provider can do without one. The
ExternalId of AWS is made by the Platform and never taken from a person, since a chosen one protects
from nothing.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from platform_server.cloud import opening
from platform_server.settings import groups
from provisioning import credentials, providers

SET_UP_FIRST: Final = opening.FEDERATING | {credentials.Kind.AWS_ROLE}
"""Kinds without a stored secret that need ids of ours at the provider before they work."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Invalid(Exception):
    """What was given is no connection; the message says what is wrong with it."""


class CredentialKindRejected(Exception):
    """The credential policy does not take this kind; the message says which it takes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A connection to save. `fields` are the credential's; they may hold secrets."""

    name: str
    provider: str
    kind: str
    fields: Mapping[str, str] = dataclasses.field(repr=False)
    settings: Mapping[str, str]
    infra: str
    actor: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A wish that can be tried. `settings` hold what a pasted document said beside secrets."""

    provider: providers.Provider
    credential: credentials.Credential
    settings: Mapping[str, str]


def parse(wish: Wish, *, cloud: groups.CloudGroup) -> Parsed:
    """Judges it; raises `Invalid` and `CredentialKindRejected`."""
    if not _NAME.fullmatch(wish.name):
        raise Invalid("A connection's name has small letters, digits and -, 63 at most.")
    try:
        provider = providers.get(wish.provider)
        kind = _kind_of(wish.kind, provider=provider)
        _require_taken(provider, kind=kind, cloud=cloud)
        settings = dict(wish.settings)
        if "document" in wish.fields:
            settings = {**credentials.settings_of(kind, wish.fields["document"]), **settings}
        _check_settings(settings, provider=provider, cloud=cloud)
        if "external_id" in wish.fields:
            raise Invalid("The ExternalId is made here, one for each connection: leave it out.")
        credential = credentials.parse(kind, wish.fields)
    except (providers.Unknown, providers.Refused, credentials.Unusable) as fault:
        raise Invalid(str(fault)) from fault
    if kind in opening.FEDERATING and cloud.issuer_url is None:
        raise Invalid(
            f"A credential of kind {kind} needs a public address for this Platform's issuer: set "
            "[cloud] issuer_url, then publish what `enlist cloud issuer export DIR` writes."
        )
    return Parsed(provider=provider, credential=credential, settings=settings)


def _kind_of(word: str, *, provider: providers.Provider) -> credentials.Kind:
    fitting = ", ".join(provider.kinds)
    try:
        kind = credentials.Kind(word)
    except ValueError:
        raise Invalid(
            f"There is no kind of credential {word!r}; {provider.title} takes: {fitting}."
        ) from None
    if kind not in provider.kinds:
        raise Invalid(f"{provider.title} is not connected with {kind}, but with: {fitting}.")
    return kind


def _require_taken(
    provider: providers.Provider, *, kind: credentials.Kind, cloud: groups.CloudGroup
) -> None:
    allowed = provider.kinds_under(providers.Policy(cloud.credential_policy))
    if kind not in allowed:
        raise CredentialKindRejected(
            f"{kind} is a secret that lives long, and {provider.title} can do without one. Use: "
            f"{', '.join(allowed)} (docs/providers says how). To take it all the same, set "
            '[cloud] credential_policy = "compat".'
        )


def _check_settings(
    settings: Mapping[str, str], *, provider: providers.Provider, cloud: groups.CloudGroup
) -> None:
    own, endpoints = opening.split_settings(settings)
    providers.check_settings(provider, own)
    providers.check_endpoints(endpoints)
    if "auth_url" in own:
        providers.check_endpoints(
            {"auth_url": own["auth_url"]}, may_stay_here=cloud.allow_endpoints
        )
    if endpoints and not cloud.allow_endpoints:
        raise Invalid(
            "The connection names an address of its own, to which its credential would be sent. "
            "Where that is meant, set [cloud] allow_endpoints = true."
        )
