"""What a new machine runs at its first boot: fetch the installer, install, join, and tell of each.

It travels as text inside the first-boot data (`rendering`), without its comments, and runs there
with the distribution's Python, which cloud-init brings: nothing but the standard library, and
nothing of the language that is younger than 3.8. All it knows comes out of the ticket, whose
document the Platform has signed and judges again when it is presented.

A server is known by its pin alone, which is compared before the first byte of a request. The token
leaves this process in the body of a request and in a file of root's, never as an argument.
Killed at any point it is started anew, by the unit or at the next boot, and goes on.

Known limit: what stops it before the Platform can be reached is told to the console alone.
"""

import base64
import collections
import hashlib
import http.client
import json
import os
import pathlib
import platform
import queue
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

FOLDER = pathlib.Path("/run/enlist-first-boot")
TICKET = FOLDER / "ticket.json"
BEGUN = FOLDER / "begun"
AGENT = pathlib.Path("/var/lib/enlist/worker/agent.json")
COMMAND = "/opt/enlist/worker/current/bin/enlist"
ROOM = "/var/tmp"  # noqa: S108 - a folder of root's alone is made in it
PREFIX = "enlist-first-boot-"
KEPT = ("/var/lib/cloud", "/run/cloud-init")
INSTANCE = "/run/cloud-init/instance-data.json"
WIPE_UNIT = "enlist-first-boot-wipe.service"
AGENT_UNIT = "enlist-agent.service"
ENROLL_PATH = "/api/v1/enroll"
MOST_DETAIL = 1000
MOST_INSTALLER_BYTES = 2_000_000
MOST_ARCHIVE_BYTES = 300_000_000
MOST_KEPT_BYTES = 8_000_000
CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
PACE_SECONDS = 1.1  # the Platform takes one report a second
AGENT_SECONDS = 60
GIVE_UP_SECONDS = 6 * 3600  # of the machine's running; the ticket has expired long before
TEMPORARY = 75
FINAL = 3


class Final(Exception):
    """Trying again does not help; a person has to read this."""


class Later(Exception):
    """It may pass; the unit tries again."""


def main(arguments: "list[str]") -> int:
    """Does what is left to do; the exit code says whether the unit is to try again."""
    os.umask(0o077)
    if not TICKET.exists():
        return 0
    ticket = json.loads(TICKET.read_text())
    if arguments == ["--wipe"]:
        wipe(ticket["document"])
        return 0
    if set(ticket["document"]) <= {"x"}:  # wiped at an earlier boot
        shutil.rmtree(FOLDER)
        return 0
    if AGENT.exists() and not BEGUN.exists():  # joined at an earlier boot
        run("systemctl", "start", "--no-block", WIPE_UNIT)
        return 0
    BEGUN.touch()
    return first_boot(ticket)


def first_boot(ticket: "dict[str, str]") -> int:
    """All of it, with what went wrong told."""
    boot = Boot(ticket)
    try:
        boot.carry_on()
    except Later as error:
        boot.teller.tell(boot.phase, f"Trying again: {error}")
        return FINAL if time.monotonic() > GIVE_UP_SECONDS else TEMPORARY
    except Final as error:
        boot.teller.tell("failed", f"{boot.phase}: {error}")
        return FINAL
    finally:
        boot.teller.finish()
    run("systemctl", "start", "--no-block", WIPE_UNIT)
    return 0


