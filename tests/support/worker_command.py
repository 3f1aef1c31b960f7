"""Runs a worker's command as a process of its own, beside servers on the test's own event loop."""

import asyncio
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tests.support import real_platform

SECONDS = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What it printed with `-o json`."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@contextlib.asynccontextmanager
async def started(
    *arguments: str,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    umask: int = -1,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running `enlist` that has been given its standard input; gone at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *real_platform.ENLIST,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=real_platform.clean_environment(environment),
        umask=umask,
    )
    assert process.stdin is not None
    process.stdin.write(stdin.encode())
    with contextlib.suppress(OSError):
        await process.stdin.drain()
    process.stdin.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def finish(process: asyncio.subprocess.Process) -> Ended:
    """Waits for its end, bounded."""
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(code=process.returncode, out=out.decode(), err=err.decode())


async def enlist(
    *arguments: str,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    umask: int = -1,
) -> Ended:
    """Runs `enlist` to its end."""
    async with started(*arguments, stdin=stdin, environment=environment, umask=umask) as process:
        return await finish(process)


def join_arguments(data_dir: pathlib.Path, *, port: int | None = None) -> list[str]:
    """`worker join -` for this data directory, listening on loopback where a port is given."""
    listening = [] if port is None else ["--address", "127.0.0.1", "--port", str(port)]
    return ["worker", "join", "-", "--data-dir", str(data_dir), *listening]


def contents(data_dir: pathlib.Path) -> dict[str, bytes]:
    """Every file of a data directory but the locks, to compare before and after."""
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in sorted(data_dir.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and path.name != "lock"
    }


async def said(process: asyncio.subprocess.Process, words: str) -> str:
    """Reads what a running program logs until a line holds these words; returns that line."""
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while line := (await process.stderr.readline()).decode():
            if words in line:
                return line
    raise AssertionError(f"The program ended without saying {words!r}.")
