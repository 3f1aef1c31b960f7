"""What `enlist worker update` does as the worker's account: ask for the newest release, fetch it.

    python -m worker_agent.app.newest --data-dir DIR [--from URL] latest
    python -m worker_agent.app.newest --data-dir DIR [--from URL] fetch SHA256

`latest` prints the Platform's own line, hash and name of the newest archive; `fetch` writes that
archive to standard output. So root, who installs it after checking its signature, speaks with
nobody. The Platform is proved as for everything else. Its bundle port is the one of the releases'
own Platform, 8446, unless another is named.

Known limit: where the Agent is fetching a release at the same moment, one of the two starts anew.
"""

import argparse
import asyncio
import os
import pathlib
import random
import re
import shutil
import sys
from typing import Final

from runtime_kit import clock as clock_kit
from runtime_kit import dial, server_trust
from runtime_kit import failures as network
from runtime_kit.http1 import client, messages
from wire_protocol import updates
from worker_agent.door import refusals
from worker_agent.orders import archive
from worker_agent.session import facts
from worker_agent.settings import failures, paths
from worker_agent.trust import refresh

BUNDLE_PORT: Final = 8446
_SECONDS: Final = 30.0
_MOST_LINE: Final = 512
_LINE: Final = re.compile(
    r"([0-9a-f]{64})  (enlist-worker-([0-9][-+.a-z0-9]{4,40})-[a-z0-9_]+\.tar)\n"
)
_HINT: Final = "Compare the Platform's pins: enlist nodes platform"


class Bundles:
    """The Platform's bundle port, as this machine reaches it."""

    def __init__(self, where: paths.Paths, *, origin: str | None) -> None:
        join, held = refresh.load(where)
        self._trust = server_trust.ServerTrust(
            pins=refresh.known_pins(join, held), ca_pem=join.ca_pem
        )
        self._where = where
        try:
            self.origin = origin or _beside(refresh.addresses(join, held)[0])
            dial.parse_https_origin(self.origin)
        except dial.InvalidUrl as error:
            raise failures.Misuse(f"--from: {error}.") from error

    async def latest(self) -> str:
        """The line that names the newest archive for this machine."""
        answer = await self._ask("GET", f"/worker-{facts.architecture()}", most=_MOST_LINE)
        line = answer.body.decode("ascii", "replace")
        if not _LINE.fullmatch(line):
            raise failures.Fault(f"{self.origin} does not name an archive as Enlist does.")
        return line

    async def fetch(self, sha256: str) -> pathlib.Path:
        """The archive of that hash, in `staged/`."""
        target = f"/bundles/sha256/{sha256}"
        answer = await self._ask("HEAD", target, most=0)
        size = answer.headers.get("content-length", "")
        if not size.isdecimal() or not 0 < int(size) <= updates.MOST_ARCHIVE_BYTES:
            raise failures.Fault(f"{self.origin} does not say how long the archive is.")
        wanted = updates.Update(
            version="",
            release=f"the hash {sha256[:12]}",
            archive_sha256=sha256,
            size=int(size),
            urls=(f"{self.origin}{target}",),
        )
        around = archive.Around(
            clock=clock_kit.SystemClock(), chance=random.SystemRandom(), environment=os.environ
        )
        return await archive.fetch(self._where, wanted, around=around)

    async def _ask(self, method: str, target: str, *, most: int) -> messages.Answer:
        try:
            async with await server_trust.open_authenticated(
                self.origin, trust=self._trust
            ) as connection:
                answer = await client.exchange(
                    connection.reader,
                    connection.writer,
                    method=method,
                    target=target,
                    host=connection.origin.authority,
                    timeout_s=_SECONDS,
                    max_body_bytes=most,
                )
        except network.NetworkFailure as error:
            raise refusals.of_network(error, hint=_HINT) from error
        if answer.status == 404:
            raise failures.NotFound(
                f"The Platform has no release to give at {self.origin}{target}. On the Platform: "
                "enlist platform bundles add FILE"
            )
        if not refusals.is_success(answer.status):
            raise failures.Temporary(f"{self.origin} answered with status {answer.status}.")
        return answer


def main(arguments: list[str]) -> int:
    """Does it; gives the exit code."""
    given = _parser().parse_args(arguments)
    where = paths.Paths(folder=given.data_dir)
    try:
        bundles = Bundles(where, origin=given.origin)
        if given.what == "latest":
            sys.stdout.write(asyncio.run(bundles.latest()))
            return 0
        try:
            path = asyncio.run(bundles.fetch(given.sha256))
            with path.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
        finally:
            archive.clear(where)
    except failures.Failure as failure:
        sys.stderr.write(f"Error: {failure}\n")
        return int(failure.exit_code)
    return 0


def _beside(url: str) -> str:
    """The bundle port of the Platform at this address."""
    origin = dial.parse_https_origin(url)
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return f"https://{host}:{BUNDLE_PORT}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m worker_agent.app.newest")
    parser.add_argument("--data-dir", type=pathlib.Path, required=True)
    parser.add_argument("--from", dest="origin")
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("latest")
    what.add_parser("fetch").add_argument("sha256", type=_sha256)
    return parser


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise argparse.ArgumentTypeError("a hash has 64 hex digits")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