class Boot:
    """The way of one machine from nothing to an Agent that runs."""

    def __init__(self, ticket: "dict[str, str]") -> None:
        self.ticket = ticket
        self.known = json.loads(base64.b64decode(ticket["document"]))
        self.phase = "fetching"
        self.teller = Teller(ticket, self.known)

    def carry_on(self) -> None:
        """Every step that has not been done yet."""
        if not AGENT.exists():
            for left in pathlib.Path(ROOM).glob(f"{PREFIX}*"):  # by a power cut
                shutil.rmtree(left, ignore_errors=True)
            folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=ROOM))
            try:
                self.fetch_and_install(folder)
            except OSError as error:
                raise Final(f"{ROOM} cannot be written: {error.strerror or error}.") from error
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            self.begin("joining")
            self.join()
        self.begin("starting")
        self.wait_for_agent()

    def begin(self, phase: str) -> None:
        """The next phase."""
        self.phase = phase
        self.teller.tell(phase, "")

    def fetch_and_install(self, folder: pathlib.Path) -> None:
        """The installer and the archive that the ticket names, and what a person does with them."""
        self.begin("fetching")
        arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
        wanted = self.known["bundles"].get(arch)
        if wanted is None:
            raise Final(f"The Platform has no bundle for {arch}: enlist platform bundles add DIR")
        script, archive = folder / "install.sh", folder / "bundle.tar"
        path = f"/bundles/sha256/{wanted}"
        self.fetch(
            f"{path}/install.sh", script, MOST_INSTALLER_BYTES, self.known["installers"][arch]
        )
        self.fetch(path, archive, MOST_ARCHIVE_BYTES, wanted)
        self.begin("installing")
        options = ["--role", "worker", "--from", str(archive), "--sha256", wanted, "--yes"]
        self.must("The installer", "sh", str(script), *options)

    def fetch(self, path: str, target: pathlib.Path, most: int, wanted: str) -> None:
        """A file of the bundle port, which must have the hash that the ticket names."""
        digest = hashlib.sha256()
        with Asked(self.known["bundle_url"], self.known["bundle_pins"]) as asked:
            answer = asked.ask("GET", path)
            if answer.status != 200:
                raise refusal(answer.status, self.known["bundle_url"] + path)
            with target.open("wb") as file:
                while True:
                    try:
                        piece = answer.read(1 << 18)
                    except (OSError, http.client.HTTPException) as error:
                        raise Later(f"{path} broke off: {error}.") from error
                    if not piece:
                        break
                    most -= len(piece)
                    if most < 0:
                        raise Final(f"{path} is larger than Enlist makes it.")
                    digest.update(piece)
                    file.write(piece)
        found = digest.hexdigest()
        if found != wanted:
            raise Final(f"{path} has SHA-256 {found}, not {wanted}, which the ticket names.")

    def join(self) -> None:
        """As a person joins, with the ticket in place of a join token."""
        given = FOLDER / "join.json"
        given.write_text(json.dumps({**self.ticket, "instance": instance()}))  # the umask is 077
        try:
            self.must("The join", COMMAND, "worker", "join", "--ticket-file", str(given))
        finally:
            given.unlink()

    def wait_for_agent(self) -> None:
        """Until the service manager has the Agent running."""
        end = time.monotonic() + AGENT_SECONDS
        while run("systemctl", "is-active", "--quiet", AGENT_UNIT) != 0:
            if time.monotonic() > end:
                raise Later(f"{AGENT_UNIT} does not run after {AGENT_SECONDS} s.")
            time.sleep(0.5)

    def must(self, what: str, *command: str) -> None:
        """Runs a program that must succeed; what it says goes to the journal and the console."""
        kept = collections.deque(maxlen=12)  # type: collections.deque[str]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
        ) as process:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            for line in process.stdout:
                kept.append(printable(line.decode("utf-8", "replace")))
                say(kept[-1])
        if process.returncode == 0:
            return
        words = f"{what} ended with {process.returncode}: {' | '.join(kept)[-MOST_DETAIL:]}"
        raise Later(words) if process.returncode in (TEMPORARY, 1) else Final(words)


