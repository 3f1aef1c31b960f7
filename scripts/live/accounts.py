"""Which accounts there are to try with: one private file a provider, written by a person.

`~/.config/enlist/live/PROVIDER.json` (or in ENLIST_LIVE_DIR), readable by its owner alone:

    {"kind": "token", "secret_file": "token", "fields": {}, "settings": {},
     "address": "203.0.113.7",
     "policy": {"regions": ["fsn1"], "image": "debian-12",
                "classes": [{"name": "starter", "size": "cx23"}],
                "most_machines": 1, "most_hourly": "0.05", "currency": "EUR"}}

`address` is where machines at the provider reach this host. `local` needs no file.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any, Final

_OTHERS: Final = 0o077
_MOST_BYTES: Final = 65_536
LOCAL: Final = "local"


class Unusable(Exception):
    """The file is there and cannot be used; the message says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account to try with."""

    provider: str
    kind: str
    secret_file: pathlib.Path | None
    fields: Mapping[str, str]
    settings: Mapping[str, str]
    address: str | None
    policy: Mapping[str, Any] | None


def folder(environ: Mapping[str, str]) -> pathlib.Path:
    """Where the files are."""
    named = environ.get("ENLIST_LIVE_DIR")
    return pathlib.Path(named) if named else pathlib.Path.home() / ".config/enlist/live"


def find(provider: str, *, where: pathlib.Path) -> Account | None:
    """The account, None where nobody has set one up; raises `Unusable`."""
    file = where / f"{provider}.json"
    if not file.exists():
        return _local() if provider == LOCAL else None
    if file.stat().st_mode & _OTHERS:
        raise Unusable(f"{file} can be read by others: chmod 600 {file}")
    try:
        told = json.loads(file.read_bytes()[:_MOST_BYTES])
        secret = told.get("secret_file")
        return Account(
            provider=provider,
            kind=str(told["kind"]),
            secret_file=None if secret is None else where / secret,
            fields=dict(told.get("fields", {})),
            settings=dict(told.get("settings", {})),
            address=told.get("address"),
            policy=told.get("policy"),
        )
    except (ValueError, KeyError, TypeError) as fault:
        raise Unusable(f"{file} is not as scripts/live/accounts.py says: {fault!r}") from fault


def _local() -> Account:
    return Account(
        provider=LOCAL,
        kind="none",
        secret_file=None,
        fields={},
        settings={},
        address=None,
        policy=None,
    )
