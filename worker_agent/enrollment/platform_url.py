"""The Platform's address as an https origin.

Plain http is refused because the token and the trust keys would cross a link that nobody has
proved (Z-16). Known limit: host names are ASCII; one with other letters is given as `xn--…`.
"""

import ipaddress
import re
import urllib.parse

_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_LONGEST = 2048


def parse(text: str) -> str:
    """The origin `https://host[:port]`; raises `ValueError` with the right form."""
    given = text.strip()
    if len(given) > _LONGEST:
        raise ValueError(f"An address is at most {_LONGEST} characters long.")
    try:
        parts = urllib.parse.urlsplit(given)
        port = parts.port
    except ValueError:
        raise _malformed(given) from None
    if parts.scheme == "http":
        raise ValueError(
            "Plain http is refused: the token would cross a link that anybody can read. "
            f"Use https://{parts.netloc}"
        )
    if parts.scheme != "https" or not parts.hostname or port == 0:
        raise _malformed(given)
    if "@" in parts.netloc:
        raise ValueError("The Platform's address carries no user name or password.")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("The Platform's address has no path: https://HOST[:PORT].")
    host = _host(parts.hostname, given=given)
    return f"https://{host}" if port in (None, 443) else f"https://{host}:{port}"


def _host(host: str, *, given: str) -> str:
    if ":" in host:
        try:
            return f"[{ipaddress.IPv6Address(host)}]"
        except ValueError:
            raise _malformed(given) from None
    bare = host.removesuffix(".")
    if not _HOST.fullmatch(bare) or not all(1 <= len(part) <= 63 for part in bare.split(".")):
        raise _malformed(given)
    return bare


def _malformed(given: str) -> ValueError:
    return ValueError(
        f"{given[:80]!r} is no address of a Platform: write https://HOST[:PORT], an IPv6 address "
        "in brackets, for example https://platform.example.com:8444."
    )
