"""The bundle server as a real process: files by their hash, nothing else, and bounded."""

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from platform_server.bundles import process
from platform_server.edge import process as edge_process
from tests.support import bundle_server, certificates, edge, waits

CONTENT = random.Random(8446).randbytes(3_000_000)
HASH = hashlib.sha256(CONTENT).hexdigest()


def get(target: str, *, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: edge\r\n{more}\r\n".encode()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[edge.Listener]:
    folder = tmp_path / "bundles"
    (folder / "sha256").mkdir(parents=True)
    (folder / "sha256" / HASH).write_bytes(CONTENT)
    (folder / "install.sh").write_text("#!/bin/sh\n")
    (folder / "sha256" / f"{HASH}.install.sh").write_text("#!/bin/sh\n: its own\n")
    (folder / "worker-x86_64").write_text(f"{HASH}  enlist-worker-1.0.0-x86_64.tar\n")
    async with bundle_server.running(tmp_path) as one:
        yield one


async def test_serves_the_installer_the_latest_and_archives(server: edge.Listener) -> None:
    script = await edge.ask_raw(server, get("/install.sh"))
    assert (script.status, script.body) == (200, b"#!/bin/sh\n")
    assert script.headers["content-type"].startswith("text/x-shellscript")
    latest = await edge.ask_raw(server, get("/worker-x86_64"))
    named = latest.body.decode().split()[0]
    archive = await edge.ask_raw(server, get(f"/bundles/sha256/{named}"))
    assert hashlib.sha256(archive.body).hexdigest() == HASH
    own = await edge.ask_raw(server, get(f"/bundles/sha256/{named}/install.sh"))
    assert (own.status, own.body) == (200, b"#!/bin/sh\n: its own\n")
    assert own.headers["content-type"].startswith("text/x-shellscript")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/worker-aarch64"),  # none was put there
        ("GET", "/bundles/sha256/" + "0" * 64),
        ("GET", "/bundles/sha256/../install.sh"),
        ("GET", "/bundles/sha256/" + "0" * 64 + "/install.sh"),
        ("GET", f"/bundles/sha256/{HASH}.install.sh"),
        ("GET", f"/bundles/sha256/{HASH}/install.sh/"),
        ("GET", "/../tls.pem"),
        ("POST", "/install.sh"),
        ("DELETE", f"/bundles/sha256/{HASH}"),
        ("POST", "/api/v1/enroll"),
    ],
)
async def test_all_else_is_an_empty_404(server: edge.Listener, method: str, target: str) -> None:
    got = await edge.ask_raw(server, get(target, method=method))
    assert (got.status, got.body) == (404, b"")


async def test_a_link_or_a_pipe_in_the_folder_is_not_followed(
    tmp_path: Path, server: edge.Listener
) -> None:
    folder = tmp_path / "bundles"
    (folder / "install.sh").unlink()
    (folder / "install.sh").symlink_to(tmp_path / "tls.pem")
    os.mkfifo(folder / "worker-aarch64")
    (folder / "sha256" / ("a" * 64)).mkdir()
    for target in ("/install.sh", "/worker-aarch64", "/bundles/sha256/" + "a" * 64):
        assert (await edge.ask_raw(server, get(target))).status == 404


async def test_a_body_is_not_wanted(server: edge.Listener) -> None:
    got = await edge.ask_raw(server, get("/install.sh", more="Content-Length: 5\r\n") + b"hello")
    assert got.status == 413


async def test_an_archive_replaced_while_it_is_sent_arrives_as_it_was(
    tmp_path: Path, server: edge.Listener
) -> None:
    async with edge.connected(server) as (reader, writer):
        writer.write(get(f"/bundles/sha256/{HASH}"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert f"content-length: {len(CONTENT)}".encode() in head
        (tmp_path / "bundles" / "sha256" / HASH).unlink()
        assert await reader.readexactly(len(CONTENT)) == CONTENT


async def test_a_client_that_takes_nothing_is_cut_off_and_others_are_served(
    tmp_path: Path,
) -> None:
    (tmp_path / "bundles" / "sha256").mkdir(parents=True)
    (tmp_path / "bundles" / "sha256" / HASH).write_bytes(CONTENT * 4)
    async with (
        bundle_server.running(tmp_path, "--stall-s", "0.5") as server,
        edge.connected(server) as (slow, writer),
    ):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport for both ways
        writer.write(get(f"/bundles/sha256/{HASH}"))
        process = psutil.Process(server.process.pid)
        await waits.until(lambda: bool(process.open_files()))
        assert (await edge.ask_raw(server, get("/install.sh"))).status == 404
        await waits.until(lambda: not process.open_files())
        del slow


async def test_many_downloads_at_once_stay_small_in_memory(server: edge.Listener) -> None:
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss

    async def one() -> int:
        return len((await edge.ask_raw(server, get(f"/bundles/sha256/{HASH}"))).body)

    sizes = await asyncio.gather(*(one() for _ in range(16)))
    assert sizes == [len(CONTENT)] * 16
    assert process.memory_info().rss - before < 40_000_000


async def test_sigterm_ends_it_and_sighup_does_not(server: edge.Listener) -> None:
    server.process.send_signal(signal.SIGHUP)
    await server.wait_for("Stayed on SIGHUP")
    assert (await edge.ask_raw(server, get("/install.sh"))).status == 200
    assert await server.stop() == 0
    assert {note["process"] for note in server.notes} == {"bundles"}
    assert HASH not in json.dumps(server.notes)


async def test_a_new_certificate_is_served_from_the_next_handshake_on(
    server: edge.Listener,
) -> None:
    new = certificates.issue()
    server.replace_certificate(new)
    assert (await edge.ask_raw(server, get("/install.sh"))).status == 200
    await server.wait_for("Certificate replaced")


async def test_the_process_loads_little() -> None:
    listing = "import platform_server.bundles.process, sys; print(' '.join(sys.modules))"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", listing), cwd=edge.ROOT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(edge.PATIENCE_S):
        listed, _ = await process.communicate()
    names = listed.decode().split()
    loaded = {name.partition(".")[0] for name in names}
    assert loaded.isdisjoint({"aiohttp", "pydantic", "cryptography", "h11", "httpx", "structlog"})
    ours = {name for name in names if name.startswith("platform_server.")}
    assert all(
        name.startswith(("platform_server.bundles", "platform_server.edge")) for name in ours
    )


async def test_a_folder_that_is_not_the_platforms_is_refused_by_an_installed_one(
    tmp_path: Path,
) -> None:
    """A link in its place leads to a folder of root's, or of the account that serves."""
    with pytest.raises(edge_process.CannotStart, match="not the Platform's folder"):
        process.check_owner(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(edge_process.CannotStart, match="not the Platform's folder"):
        process.check_owner(tmp_path / "link")
