"""The join at a terminal, two joins at once, and a Platform behind public roots."""

import asyncio
import os
import pathlib
import pty
from collections.abc import AsyncIterator

import pytest

from tests.support import (
    certificates,
    imaginary_platform,
    joining,
    machine,
    real_platform,
    worker_command,
)
from worker_agent.identity import lock
from worker_agent.settings import paths


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


async def test_at_a_terminal_the_token_is_asked_for_and_not_echoed(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    token = platform.issue("web-1")
    terminal, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *real_platform.ENLIST,
        *("worker", "join", "--data-dir", str(tmp_path / "worker")),
        *("--address", "127.0.0.1", "--port", str(machine.free_port())),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=real_platform.clean_environment(),
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        while b"Join token: " not in screen:
            screen += await loop.run_in_executor(None, os.read, terminal, 4096)
        os.write(terminal, f"{token}\n".encode())
        try:
            while part := await loop.run_in_executor(None, os.read, terminal, 4096):
                screen += part
        except OSError:  # the terminal's last user has gone
            pass
        code = await process.wait()
    os.close(terminal)
    assert code == 0, screen
    assert b"Start its Agent with" in screen
    assert token.encode() not in screen


async def test_a_second_join_at_the_same_time_is_told_to_wait(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    where = paths.Paths(folder=tmp_path / "worker")
    first = joining.Joining(folder=where.folder)
    await first.join(platform.issue("web-1"), port=machine.free_port())
    with lock.held(where.lock, busy="busy"):
        done = await worker_command.enlist(
            *worker_command.join_arguments(where.folder), stdin=platform.issue("web-1")
        )
    assert done.code == 75
    assert "Another enlist command is at work" in done.err
    assert len(platform.asked) == 1


async def test_without_pin_or_ca_file_the_systems_roots_decide_and_that_is_recorded(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="public")
    platform.tls_identity = certificates.issue(issuer=authority)
    store = tmp_path / "store.pem"
    store.write_text(authority.pem)
    platform.issue("web-1")
    (issued,) = platform.enrollments.values()
    done = await worker_command.enlist(
        *("worker", "join", "--data-dir", str(tmp_path / "worker"), "-o", "json"),
        *("--platform-url", platform.url, "--node-id", "web-1", "--enrollment-token-file", "-"),
        *("--address", "127.0.0.1", "--port", str(machine.free_port())),
        stdin=issued.token.text(),
        environment={"SSL_CERT_FILE": str(store)},
    )
    assert done.code == 0, done.err
    assert (done.document["authenticated_by"], done.document["pins"]) == ("public-roots", [])


async def test_a_folder_that_is_somebody_elses_is_not_taken_over(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "letter.txt").write_text("Dear Amy")
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder), stdin=platform.issue("web-1")
    )
    assert done.code == 2
    assert "no worker's data directory" in done.err
    assert folder.stat().st_mode & 0o777 == 0o755
    assert platform.asked == []
