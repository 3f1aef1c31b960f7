"""Where a Platform is and by what it is known: the local socket, or an https origin.

    targets.local(data_dir)                            run/platform.sock; the kernel says who asks
    targets.remote(url, token=…, pins=…, ca_pem=…)     by pin, by CA file, or by public roots
    targets.parse(text, …)                             either, from what a person typed

Plain http is accepted for loopback only, where the API of `enlist serve` listens by default.
Known limit: an IPv6 zone (fe80::1%eth0) is not a Platform's address.
"""

import dataclasses
import ipaddress
import os
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from enlist import errors
from runtime_kit import secret

SOCKET = Path("run/platform.sock")
SYSTEM_DATA_DIR = Path("/var/lib/enlist/platform")
UNIX = "unix://"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One Platform. `socket` wins over `origin`; with a socket no token is needed."""

    origin: str
    socket: Path | None = None
    token: secret.Secret | None = None
    pins: frozenset[str] = frozenset()
    ca_pem: str | None = dataclasses.field(default=None, repr=False)

    @property
    def is_plain(self) -> bool:
        """Whether there is no TLS: the socket, or http on loopback."""
        return self.socket is not None or self.origin.startswith("http://")

    @property
    def shown(self) -> str:
        """How messages name it."""
        return f"the socket {self.socket}" if self.socket else self.origin


def default_data_dir() -> Path:
    """Where a Platform of this account keeps its data (interface.md, Files)."""
    if os.geteuid() == 0:
        return SYSTEM_DATA_DIR
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "enlist" / "platform"


def local(data_dir: Path | None = None) -> Target:
    """The Platform on this machine with that data directory."""
    folder = default_data_dir() if data_dir is None else data_dir
    return _by_socket(folder / SOCKET)


def remote(
    url: str,
    *,
    token: str | None = None,
    pins: Iterable[str] = (),
    ca_pem: str | None = None,
) -> Target:
    """A Platform at an address: an https origin, or http on loopback; otherwise `Invalid`."""
    origin = _origin(url)
    return Target(
        origin=origin,
        token=secret.Secret(token) if token else None,
        pins=frozenset(_pin(text) for text in pins),
        ca_pem=ca_pem,
    )


def parse(
    text: str, *, token: str | None = None, pins: Iterable[str] = (), ca_pem: str | None = None
) -> Target:
    """Reads `https://…`, `http://127.0.0.1:…`, or `unix:///path/to/platform.sock`."""
    if text.startswith(UNIX):
        return _by_socket(Path(text.removeprefix(UNIX)))
    return remote(text, token=token, pins=pins, ca_pem=ca_pem)


def choose(
    text: str | None, *, token: str | None, pins: Iterable[str], ca_pem: str | None
) -> Target:
    """What was typed, or else this machine's Platform."""
    if text is None:
        return local()
    return parse(text, token=token, pins=pins, ca_pem=ca_pem)


def _by_socket(path: Path) -> Target:
    return Target(origin="http://platform.local", socket=path)


def _origin(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise errors.Invalid(f"{_bare(url)!r} is not a URL: {error}.", code="invalid") from error
    if parts.scheme not in ("https", "http") or not host:
        raise errors.Invalid(
            f"{_bare(url)!r} is not a Platform's address: write https://host:8440.", code="invalid"
        )
    if parts.username is not None or parts.password is not None:
        raise errors.Invalid(
            "The Platform's address must not hold a user or a password: give the API token with "
            "--token-file.",
            code="invalid",
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise errors.Invalid(
            f"{url!r} must be an origin such as https://host:8440, without a path.", code="invalid"
        )
    if parts.scheme == "http" and not _is_loopback(host):
        raise errors.Invalid(
            f"{url!r} is not encrypted, and http is for this machine alone: write https://.",
            code="invalid",
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bare(url: str) -> str:
    """The URL without what may be a password, and not longer than a line."""
    scheme, mark, rest = url.partition("://")
    return (f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else url)[:120]


def _pin(text: str) -> str:
    # Here, since the reader of pins brings the certificate library, which most calls do without.
    from wire_protocol import pins  # noqa: PLC0415

    try:
        return pins.parse_pin(text)
    except ValueError as error:
        raise errors.Invalid(str(error), code="invalid") from error
