"""A small https server with a folder's files, for programs that download.

In a thread of its own; answers may be replaced path by path, and all that was asked is kept.
"""

import contextlib
import dataclasses
import http.server
import pathlib
import ssl
import threading
from collections.abc import Iterator

from tests.support import certificates


@dataclasses.dataclass(slots=True, kw_only=True)
class Answer:
    """What a path answers instead of a file; `times` how often, before the file stands again."""

    status: int
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    times: int = 1_000_000
    says_length: bool = True
    pace_seconds: float = 0.0  # between two bytes


class WebFolder:
    """The running server."""

    def __init__(self, folder: pathlib.Path, certificate: certificates.Issued) -> None:
        self.folder = folder
        self.certificate = certificate
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.port = 0
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def answer(self, path: str) -> Answer:
        """What this path answers now."""
        self.asked.append(path)
        other = self.answers.get(path)
        if other is not None and other.times > 0:
            other.times -= 1
            return other
        file = self.folder / path.lstrip("/")
        if file.is_file():
            return Answer(status=200, body=file.read_bytes())
        return Answer(status=404)


@contextlib.contextmanager
def serving(folder: pathlib.Path, *, scratch: pathlib.Path) -> Iterator[WebFolder]:
    """Serves the folder on a free port of localhost, with a certificate of its own."""
    certificate = certificates.issue(names=("localhost", "127.0.0.1"))
    web = WebFolder(folder, certificate)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = web.answer(self.path)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.says_length:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                if not answer.pace_seconds:
                    self.wfile.write(answer.body)
                    return
                for at in range(len(answer.body)):
                    self.wfile.write(answer.body[at : at + 1])
                    if web.closing.wait(answer.pace_seconds):
                        return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            del format, args

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hangs up at a wrong certificate is no error of ours."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.write(scratch / "server.pem"))
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield web
    finally:
        web.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
