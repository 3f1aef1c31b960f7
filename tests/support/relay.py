"""A TCP relay between machine and listener that obeys orders and keeps a capture.

It stands on loopback and passes bytes both ways. It can lose the answer to a request: once the
client has sent more than the end of a handshake takes, the first byte of the answer ends the
connection.
"""

import contextlib
import dataclasses
import selectors
import socket
import threading
from collections.abc import Iterator

CHUNK = 65_536
FINISHED_BYTES = 400  # after the server has spoken, a TLS 1.3 client ends its handshake in less
IDLE_SECONDS = 30.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Relay:
    """A running relay; `lose` answers are still to be lost, `sent` is what clients sent."""

    port: int
    target: tuple[str, int]
    lose: int = 0
    lost: int = 0
    sent: bytearray = dataclasses.field(default_factory=bytearray)
    stopping: threading.Event = dataclasses.field(default_factory=threading.Event)

    def serve_one(self, client: socket.socket) -> None:
        """Passes one connection's bytes until one side ends it or an answer is to be lost."""
        with (
            client,
            socket.create_connection(self.target, timeout=5) as server,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            asked = 0  # what the client has sent since the server spoke
            spoken = False
            while not self.stopping.is_set():
                ready = selector.select(IDLE_SECONDS)
                if not ready:
                    return
                for key, _ in ready:
                    source = client if key.data is server else server
                    content = source.recv(CHUNK)
                    if not content:
                        return
                    if source is client:
                        asked += len(content) if spoken else 0
                        self.sent += content
                    elif self.lose and asked > FINISHED_BYTES:
                        self.lose -= 1
                        self.lost += 1
                        return
                    else:
                        spoken = True
                    key.data.sendall(content)


@contextlib.contextmanager
def running(target: tuple[str, int], *, lose: int = 0) -> Iterator[Relay]:
    """A relay to the target for the length of a `with`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        relay = Relay(port=listening.getsockname()[1], target=target, lose=lose)
        threads: list[threading.Thread] = []

        def serve(client: socket.socket) -> None:
            with contextlib.suppress(OSError):  # either side may vanish: that is what it is for
                relay.serve_one(client)

        def accept() -> None:
            while not relay.stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    client, _ = listening.accept()
                    thread = threading.Thread(target=serve, args=(client,), daemon=True)
                    threads.append(thread)
                    thread.start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield relay
        finally:
            relay.stopping.set()
            acceptor.join(5)
