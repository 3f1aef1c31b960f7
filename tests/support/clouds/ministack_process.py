"""ministack with authentication on: STS and IAM that judge signatures, trust policies, ExternalIds.

One server for a test, on loopback. What it judges is what its makers say AWS does; it is not AWS.
Its assertions are not verified (it never fetches an issuer's keys), only their claims are compared.
"""

import contextlib
import dataclasses
import http.client
import os
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, cast

import boto3

from tests.support import machine, operators, waits

ACCOUNT: Final = "000000000000"
_STOPS_WITHIN = 10.0
_ROOT: Final = "test"


@dataclasses.dataclass(frozen=True, slots=True)
class Ministack:
    """A running server."""

    where: str

    @property
    def address(self) -> str:
        """Its address."""
        return f"http://{self.where}"

    def client(self, service: str, *, key: str = _ROOT, secret: str = _ROOT) -> Any:
        """Who calls it, by default as the account's root."""
        return boto3.client(
            cast("Any", service),
            endpoint_url=self.address,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path) -> AsyncIterator[Ministack]:
    """A server on a free port of 127.0.0.1."""
    port = machine.free_port()
    where = f"127.0.0.1:{port}"
    with _server(folder, port=port):
        await waits.until(lambda: _answers(where), seconds=60)
        yield Ministack(where)


@contextlib.contextmanager
def started(folder: pathlib.Path) -> Iterator[Ministack]:
    """The same for a test without a loop of its own."""
    port = machine.free_port()
    where = f"127.0.0.1:{port}"
    with _server(folder, port=port):
        operators.wait_until(lambda: _answers(where), what="ministack answers")
        yield Ministack(where)


@contextlib.contextmanager
def _server(folder: pathlib.Path, *, port: int) -> Iterator[None]:
    surroundings = {
        **os.environ,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "AUTH": "true",
        "PERSIST_STATE": "0",
    }
    with (
        (folder / "ministack.log").open("wb") as written,
        subprocess.Popen(
            [pathlib.Path(sys.executable).with_name("ministack")],
            stdout=written,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=surroundings,
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            process.wait(_STOPS_WITHIN)


def _answers(where: str) -> bool:
    connection = http.client.HTTPConnection(where, timeout=5)
    try:
        connection.request("GET", "/_ministack/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
