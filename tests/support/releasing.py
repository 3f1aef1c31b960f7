"""Platforms that give releases out, and machines whose Agents run one, as real processes."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx

from installer.build import signing
from tests.support import machine, operators, real_platform, release_helper, small_bundles
from wire_protocol import product

OLD = "0.0.9"
NEW = product.VERSION
SHORT = {
    "ENLIST_GATEWAY__HEARTBEAT_SECONDS": "1",
    "ENLIST_OPERATIONS__HEALTHY_SECONDS": "3",
    "ENLIST_OPERATIONS__SETTLE_SECONDS": "4",
    "ENLIST_OPERATIONS__RESTART_SECONDS": "120",
    "ENLIST_OPERATIONS__STAGING_SECONDS": "60",
}
BROKEN = "raise SystemExit('This release does not come up.')\n"
SECONDS = 90.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An archive that a Platform was given."""

    release: str
    sha256: str


def offer(
    platform: real_platform.RealPlatform,
    folder: pathlib.Path,
    *,
    version: str = NEW,
    replaced: dict[str, str] | None = None,
    key: signing.ReleaseKey | None = None,
) -> Offer:
    """Puts a worker archive of this checkout's code on the Platform's shelf."""
    signer = key or small_bundles.key()
    packed = release_helper.payload(version, replaced=replaced)
    made = small_bundles.make(signer, version=version, payload=packed)
    public = folder / "release.pub"
    public.write_bytes(signer.public_pem)
    path = made.write(folder)
    platform.enlist("platform", "bundles", "add", str(path), "--release-key", str(public))
    return Offer(release=made.release.id, sha256=made.sha256)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A machine with a release, its stand-in for systemd and root, and what that said."""

    folder: pathlib.Path
    worker: machine.Machine
    release: str
    process: subprocess.Popen[bytes]
    log: pathlib.Path

    def said(self) -> list[dict[str, Any]]:
        """Every line that the stand-in said."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def words(self) -> list[str]:
        """What happened, in order, without starting."""
        return [one["said"] for one in self.said() if one["said"] != "ready"]


@contextlib.contextmanager
def installed(
    platform: real_platform.RealPlatform,
    folder: pathlib.Path,
    node_id: str = "web-1",
    *,
    listens: bool = False,
    crash_agent_at: str | None = None,
) -> Iterator[Installed]:
    """A machine that has joined and runs the old release, ready; stopped at the end."""
    place = folder / node_id
    place.mkdir()
    worker = (machine.in_folder if listens else machine.dialling_out)(place)
    worker.join(machine.issue(platform, node_id))
    release = release_helper.lay_out_first(place, version=OLD)
    log = place / "helper.log"
    with log.open("wb") as out, (place / "helper.errors").open("wb") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.release_helper"),
                *("--folder", str(place), "--data-dir", str(worker.data_dir)),
                *("--release", release),
                *(("--crash-agent-at", crash_agent_at) if crash_agent_at else ()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            cwd=release_helper.ROOT,
            env=real_platform.clean_environment(),
        )
    made = Installed(folder=place, worker=worker, release=release, process=process, log=log)
    try:
        machine.wait_for(
            platform,
            node_id,
            lambda node: node["state"] == "ready" and node["version"] == OLD,
            seconds=SECONDS,
        )
        if not listens:
            wait_until_known(platform, node_id)
        yield made
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def update(platform: real_platform.RealPlatform, *node_ids: str) -> dict[str, Any]:
    """Has these nodes updated, or all; the answer."""
    return platform.api("POST", "/nodes/update", {"node_ids": list(node_ids)})


def update_once(
    platform: real_platform.RealPlatform, node_id: str, *, key: str
) -> dict[str, Any] | None:
    """The same under an idempotency key; None where the engine died before it answered."""
    with operators.local(platform) as client:
        try:
            answer = client.post(
                "/nodes/update", json={"node_ids": [node_id]}, headers={"Idempotency-Key": key}
            )
        except httpx.TransportError:
            return None
    assert answer.status_code == 201, answer.text
    given = answer.json()
    assert isinstance(given, dict)
    return given


def wait_until_known(
    platform: real_platform.RealPlatform, node_id: str, *, seconds: float = SECONDS
) -> None:
    """Until the node has told what it is, so that it could be updated."""
    deadline = time.monotonic() + seconds
    while True:
        changes = platform.api("POST", "/nodes/update?check=true", {})["changes"]
        if any((one["action"], one["target"]) == ("update-node", node_id) for one in changes):
            return
        assert time.monotonic() < deadline, changes
        time.sleep(0.2)


def ended(
    platform: real_platform.RealPlatform, operation_id: str, *, seconds: float = SECONDS
) -> dict[str, Any]:
    """The operation once it has ended."""
    deadline = time.monotonic() + seconds
    while True:
        found = platform.api("GET", f"/operations/{operation_id}")
        if found["ended_at"] is not None:
            return found
        assert time.monotonic() < deadline, (found, real_platform.tail(platform.log))
        time.sleep(0.1)
