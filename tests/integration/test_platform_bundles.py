"""Bundles through the real command line and a real Platform, and fetched by the real curl."""

import functools
import json
import os
import pathlib
import shlex
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.support import real_platform, small_bundles, waits

ENGINE = "platform_server engine"
KEY = small_bundles.key()
SCRIPT = b'#!/bin/sh\necho asked with "$*"\n'


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    folder = tmp_path_factory.mktemp("p")
    (folder / "release.pub").write_bytes(KEY.public_pem)
    with real_platform.running(
        folder / "p",
        *("--bundle-port", "0"),
        environment={"ENLIST_BUNDLES__RELEASE_KEY_FILE": str(folder / "release.pub")},
    ) as one:
        yield one


def enlist(platform: real_platform.RealPlatform, *arguments: str, expect: int = 0) -> str:
    return real_platform.run_enlist("--data-dir", str(platform.data_dir), *arguments, expect=expect)


def curl(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["curl", "-sS", "--max-time", "20", "--noproxy", "*", *arguments],
        capture_output=True,
        check=False,
        timeout=30,
    )


def test_a_bundle_is_added_served_listed_and_removed(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    small = small_bundles.make(KEY, install_sh=SCRIPT, payload=bytes(1_500_000))
    folder = small_bundles.write_folder(tmp_path / "dist", small)
    checked = json.loads(
        enlist(platform, "platform", "bundles", "add", str(folder), "--check", "-o", "json")
    )
    assert checked["check"] is True
    assert (
        json.loads(enlist(platform, "platform", "bundles", "list", "-o", "json"))["bundles"] == []
    )
    added = enlist(platform, "platform", "bundles", "add", str(folder))
    assert small.release.archive_name in added
    (one,) = json.loads(enlist(platform, "platform", "bundles", "list", "-o", "json"))["bundles"]
    assert (one["sha256"], one["is_latest"], one["release_id"]) == (
        *(small.sha256, True),
        small.release.id,
    )
    fetched = curl("-k", one["url"])
    assert fetched.stdout == small.content
    again = enlist(platform, "platform", "bundles", "add", str(folder))
    assert "there already" in again
    actions = json.loads(enlist(platform, "audit", "list", "-o", "json"))["entries"]
    assert [entry["action"] for entry in actions if "bundle" in entry["action"]] == [
        "platform.bundle-add"
    ]
    enlist(platform, "platform", "bundles", "remove", "0.1.0", "--yes")
    assert curl("-k", "-f", one["url"]).returncode == 22
    enlist(platform, "platform", "bundles", "remove", "0.1.0", "--yes", expect=5)


def test_what_is_not_signed_by_the_platforms_key_is_refused_and_nothing_stays(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    other = small_bundles.key()
    stranger = small_bundles.make(other).write(tmp_path)
    enlist(platform, "platform", "bundles", "add", str(stranger), expect=2)
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(small_bundles.make(KEY).content[:-600])
    enlist(platform, "platform", "bundles", "add", str(damaged), expect=2)
    of_a_platform = small_bundles.make(KEY, role="platform").write(tmp_path)
    enlist(platform, "platform", "bundles", "add", str(of_a_platform), expect=2)
    assert list((platform.data_dir / "bundles" / ".uploads").iterdir()) == []
    assert list((platform.data_dir / "bundles" / "sha256").iterdir()) == []
    # On the Platform's own machine its administrator may name the key.
    (tmp_path / "other.pub").write_bytes(other.public_pem)
    named = ("--release-key", str(tmp_path / "other.pub"))
    enlist(platform, "platform", "bundles", "add", str(stranger), *named)
    enlist(platform, "platform", "bundles", "remove", "0.1.0", "--yes")


def test_another_release_key_cannot_be_named_from_afar(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    token = platform.enlist(
        "tokens", "create", "--permission", "platform.manage", "--permission", "nodes.view"
    ).strip()
    (tmp_path / "token").write_text(token)
    other = small_bundles.key()
    (tmp_path / "other.pub").write_bytes(other.public_pem)
    stranger = small_bundles.make(other).write(tmp_path)
    real_platform.run_enlist(
        *("--platform", platform.said["api"], "--token-file", str(tmp_path / "token")),
        *("platform", "bundles", "add", str(stranger)),
        *("--release-key", str(tmp_path / "other.pub")),
        expect=7,
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed here")
def test_the_bare_machines_line_fetches_the_installer_by_the_right_pin_alone(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    issued = platform.api("POST", "/enrollments", {"node_id": "before"})
    assert issued["bare_command"] is None  # nothing to install yet
    folder = small_bundles.write_folder(
        tmp_path / "dist", small_bundles.make(KEY, install_sh=SCRIPT)
    )
    enlist(platform, "platform", "bundles", "add", str(folder))
    issued = json.loads(enlist(platform, "nodes", "enroll-token", "bare", "-o", "json"))
    line = issued["bare_command"]
    assert issued["token"] not in line
    assert issued["join_token"] not in line
    url = platform.said["bundle"]
    assert line.endswith(f"| sudo sh -s -- --role worker --from {url} --pin {issued['pins'][0]}")

    # The bare machine asks for the token; the person has it before them, as they are told.
    printed = enlist(platform, "nodes", "enroll-token", "bare-2").splitlines()
    assert len([one for one in printed if one.startswith("enj_")]) == 1, printed

    # As typed, but for sudo; the script says what it was asked with.
    unprivileged = line.replace("sudo sh", "sh")
    done = subprocess.run(
        ["sh", "-c", unprivileged], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == f"asked with --role worker --from {url} --pin {issued['pins'][0]}\n"

    words = shlex.split(line.partition("|")[0])
    pinned = words[words.index("--pinnedpubkey") + 1]
    wrong = line.replace(pinned, "sha256//" + "A" * 43 + "=").replace("sudo sh", "sh")
    refused = subprocess.run(
        ["sh", "-c", wrong], capture_output=True, text=True, timeout=30, check=False
    )
    assert refused.stdout == ""
    bad = curl("-k", "--pinnedpubkey", "sha256//" + "A" * 43 + "=", f"{url}/install.sh")
    assert (bad.returncode, bad.stdout) == (90, b"")  # CURLE_SSL_PINNEDPUBKEYNOTMATCH
    enlist(platform, "platform", "bundles", "remove", "0.1.0", "--yes")


def test_without_a_release_key_the_platform_says_what_is_missing(tmp_path: pathlib.Path) -> None:
    small = small_bundles.make(KEY).write(tmp_path)
    with real_platform.running(tmp_path / "p", "--bundle-port", "0") as one:
        enlist(one, "platform", "bundles", "add", str(small), expect=4)


async def test_the_bundle_server_is_a_child_of_its_own_and_is_kept_running(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "p", "--bundle-port", "0") as platform:
        url = platform.said["bundle"]
        assert platform.api("GET", "/platform")["bundle_url"] == url
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        ask = functools.partial(httpx.get, f"{url}/install.sh", verify=context, timeout=20)
        assert ask().status_code == 404  # no bundle was put there
        (platform.data_dir / "bundles" / "install.sh").write_text("#!/bin/sh\n")
        assert ask().text == "#!/bin/sh\n"
        engine, first = platform.child(ENGINE).pid, platform.child("platform_server.bundles").pid
        platform.process.send_signal(signal.SIGHUP)
        await waits.until(lambda: _engines(platform) - {engine} != set())
        assert platform.child("platform_server.bundles").pid == first
        os.kill(first, signal.SIGKILL)
        assert ask().status_code == 200  # waited in the socket's queue for the next one
        assert platform.child("platform_server.bundles").pid != first


def _engines(platform: real_platform.RealPlatform) -> set[int]:
    return {one.pid for one in platform.family() if ENGINE in real_platform.command_of(one)}


def test_bundles_are_served_without_an_enrollment_port_as_well(tmp_path: pathlib.Path) -> None:
    with real_platform.running(
        tmp_path / "p",
        *("--bundle-port", "0", "--gateway-port", "off"),
        enrollment_port=None,
    ) as one:
        assert (one.said["enrollment"], one.said["pins"]) == (None, [])
        asked = curl("-k", "-o", "/dev/null", "-w", "%{http_code}", one.said["bundle"] + "/x")
        assert asked.stdout == b"404"
        assert one.api("GET", "/platform")["bundle_url"] == one.said["bundle"]
