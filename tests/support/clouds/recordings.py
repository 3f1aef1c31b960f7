"""What others recorded of real providers, read where it lies and never copied.

Known limit: where the folder is absent the tests that stand on it are skipped, with this reason.
"""

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


@functools.cache
def bodies(cassette: str) -> tuple[tuple[str, str, Any], ...]:
    """Method, path and JSON of each answer in a go-vcr cassette of UpCloud's."""
    read: Mapping[str, Any] = yaml.safe_load(
        (folder() / "upcloud-cassettes" / f"{cassette}.yaml").read_text(encoding="utf-8")
    )
    return tuple(
        (
            one["request"]["method"],
            one["request"]["url"].removeprefix("https://api.upcloud.com"),
            json.loads(one["response"]["body"] or "null"),
        )
        for one in read["interactions"]
    )


def first(cassette: str, method: str, path: str) -> Any:
    """The JSON of the first answer to this method whose path begins so."""
    for was, where, body in bodies(cassette):
        if was == method and where.startswith(path):
            return body
    raise LookupError(f"{cassette} holds no {method} {path}")
