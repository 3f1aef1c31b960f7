"""HTTP over a Platform's local socket, for tests that look often and want no process for each."""

import http.client
import socket


class Connection(http.client.HTTPConnection):
    """A connection to the socket at that path; whoever opens it is judged by his uid."""

    def __init__(self, path: str, *, seconds: float) -> None:
        super().__init__("platform", timeout=seconds)
        self._path = path
        self._seconds = seconds

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._seconds)
        self.sock.connect(self._path)
