"""F18 and its kind: no byte of the token reaches whoever is not proved to be the Platform.

The impostor holds its own TLS key, so it would read every byte that a client sends after the
handshake; and a relay before it keeps what crossed the wire.
"""

import asyncio
import contextlib
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator

import pytest

from tests.support import certificates, machine, relay, worker_command
from wire_protocol import enrollment_token

GENUINE_CA = certificates.issue(authority=True, names=(), common_name="genuine")
OTHER_CA = certificates.issue(authority=True, names=(), common_name="other")
BY_GENUINE = certificates.issue(issuer=GENUINE_CA, common_name="platform")
BY_OTHER = certificates.issue(issuer=OTHER_CA, common_name="platform")
SELF_SIGNED = certificates.issue(common_name="platform")
OTHER_NAME = certificates.issue(issuer=GENUINE_CA, names=("elsewhere.example",))

Shown = tuple[certificates.Issued, str]
NEGATIVES: dict[str, tuple[Shown, str]] = {
    "a certificate by another authority": ((BY_OTHER, OTHER_CA.pem), "ca"),
    "a self-signed leaf with the genuine authority appended": ((SELF_SIGNED, GENUINE_CA.pem), "ca"),
    "a good certificate for another name by the same authority": ((OTHER_NAME, ""), "ca"),
    "another key than the pinned one": ((SELF_SIGNED, ""), "pin"),
    "another key with the pinned certificate appended": ((SELF_SIGNED, BY_GENUINE.pem), "pin"),
    "a key under the pinned authority's own pin": ((BY_GENUINE, GENUINE_CA.pem), "pin-of-ca"),
    "a certificate valid in the system's store and not pinned": ((BY_OTHER, ""), "pin+store"),
    "the pinned key without the authority that must hold too": ((SELF_SIGNED, ""), "pin+ca"),
    "the right authority without the pinned key that must hold too": ((BY_GENUINE, ""), "ca+pin"),
    "no authority of the system's store": ((SELF_SIGNED, ""), "roots"),
}


class Impostor:
    """A TLS server that records what it is told after a handshake and answers nothing."""

    def __init__(self, *, shown: Shown, folder: pathlib.Path) -> None:
        self.told = b""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued, chain = shown
        self.context.load_cert_chain(issued.write(folder / "impostor.pem", chain=chain))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65_536):
                self.told += data


@contextlib.asynccontextmanager
async def answering(impostor: Impostor) -> AsyncIterator[int]:
    serving = await asyncio.start_server(impostor.serve, "127.0.0.1", 0, ssl=impostor.context)
    try:
        yield serving.sockets[0].getsockname()[1]
    finally:
        serving.close()


def trusting(how: str, *, folder: pathlib.Path) -> tuple[list[str], dict[str, str]]:
    """The flags and the environment by which the machine would know the genuine Platform."""
    ca_file = folder / "ca.pem"
    ca_file.write_text(GENUINE_CA.pem)
    store = folder / "store.pem"
    store.write_text(OTHER_CA.pem)
    ca = ["--platform-ca-file", str(ca_file)]
    pinned = ["--platform-fingerprint", BY_GENUINE.pin]
    found: dict[str, tuple[list[str], dict[str, str]]] = {
        "ca": (ca, {}),
        "pin": (pinned, {}),
        "pin-of-ca": (["--platform-fingerprint", GENUINE_CA.pin], {}),
        "pin+store": (pinned, {"SSL_CERT_FILE": str(store)}),
        "pin+ca": (["--platform-fingerprint", SELF_SIGNED.pin, *ca], {}),
        "ca+pin": (["--platform-fingerprint", SELF_SIGNED.pin, *ca], {}),
        "roots": ([], {}),
    }
    return found[how]


@pytest.mark.parametrize("case", NEGATIVES)
async def test_the_token_never_reaches(case: str, tmp_path: pathlib.Path) -> None:
    shown, how = NEGATIVES[case]
    impostor = Impostor(shown=shown, folder=tmp_path)
    flags, environment = trusting(how, folder=tmp_path)
    token = enrollment_token.new()
    folder = tmp_path / "worker"
    async with answering(impostor) as port:
        with relay.running(("127.0.0.1", port)) as between:
            done = await worker_command.enlist(
                *("worker", "join", "--data-dir", str(folder), *flags),
                *("--platform-url", f"https://127.0.0.1:{between.port}", "--node-id", "web-1"),
                *("--enrollment-token-file", "-"),
                *("--address", "127.0.0.1", "--port", str(machine.free_port())),
                stdin=token.text(),
                environment=environment,
            )
            crossed = bytes(between.sent)
    assert done.code == 6, done.err
    assert f"127.0.0.1:{between.port}" in done.err
    said = done.err.lower()
    assert said.count("nothing was sent") + said.count("token was not sent") == 1, done.err
    assert done.err.strip().endswith(("enlist nodes platform", "web-1 --replace")), done.err
    assert impostor.told == b"", "the impostor was told something after the handshake"
    assert token.secret_hex.encode() not in crossed
    assert len(crossed) < 3000, "more than handshakes crossed the wire"
    assert not (folder / "agent.json").exists()
    assert not (folder / "join.json").exists()


async def test_a_wrong_pin_prints_both_what_was_expected_and_what_came(
    tmp_path: pathlib.Path,
) -> None:
    impostor = Impostor(shown=(SELF_SIGNED, ""), folder=tmp_path)
    async with answering(impostor) as port:
        done = await worker_command.enlist(
            *("worker", "join", "--data-dir", str(tmp_path / "worker")),
            *("--platform-url", f"https://127.0.0.1:{port}", "--node-id", "web-1"),
            *("--platform-fingerprint", BY_GENUINE.pin, "--enrollment-token-file", "-"),
            stdin=enrollment_token.new().text(),
        )
    assert BY_GENUINE.pin in done.err
    assert SELF_SIGNED.pin in done.err


async def test_plain_http_is_refused_before_anything_is_opened(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
        port = listening.getsockname()[1]
        done = await worker_command.enlist(
            *("worker", "join", "--data-dir", str(tmp_path / "worker")),
            *("--platform-url", f"http://127.0.0.1:{port}", "--node-id", "web-1"),
            *("--enrollment-token-file", "-"),
            stdin=enrollment_token.new().text(),
        )
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert done.code == 2
    assert "Plain http is refused" in done.err
