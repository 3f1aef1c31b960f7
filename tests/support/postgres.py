"""A real PostgreSQL for the tests: one server a pytest process, one database a test.

For: every test that must hold on both stores.
Not for: durability trials against PostgreSQL itself; the server runs without fsync.
Known limit: PostgreSQL refuses to run as root, so as root the distribution's account
`postgres` runs it. The server dies with the process that started it (a parent-death
signal), so a killed test run leaves no server behind, only a folder in the temp directory.
"""

import contextlib
import getpass
import itertools
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60.0
"""How long a server may take to accept its first connection on a loaded machine."""

STEP_SECONDS = 60.0
"""How long initdb or one psql call may take."""

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "deadlock_timeout": "100ms",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
    "lc_messages": "C",
    "timezone": "UTC",
}


class Unavailable(Exception):
    """PostgreSQL cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server; `new_database` gives a fresh database and its URL."""

    bin_dir: Path
    socket_dir: Path
    port: int
    process: subprocess.Popen[bytes]
    _numbers: Iterator[int]

    def new_database(self) -> str:
        """Make an empty database; the URL reaches it over loopback."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        self.run_sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def drop_database(self, url: str) -> None:
        """Remove a database of `new_database`, whoever is still connected."""
        self.run_sql(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def run_sql(self, sql: str, *, database: str = "postgres") -> str:
        """Run SQL as the server's superuser; what psql prints, unaligned."""
        done = subprocess.run(
            [
                str(self.bin_dir / "psql"),
                *("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres"),
                *("-h", str(self.socket_dir), "-p", str(self.port), "-d", database, "-c", sql),
            ],
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"psql failed on {sql!r}: {done.stderr.strip()}")
        return done.stdout.strip()


def find_bin_dir() -> Path:
    """The newest PostgreSQL's programs. Raises Unavailable when there is none."""
    found = sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0),
    )
    if found:
        return found[-1]
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    raise Unavailable("PostgreSQL is not installed (apt-get install postgresql)")


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Start a server of our own and stop it at the end. Raises Unavailable."""
    bin_dir = find_bin_dir()
    prefix, account = _as_account()
    root = Path(tempfile.mkdtemp(prefix="enlist-pg-"))
    try:
        if account != getpass.getuser():
            shutil.chown(root, account)
        _initdb(bin_dir, prefix=prefix, root=root)
        server = _start(bin_dir, prefix=prefix, root=root)
        try:
            yield server
        finally:
            server.process.terminate() if server.process.poll() is None else None
            try:
                server.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait(timeout=10)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _as_account() -> tuple[list[str], str]:
    """The command words that start a program as an account PostgreSQL accepts."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise Unavailable("setpriv (util-linux) is missing")
    # INT is PostgreSQL's fast shutdown.
    words = [setpriv, "--pdeathsig", "INT"]
    if os.getuid() != 0:
        return words, getpass.getuser()
    try:
        pwd.getpwnam("postgres")
    except KeyError as error:
        raise Unavailable("there is no account 'postgres' to run the server as") from error
    return [*words, "--reuid=postgres", "--regid=postgres", "--clear-groups"], "postgres"


def _initdb(bin_dir: Path, *, prefix: list[str], root: Path) -> None:
    done = subprocess.run(
        [
            *(*prefix, str(bin_dir / "initdb"), "-D", str(root / "data"), "-U", "postgres"),
            *("--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"),
        ],
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        cwd=root,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"initdb failed: {done.stderr.strip()}")


def _start(bin_dir: Path, *, prefix: list[str], root: Path) -> Server:
    # Somebody else may take the free port between the look and the start, hence the rounds.
    for _ in range(5):
        port = _free_port()
        settings = {**SETTINGS, "port": str(port), "listen_addresses": "127.0.0.1"}
        settings["unix_socket_directories"] = str(root)
        log = root / "server.log"
        with log.open("ab") as log_file:
            process = subprocess.Popen(
                [
                    *(*prefix, str(bin_dir / "postgres"), "-D", str(root / "data")),
                    *(
                        word
                        for name, value in settings.items()
                        for word in ("-c", f"{name}={value}")
                    ),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd=root,
                start_new_session=True,
            )
        if _accepts(bin_dir, process=process, root=root, port=port):
            return Server(
                bin_dir=bin_dir,
                socket_dir=root,
                port=port,
                process=process,
                _numbers=itertools.count(1),
            )
    raise Unavailable(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


def _accepts(bin_dir: Path, *, process: subprocess.Popen[bytes], root: Path, port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        asked = subprocess.run(
            [str(bin_dir / "pg_isready"), "-q", "-h", str(root), "-p", str(port)],
            timeout=STEP_SECONDS,
            check=False,
        )
        if asked.returncode == 0:
            return True
        time.sleep(0.05)
    process.kill()
    process.wait(timeout=10)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
