"""`session.json`: how the running Agent's session stands, for whoever asks on this machine.

By its `instance_sha256` a command on this machine is known as one beside the running Agent. The
instance itself, by which that Agent replaces its own session, is in its memory alone.

Written at each change, without waiting for the disk, since nothing is decided by it; an answered
heartbeat moves the file's time alone, which costs no write. Who reads it makes sure that the Agent
runs (`lock.is_held`): a killed one leaves the file as it was. It may be read by root in another
account's folder, so nothing but a plain file is read, and looked at once.
"""

import contextlib
import dataclasses
import datetime
import errno
import json
import logging
import os
import pathlib
import stat
from collections.abc import Iterator

from runtime_kit import clock as clock_kit
from wire_protocol import session, strict_json, times
from worker_agent.settings import paths

LOGGER = logging.getLogger(__name__)
_MAX_BYTES = 16_384
_LONGEST_TEXT = 1_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the Agent told last."""

    state: str  # connecting, open, waiting, stopped
    instance_sha256: str | None = None
    gateway: str | None = None
    session_id: str | None = None
    since: str | None = None
    reason: str | None = None
    kind: str | None = None
    next_try_at: str | None = None
    last_heartbeat_at: str | None = None


class Teller:
    """Writes the file; a disk that cannot be written costs nothing but the telling."""

    def __init__(self, where: paths.Paths, *, instance: str, clock: clock_kit.Clock) -> None:
        self._path = where.session
        self._joined = where.agent
        self._instance_sha256 = session.shown_instance(instance)
        self._clock = clock
        self._heard: str | None = None

    def tell(self, **fields: object) -> None:
        """The state has changed; of a machine that has left nothing is told."""
        if not self._joined.exists():
            return
        content: dict[str, object] = {
            name: times.to_rfc3339(value) if isinstance(value, datetime.datetime) else value
            for name, value in fields.items()
        }
        seconds = content.pop("next_try_seconds", None)
        if isinstance(seconds, int | float):
            due = self._clock.now() + datetime.timedelta(seconds=seconds)
            content["next_try_at"] = times.to_rfc3339(due)
        content["instance_sha256"] = self._instance_sha256
        content["last_heartbeat_at"] = self._heard
        content["at"] = times.to_rfc3339(self._clock.now())
        with self._harmless():
            aside = self._path.with_name(f".tmp-{self._path.name}")
            descriptor = os.open(
                aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
            )
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                file.write(json.dumps(content, indent=2).encode())
            aside.rename(self._path)
            if not self._joined.exists():  # it has left since: its command removes that file first
                self._path.unlink(missing_ok=True)

    def heard(self) -> None:
        """The Platform has answered a heartbeat."""
        now = self._clock.now()
        self._heard = times.to_rfc3339(now)
        with self._harmless():
            os.utime(self._path, (now.timestamp(), now.timestamp()))

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            LOGGER.debug("How the session stands cannot be told", extra={"fault": str(error)})


def read(path: pathlib.Path) -> Told | None:
    """What the Agent told last, None where nothing can be read, a link or a pipe lies there."""
    try:
        content, touched = _look(path)
        fields = strict_json.read(content, what=path.name, most=_MAX_BYTES)
        names = [field.name for field in dataclasses.fields(Told)]
        said = {name: fields.text(name, most=_LONGEST_TEXT) for name in names if fields.has(name)}
        told = Told(**said)
        if told.state == "open":
            at = datetime.datetime.fromtimestamp(touched, datetime.UTC)
            if at > times.from_rfc3339(fields.text("at")):
                told = dataclasses.replace(told, last_heartbeat_at=times.to_rfc3339(at))
    except (OSError, ValueError, TypeError):
        return None
    return told


def _look(path: pathlib.Path) -> tuple[bytes, float]:
    """The content, one byte more than allowed at most, and when it was touched last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "It is not a regular file", str(path))
        return file.read(_MAX_BYTES + 1), info.st_mtime
