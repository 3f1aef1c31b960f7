"""What others recorded of real providers, read where it lies and never copied.

Known limit: where the folder is absent the tests that stand on it are skipped, with this reason.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.support.clouds import referee


def folder() -> pathlib.Path:
    """The folder of descriptions and recordings; skips the test where there is none."""
    found = referee.folder()
    if not found.is_dir():
        pytest.skip(f"no provider descriptions at {found} (ENLIST_PROVIDER_SPECS names the folder)")
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One recorded request and its answer; the path with its query, bodies None where empty."""

    method: str
    path: str
    sent: Any
    status: int
    answered: Any


@functools.cache
def exchanges(cassette: str) -> tuple[Exchange, ...]:
    """What a go-vcr cassette of UpCloud's holds."""
    read: Mapping[str, Any] = yaml.safe_load(
        (folder() / "upcloud-cassettes" / f"{cassette}.yaml").read_text(encoding="utf-8")
    )
    return tuple(
        Exchange(
            method=one["request"]["method"],
            path=one["request"]["url"].removeprefix("https://api.upcloud.com"),
            sent=json.loads(one["request"]["body"] or "null"),
            status=one["response"]["code"],
            answered=json.loads(one["response"]["body"] or "null"),
        )
        for one in read["interactions"]
    )


def first(cassette: str, method: str, path: str) -> Any:
    """The JSON of the first answer to this method whose path begins so."""
    for one in exchanges(cassette):
        if one.method == method and one.path.startswith(path):
            return one.answered
    raise LookupError(f"{cassette} holds no {method} {path}")