class Asked:
    """One connection to a server that is known by its pins."""

    def __init__(self, url: str, pins: "list[str]") -> None:
        self.url = url
        self.pins = pins
        parts = urllib.parse.urlsplit(url)
        context = ssl.create_default_context()
        if pins:  # the pin decides, below, and nothing is sent before it has
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.connection = http.client.HTTPSConnection(
            str(parts.hostname), parts.port, timeout=CONNECT_SECONDS, context=context
        )

    def __enter__(self) -> "Asked":  # noqa: PYI034 - Self is younger than 3.8
        try:
            self.connection.connect()
            self.connection.sock.settimeout(ANSWER_SECONDS)
        except OSError as error:
            raise Later(f"{self.url} cannot be reached: {error.strerror or error}.") from error
        found = f"sha256:{hashlib.sha256(spki(self.certificate())).hexdigest()}"
        if self.pins and found not in self.pins:
            self.connection.close()
            raise Later(f"{self.url} answers with the key {found}, not {' or '.join(self.pins)}.")
        return self

    def certificate(self) -> bytes:
        """The leaf that the server showed."""
        return self.connection.sock.getpeercert(binary_form=True) or b""

    def ask(self, method: str, path: str, body: "bytes | None" = None) -> http.client.HTTPResponse:
        """Sends one request; never follows a redirect."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            self.connection.request(method, path, body=body, headers=headers)
            return self.connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Later(f"{self.url}{path} does not answer: {error}.") from error

    def __exit__(self, *_: object) -> None:
        self.connection.close()


class Teller:
    """Tells the Platform of each phase, in order, beside the work; what fails is said here."""

    def __init__(self, ticket: "dict[str, str]", known: "dict[str, object]") -> None:
        self.ticket = ticket
        self.known = known
        self.waiting = queue.Queue()  # type: queue.Queue[tuple[str, str] | None]
        self.thread = threading.Thread(target=self.send_all, daemon=True)
        self.thread.start()

    def tell(self, phase: str, detail: str) -> None:
        """Has it told, and says it on the console."""
        say(f"{phase} {printable(detail)}".strip())
        self.waiting.put((phase, printable(detail)[:MOST_DETAIL]))

    def finish(self) -> None:
        """Waits, bounded, until all has been told."""
        self.waiting.put(None)
        self.thread.join(2 * ANSWER_SECONDS)

    def send_all(self) -> None:
        """The thread: one at a time, never faster than the Platform takes them."""
        last = FOLDER / "told"
        while True:
            item = self.waiting.get()
            if item is None:
                return
            if last.exists() and last.read_text() == "\n".join(item):
                continue
            try:
                self.send(*item)
                last.write_text("\n".join(item))
            except Later as error:
                say(f"not told ({item[0]}): {error}")
            time.sleep(PACE_SECONDS)

    def send(self, phase: str, detail: str) -> None:
        """One report; once more where the Platform has no time."""
        report = {
            "node_id": self.known["node_id"],
            "token": self.known["token"],
            "phase": phase,
            "detail": detail,
            "ticket": self.ticket,
        }
        for last in (False, True):
            pins = self.known["pins"]
            with Asked(str(self.known["platform_url"]), pins) as asked:  # type: ignore[arg-type]
                answer = asked.ask("POST", ENROLL_PATH, json.dumps(report).encode())
                if answer.status in (200, 204):
                    return
                if last or answer.status not in (429, 503):
                    raise Later(f"The Platform answers {answer.status}.")
            time.sleep(PACE_SECONDS)


def spki(certificate: bytes) -> bytes:
    """The public key's part of a certificate (X.509: the seventh field, after a version)."""

    def content(at: int) -> "tuple[int, int]":
        start, length = at + 2, certificate[at + 1]
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(certificate[at + 2 : start], "big")
        return start, start + length

    try:
        at = content(content(0)[0])[0]
        for _ in range(6 if certificate[at] == 0xA0 else 5):
            at = content(at)[1]
        return certificate[at : content(at)[1]]
    except IndexError:
        return b""


def instance() -> "dict[str, str]":
    """What cloud-init found out about this machine at its provider."""
    try:
        found = json.loads(pathlib.Path(INSTANCE).read_text())["v1"]
    except (OSError, ValueError, KeyError):
        return {}
    names = (("cloud", "cloud_name"), ("id", "instance_id"), ("region", "region"))
    return {ours: str(found[its])[:200] for ours, its in names if found.get(its)}


def refusal(status: int, url: str) -> Exception:
    """What an answer other than 200 means."""
    words = f"{url} answers {status}."
    return Later(words) if status >= 500 or status == 429 else Final(words)


def wipe(document: str) -> None:
    """Puts x for the ticket wherever cloud-init keeps it, in place, and removes our own files.

    As long as before, since one of those files is a pickle; each keeps its owner and mode.
    """
    secret = document.encode()
    for top in KEPT:
        for folder, _, names in os.walk(top):
            for path in (pathlib.Path(folder, name) for name in names):
                if path.is_symlink() or not path.is_file():
                    continue
                if path.stat().st_size > MOST_KEPT_BYTES:
                    continue
                held = path.read_bytes()
                if secret in held:
                    with path.open("r+b") as file:
                        file.write(held.replace(secret, b"x" * len(secret)))
                        os.fsync(file.fileno())
    shutil.rmtree(FOLDER)


def run(*command: str) -> int:
    """Runs a small program; its exit code."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=60).returncode


def printable(text: str) -> str:
    """On one line, in ASCII: it goes to a console and to the Platform."""
    return "".join(c if " " <= c <= "~" else " " for c in text).strip()


def say(text: str) -> None:
    """One line for the journal, and for the console that the provider shows."""
    sys.stderr.write(f"enlist-first-boot: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
