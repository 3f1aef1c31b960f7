"""The Agent's address in listen mode: an https origin with a port, and nothing more.

Only the form is judged here; which addresses a Platform may dial is the Platform's to decide.
"""

import dataclasses
import ipaddress
import re
import urllib.parse

LEAST_PORT = 1024
DEFAULT_PORT = 8443
_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AgentUrl:
    """Host (a name or an IP address without brackets) and port."""

    host: str
    port: int

    def __str__(self) -> str:
        bracketed = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{bracketed}:{self.port}"

    @property
    def ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The address, if the host is one and not a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


def parse(text: str) -> AgentUrl:
    """Reads `https://HOST:PORT`; raises `ValueError` with the fault and the right form."""
    wrong = f"The Agent's URL must have the form https://HOST:PORT with a port from {LEAST_PORT}"
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"{wrong}: this one cannot be read.") from None
    if parts.scheme != "https":
        raise ValueError(f"{wrong}: its scheme is not https.")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{wrong}: it must hold no user name.")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "?" in text or "#" in text:
        raise ValueError(f"{wrong}: it must hold no path.")
    if port is None or port < LEAST_PORT:
        raise ValueError(f"{wrong}: its port is missing or too low.")
    return AgentUrl(host=parse_host(parts.hostname or ""), port=port)


def parse_host(text: str) -> str:
    """Reads a host name or an IP address, without brackets; raises `ValueError`."""
    bare = text.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        name = bare.lower().removesuffix(".")
        if not _HOST.fullmatch(name) or name.replace(".", "").isdigit():
            raise ValueError(
                f"The address {text[:80]!r} is neither an IP address nor a host name."
            ) from None
        return name
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise ValueError("An address with a zone (%eth0) means nothing on another machine.")
    return str(address)
