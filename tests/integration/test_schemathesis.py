"""Our own OpenAPI document against the running API: schemathesis must find nothing.

`/events` is left out, since a stream does not end by itself (tests/integration/test_api.py has
it). Ending API tokens is tried by itself, or the one in use would end. For the routes in
`_MORE_THAN_A_SCHEMA` one check is off, that every input of the right schema is accepted: a schema
cannot say that a token's check digits add up, that a certificate is one, that a text is an age
recipient, or that no bits stand behind a network's prefix. Saving a connection is left out: it
would try its credentials at real providers; and the policy of this Platform allows no machine, so
that what is ordered is refused.
"""

import json
import pathlib
import subprocess
import sys

import pytest

from provisioning import providers
from tests.support import faked_hetzner, real_platform

_PERMISSIONS = (
    "nodes.view",
    "nodes.enroll",
    "nodes.manage",
    "audit.view",
    "tokens.manage",
    "platform.manage",
    "backup.manage",
    "operations.view",
    "operations.manage",
    "cloud.view",
    "cloud.connect",
    "cloud.manage",
)
SEED = 1
"""The default tier tries the same each time; the long one something new, and prints its seed."""

_STREAM = "/api/v1/events"
_ENDS_TOKENS = "/api/v1/tokens/{token_id}"
_CALLS_PROVIDERS = "put_cloud_connections_connection"
_MORE_THAN_A_SCHEMA = (
    "/api/v1/enroll",
    "/api/v1/enrollments",
    "/api/v1/backup",
    "/api/v1/cloud/machines",
)


def _run(api: str, token: str, *arguments: str, cwd: pathlib.Path) -> None:
    done = subprocess.run(
        [
            *(str(pathlib.Path(sys.executable).with_name("schemathesis")), "run"),
            f"{api}/openapi.json",
            *("--header", f"Authorization: Bearer {token}"),
            *("--phases", "examples,coverage,fuzzing,stateful", "--continue-on-failure"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def _each(option: str, paths: tuple[str, ...]) -> list[str]:
    return [word for path in paths for word in (option, path)]


def _token(platform: real_platform.RealPlatform) -> str:
    made = platform.enlist(
        *("tokens", "create", "--name", "all", "-o", "json"),
        *_each("--permission", _PERMISSIONS),
    )
    return str(json.loads(made)["token"])


def _policy(folder: pathlib.Path) -> pathlib.Path:
    """Every provider is there, and none may make anything."""
    rules = {
        "regions": ["here"],
        "image": "debian-12",
        "classes": [{"name": "starter", "size": "small"}],
        "most_machines": 0,
        "most_hourly": "0",
        "currency": "EUR",
    }
    file = folder / "policy.json"
    file.write_text(
        json.dumps({"version": 1, "providers": dict.fromkeys(providers.PROVIDERS, rules)})
    )
    file.chmod(0o600)
    return file


def _try_all(
    tmp_path: pathlib.Path, *, examples: int, seed: int | None, database_url: str | None = None
) -> None:
    folder = tmp_path / "st"
    folder.mkdir()
    environment = {"ENLIST_CLOUD_POLICY": str(_policy(tmp_path))}
    with real_platform.running(
        tmp_path / "p",
        *("--bundle-port", "0"),
        database_url=database_url,
        environment=environment,
    ) as platform:
        faked_hetzner.offer_bundle(platform, tmp_path)
        api = str(platform.said["api"])
        chance = () if seed is None else ("--seed", str(seed))
        most = ("--max-examples", str(examples), *chance)
        apart = (_STREAM, _ENDS_TOKENS, *_MORE_THAN_A_SCHEMA)
        _run(
            api,
            _token(platform),
            *most,
            *_each("--exclude-path", apart),
            *("--exclude-operation-id", _CALLS_PROVIDERS),
            cwd=folder,
        )
        _run(api, _token(platform), *most, *_each("--include-path", (_ENDS_TOKENS,)), cwd=folder)
        _run(
            api,
            _token(platform),
            *most,
            *_each("--include-path", _MORE_THAN_A_SCHEMA),
            *("--exclude-checks", "positive_data_acceptance"),
            cwd=folder,
        )
        log = platform.log.read_text()
        assert "fault of ours" not in log
        assert "Traceback" not in log


@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing(tmp_path: pathlib.Path, store_url: str) -> None:
    _try_all(tmp_path, examples=10, seed=SEED, database_url=store_url)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_schemathesis_finds_nothing_with_many_examples(tmp_path: pathlib.Path) -> None:
    _try_all(tmp_path, examples=200, seed=None)
