"""Which providers there are, what each is opened with, and the one place where one is opened.

A provider's SDK is imported when its first driver is opened and not before: a Platform that makes
machines on its own host never loads boto3. To add a provider, write its folder and its row here.
"""

import dataclasses
import datetime
import enum
import importlib
import ipaddress
import pathlib
import urllib.parse
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Protocol, cast

from provisioning import contract, credentials
from runtime_kit import clock as clock_kit

_KIND = credentials.Kind


STOOD_STILL_SECONDS: Final = 60.0
"""A call that was allowed longer ago is not sent: who asked may have lost the right meanwhile."""


class Policy(enum.StrEnum):
    """Which credentials are taken (`[cloud] credential_policy`)."""

    FEDERATED = "federated"
    COMPAT = "compat"


class Assertion(Protocol):
    """Makes a short-lived assertion of our own issuer for this connection and that audience."""

    def __call__(self, audience: str, /) -> str:
        """The signed assertion."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How long a call may take, in seconds. The defaults are never shortened outside tests.

    An answer to a create that nobody waited for costs a look-up, or an account: a limit of five
    seconds and blind repeats had one locked.
    """

    connect: float = 10.0
    read: float = 60.0
    create: float = 120.0  # of every call that changes something

    @property
    def longest_change(self) -> datetime.timedelta:
        """For how long after it was begun a call that changes something may still arrive.

        Connecting and waiting, one after the other, and a minute in which the process stood still.
        """
        return datetime.timedelta(seconds=self.connect + self.create + STOOD_STILL_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """All that a driver is made of.

    `settings` are the connection's own (project, resource group, default region), `endpoints`
    addresses in place of the provider's, by the provider's own names for them (`""` for the only
    one); drivers that federate call `assertion`. `may_stay_here`: an address in the settings, or in
    the provider's own catalogue, may be plain http on this very host. Token files are read below
    `token_folder` alone.
    """

    settings: Mapping[str, Any]
    credential: credentials.Credential
    observer: contract.Observer
    clock: clock_kit.Clock
    endpoints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    assertion: Assertion | None = None
    limits: TimeLimits = TimeLimits()
    may_stay_here: bool = False
    token_folder: pathlib.Path | None = None
    memory: MutableMapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One row. `module` has `open_driver(opening) -> Driver` and `SETTINGS`."""

    name: str
    title: str
    module: str
    kinds: tuple[credentials.Kind, ...]  # the advised one first
    costs_money: bool = True
    settings: tuple[str, ...] = ()  # what a connection may set
    needed: tuple[str, ...] = ()  # and what it must
    given: tuple[str, ...] = ()  # what the Platform's own settings say, and no connection

    def kinds_under(self, policy: Policy) -> tuple[credentials.Kind, ...]:
        """The kinds of credential that this policy lets in."""
        if policy is Policy.COMPAT:
            return self.kinds
        return tuple(kind for kind in self.kinds if kind not in credentials.LONG_LIVED)


class Unknown(Exception):
    """There is no provider of this name."""


class Refused(Exception):
    """The connection's settings or addresses cannot be used. The message is a sentence."""


_ROWS: Final = (
    Provider(
        name="local-nspawn",
        title="This host, as a container machine",
        module="provisioning.local.nspawn",
        kinds=(_KIND.NONE,),
        costs_money=False,
        given=("network", "directory", "images", "bridge"),
    ),
    Provider(
        name="local-qemu",
        title="This host, as a virtual machine",
        module="provisioning.local.qemu",
        kinds=(_KIND.NONE,),
        costs_money=False,
        given=("network", "directory", "images", "bridge"),
    ),
    Provider(
        name="hetzner",
        title="Hetzner Cloud",
        module="provisioning.hetzner.driver",
        kinds=(_KIND.TOKEN,),
    ),
    Provider(
        name="digitalocean",
        title="DigitalOcean",
        module="provisioning.digitalocean.driver",
        kinds=(_KIND.TOKEN,),
    ),
    Provider(
        name="aws",
        title="Amazon EC2",
        module="provisioning.aws.driver",
        kinds=(_KIND.AWS_WEB_IDENTITY, _KIND.AWS_ROLE, _KIND.AWS_AMBIENT, _KIND.AWS_KEYS),
        settings=("region", "regions"),
        given=("installation",),
        needed=("region",),
    ),
    Provider(
        name="azure",
        title="Microsoft Azure",
        module="provisioning.azure.driver",
        kinds=(_KIND.AZURE_FEDERATED, _KIND.AZURE_TOKEN_FILE, _KIND.AZURE_SECRET),
        settings=("resource_group",),
        needed=("resource_group",),
    ),
    Provider(
        name="gcp",
        title="Google Compute Engine",
        module="provisioning.gcp.driver",
        kinds=(_KIND.GCP_FEDERATED, _KIND.GCP_KEY),
    ),
    Provider(
        name="upcloud",
        title="UpCloud",
        module="provisioning.upcloud.driver",
        kinds=(_KIND.UPCLOUD_TOKEN, _KIND.UPCLOUD_PASSWORD),
        settings=("currency",),
    ),
    Provider(
        name="linode",
        title="Akamai (Linode)",
        module="provisioning.libcloud_drivers.linode",
        kinds=(_KIND.TOKEN,),
    ),
    Provider(
        name="vultr",
        title="Vultr",
        module="provisioning.libcloud_drivers.vultr",
        kinds=(_KIND.TOKEN,),
    ),
    Provider(
        name="openstack",
        title="OpenStack",
        module="provisioning.libcloud_drivers.openstack",
        kinds=(_KIND.OPENSTACK_APPLICATION,),
        settings=("auth_url", "region", "network", "core_hourly", "currency"),
        needed=("auth_url", "region"),
    ),
)

PROVIDERS: Final[Mapping[str, Provider]] = {row.name: row for row in _ROWS}
ALIASES: Final[Mapping[str, str]] = {"local": "local-nspawn"}


def get(name: str) -> Provider:
    """The row of this provider; `local` is `local-nspawn`.

    Raises:
        Unknown: there is none, and these are those there are.
    """
    try:
        return PROVIDERS[ALIASES.get(name, name)]
    except KeyError:
        known = ", ".join([*ALIASES, *PROVIDERS])
        raise Unknown(f"There is no provider {name!r}. There are: {known}.") from None


def check_settings(provider: Provider, settings: Mapping[str, Any]) -> None:
    """Looks only at the names; what the values are worth is the driver's to say.

    Raises:
        Refused: one is unknown, or one is missing.
    """
    for name in settings:
        if name not in provider.settings:
            known = ", ".join(provider.settings) or "none"
            raise Refused(
                f"A connection to {provider.name} has no setting {name!r}, only: {known}."
            )
    missing = [name for name in provider.needed if not settings.get(name)]
    if missing:
        raise Refused(f"A connection to {provider.name} also needs: {', '.join(missing)}.")


def check_endpoints(endpoints: Mapping[str, str], *, may_stay_here: bool = True) -> None:
    """Whether these addresses may be called at all: https, or plain http on this very host.

    Without `may_stay_here` https alone: what a connection names must not lead to services that
    listen to this host only.

    Raises:
        Refused: one may not.
    """
    for address in endpoints.values():
        parts = urllib.parse.urlsplit(address)
        if parts.username or parts.password or parts.query or parts.fragment or not parts.hostname:
            raise Refused(f"{address!r} is no plain address like https://host:port/path.")
        if parts.scheme == "https":
            continue
        if parts.scheme != "http" or not _is_this_host(parts.hostname):
            raise Refused(f"{address!r} is neither https nor a loopback address.")
        if not may_stay_here:
            raise Refused(
                f"{address!r} is plain http on this very host. Where that is meant, set "
                "[cloud] allow_endpoints = true."
            )


def open_driver(name: str, opening: Opening) -> contract.Driver:
    """A driver for this connection. Nothing is called yet; close it when done.

    Raises:
        Unknown: there is no such provider.
        Refused: settings, addresses or kind of credential do not fit it.
    """
    provider = get(name)
    own = {name: value for name, value in opening.settings.items() if name not in provider.given}
    check_settings(provider, own)
    check_endpoints(opening.endpoints)
    if opening.credential.kind not in provider.kinds:
        fitting = ", ".join(provider.kinds)
        raise Refused(
            f"{provider.title} is not opened with {opening.credential.kind}, but with: {fitting}."
        )
    module = importlib.import_module(provider.module)
    return cast("contract.Driver", module.open_driver(opening))


def _is_this_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
