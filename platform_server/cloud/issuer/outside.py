"""Looks at the issuer as clouds do: over public https, by its address, with no help from inside.

Run before a federated credential is tried, since a cloud that cannot fetch the keys says nothing
but "invalid token". Redirects are not followed, answers are bounded.

Known limit: it looks from this host; a cloud may be kept out where we are let in.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp

from platform_server.cloud.issuer import documents, keys

_SECONDS: Final = 10
_MOST_BYTES: Final = 65_536


async def find_problems(
    url: str,
    *,
    shown: Sequence[keys.IssuerKey],
    context: ssl.SSLContext | None = None,
) -> Sequence[str]:
    """What a cloud would stumble over, as sentences with the next step; none: all is well.

    `context` is for issuers with a certificate of an authority of one's own.
    """
    wanted = documents.of(url, shown=shown)
    limit = aiohttp.ClientTimeout(total=_SECONDS)
    found: dict[str, Any] = {}
    async with aiohttp.ClientSession(timeout=limit) as session:
        for name in wanted:
            address = f"{url}/{name}"
            try:
                found[name] = await _fetch(session, address, context=context)
            except _Unfit as fault:
                return [f"{address} {fault} Publish what `enlist cloud issuer export DIR` writes."]
    return [*_compare(found, wanted=wanted, url=url)]


class _Unfit(Exception):
    """The document cannot be had; the message continues a sentence that begins with its address."""


async def _fetch(
    session: aiohttp.ClientSession, address: str, *, context: ssl.SSLContext | None
) -> Any:
    try:
        async with session.get(
            address, allow_redirects=False, ssl=True if context is None else context
        ) as answer:
            if answer.status != 200:
                raise _Unfit(f"answers {answer.status}.")
            raw = await answer.content.read(_MOST_BYTES + 1)
            while len(raw) <= _MOST_BYTES and (more := await answer.content.read(_MOST_BYTES)):
                raw += more
    except (TimeoutError, aiohttp.ClientError) as fault:
        raise _Unfit(f"cannot be fetched ({type(fault).__name__}).") from fault
    if len(raw) > _MOST_BYTES:
        raise _Unfit(f"is larger than {_MOST_BYTES} bytes.")
    try:
        return json.loads(raw)
    except ValueError as fault:
        raise _Unfit("is not JSON.") from fault


def _compare(found: Mapping[str, Any], *, wanted: Mapping[str, bytes], url: str) -> Sequence[str]:
    ours = json.loads(wanted[documents.DISCOVERY])
    theirs = found[documents.DISCOVERY]
    problems = [
        f"The discovery document says {name} = {_get(theirs, name)!r}, not {ours[name]!r}. "
        "Publish it anew: enlist cloud issuer export DIR"
        for name in ("issuer", "jwks_uri")
        if _get(theirs, name) != ours[name]
    ]
    there = _get(found[documents.JWKS], "keys")
    held = {_get(key, "kid"): _get(key, "n") for key in there} if isinstance(there, list) else {}
    missing = [
        key["kid"]
        for key in json.loads(wanted[documents.JWKS])["keys"]
        if held.get(key["kid"]) != key["n"]
    ]
    if missing:
        problems.append(
            f"The keys at {url}/{documents.JWKS} lack {', '.join(missing)}. "
            "Publish them anew: enlist cloud issuer export DIR"
        )
    return problems


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
