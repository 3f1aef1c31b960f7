"""What the port answers: a file of the folder, or 404 with an empty body.

A file is opened without following a link and must be a regular one. It is sent as it was when it
was opened; a newer one that takes its place meanwhile is another file.
"""

import os
import stat
from pathlib import Path
from typing import Final

from platform_server.bundles import places
from platform_server.edge import notes
from runtime_kit.http1 import messages

_METHODS: Final = ("GET", "HEAD")
_SCRIPT: Final = {"content-type": "text/x-shellscript; charset=utf-8"}
_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}
_BINARY: Final = {"content-type": "application/octet-stream"}
_RETRY_AFTER_S: Final = 10


class OpenFile:
    """An open file as the body of an answer (``sending.Source``)."""

    def __init__(self, descriptor: int, *, size: int) -> None:
        self.size = size
        self._file = os.fdopen(descriptor, "rb", buffering=0)

    def read(self, most: int) -> bytes:
        """The next bytes."""
        return self._file.read(most) or b""

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class Door:
    """Decides by the head, then opens the file."""

    def __init__(self, folder: Path, *, tally: notes.Tally) -> None:
        self._folder = folder
        self._tally = tally

    def before_body(self, head: messages.Head) -> messages.Response | None:
        """404 with an empty body for all but the four forms."""
        if head.method in _METHODS and places.file_of(head.target) is not None:
            return None
        return messages.Response(status=404)

    def refusal(self, status: int) -> messages.Response:
        """An empty body; what the client may do about it stands in the status."""
        self._tally.count(f"refused_{status}")
        headers = {"retry-after": str(_RETRY_AFTER_S)} if status == 503 else {}
        return messages.Response(status=status, headers=headers)

    async def answer(self, request: messages.Request) -> messages.Response:
        """The file, or 404 where it is not there."""
        file = places.file_of(request.target)
        if file is None:
            return messages.Response(status=404)
        opened = self._open(file)
        if opened is None:
            self._tally.count("not_there")
            return messages.Response(status=404)
        self._tally.count("served")
        return messages.Response(status=200, headers=_headers(file), source=opened)

    def _open(self, file: Path) -> OpenFile | None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._folder / file, flags)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                notes.write("File cannot be opened", level="error", reason=str(error))
            return None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            return None
        return OpenFile(descriptor, size=found.st_size)


def _headers(file: Path) -> dict[str, str]:
    if file.name.endswith(places.INSTALLER):
        return _SCRIPT
    return _BINARY if file.parent.name == places.ARCHIVES else _TEXT
