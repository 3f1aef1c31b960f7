"""What the host tells the engine it starts, and what the engine says back.

The orders travel in an anonymous file whose descriptor the engine inherits: never in its
arguments, which everybody on the machine can read and which would show a database URL. The answer
is one JSON line over a pipe.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.settings import layers

MAX_BYTES: Final = 1_048_576


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Where the engine works and on which sockets."""

    data_dir: pathlib.Path
    config_file: pathlib.Path | None
    flags: Mapping[str, layers.Given]
    api_fds: Sequence[int]
    local_fd: int
    enroll_fd: int
    ready_fd: int
    api_url: str
    api_speaks_tls: bool
    api_names: Sequence[str]
    enrollment_url: str | None
    enrollment_names: Sequence[str]
    gateway_fds: Sequence[int] = ()
    gateway_urls: Sequence[str] = ()  # none while the gateway is off
    gateway_names: Sequence[str] = ()
    bundle_url: str | None = None  # None while the bundle port is off

    def descriptors(self) -> tuple[int, ...]:
        """Everything the engine inherits beside the orders themselves."""
        return (*self.api_fds, *self.gateway_fds, self.local_fd, self.enroll_fd, self.ready_fd)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What the engine says once it serves."""

    version: str
    pins: Sequence[str]
    api_pins: Sequence[str]
    gateway_pins: Sequence[str] = ()


def write(orders: Orders) -> int:
    """Gives the descriptor of an anonymous file that holds the orders; the caller closes it."""
    content = dataclasses.asdict(orders)
    content["data_dir"] = str(orders.data_dir)
    content["config_file"] = None if orders.config_file is None else str(orders.config_file)
    descriptor = os.memfd_create("enlist-orders")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(content).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def read(descriptor: int) -> Orders:
    """Reads the orders and closes the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        content = json.loads(file.read(MAX_BYTES))
    content["data_dir"] = pathlib.Path(content["data_dir"])
    if content["config_file"] is not None:
        content["config_file"] = pathlib.Path(content["config_file"])
    content["flags"] = {name: layers.Given(**given) for name, given in content["flags"].items()}
    return Orders(**content)


def say_ready(descriptor: int, *, ready: Ready) -> None:
    """Tells the host; closes the pipe."""
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(dataclasses.asdict(ready)).encode() + b"\n")


def parse_ready(line: bytes) -> Ready:
    """Reads what `say_ready` wrote."""
    return Ready(**json.loads(line))
