"""install.sh with a person before it: the token is asked for unseen, a removal is confirmed."""

import fcntl
import hashlib
import os
import pathlib
import select
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from tests.support import installing, small_releases

TOKEN = "enj_" + "c" * 50
SAYS = (
    "import hashlib; print('joined with', hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    " if 'join' in sys.argv else None"
)


@pytest.fixture(scope="module")
def place() -> Iterator[pathlib.Path]:
    with installing.open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def small(place: pathlib.Path) -> small_releases.Small:
    return small_releases.make(place / "release", key=small_releases.make_key(), body=SAYS)


class Terminal:
    """A program on a terminal of its own, as a person sees it."""

    def __init__(self, command: list[str], *, stdin: bytes | None = None) -> None:
        self._ours, theirs = os.openpty()
        self.seen = ""

        def take_terminal() -> None:
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        user = {"user": installing.NOBODY, "group": installing.NOBODY, "extra_groups": []}
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            command,
            stdin=subprocess.PIPE if stdin is not None else theirs,
            stdout=theirs,
            stderr=theirs,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "ENLIST_PYTHON": str(small_releases.SYSTEM_PYTHON),
            },
            cwd="/",
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509 - one thread here
            **(user if os.getuid() == 0 else {}),
        )
        if os.getuid() == 0:
            os.fchown(theirs, installing.NOBODY, -1)
        os.close(theirs)
        if stdin is not None:
            assert self.process.stdin is not None
            self.process.stdin.write(stdin)
            self.process.stdin.close()

    def until(self, text: str, *, seconds: float = 60) -> None:
        """Reads until the text has been seen."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} was not seen in {self.seen!r}"
            try:
                self.seen += os.read(self._ours, 4096).decode()
            except OSError:  # the other end is closed
                raise AssertionError(f"{text!r} was not seen in {self.seen!r}") from None

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Reads to the end; the exit code."""
        while True:
            try:
                data = os.read(self._ours, 4096)
            except OSError:
                break
            if not data:
                break
            self.seen += data.decode()
        os.close(self._ours)
        return self.process.wait(timeout=60)


def command(small: small_releases.Small, prefix: pathlib.Path, *options: str) -> list[str]:
    return ["sh", str(small.install_sh), "--role", "worker", "--prefix", str(prefix), *options]


def test_the_token_is_asked_for_and_not_shown(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    terminal = Terminal(command(small, place / "own" / "asked"))
    terminal.until("Join token (empty: join later): ")
    terminal.type(TOKEN + "\n")
    assert terminal.end() == 0, terminal.seen
    assert f"joined with {hashlib.sha256(TOKEN.encode()).hexdigest()}" in terminal.seen
    assert TOKEN not in terminal.seen


def test_it_is_asked_for_on_the_terminal_when_the_script_comes_through_a_pipe(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    words = command(small, place / "own" / "piped", "--from", str(small.folder))
    script = small.install_sh.read_bytes()
    terminal = Terminal(["sh", "-s", "--", *words[2:]], stdin=script)
    terminal.until("Join token (empty: join later): ")
    terminal.type(TOKEN + "\n")
    assert terminal.end() == 0, terminal.seen
    assert f"joined with {hashlib.sha256(TOKEN.encode()).hexdigest()}" in terminal.seen
    assert TOKEN not in terminal.seen


def test_an_empty_answer_installs_and_joins_later(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    terminal = Terminal(command(small, place / "own" / "later"))
    terminal.until("Join token (empty: join later): ")
    terminal.type("\n")
    assert terminal.end() == 0, terminal.seen
    assert "Not joined yet. Next:" in terminal.seen


def test_yes_asks_nothing(small: small_releases.Small, place: pathlib.Path) -> None:
    prefix = place / "own" / "yes"
    terminal = Terminal(command(small, prefix, "--yes"))
    assert terminal.end() == 0, terminal.seen
    assert "Join token" not in terminal.seen
    terminal = Terminal(command(small, prefix, "--yes", "--uninstall"))
    assert terminal.end() == 0, terminal.seen
    assert "[y/N]" not in terminal.seen
    assert not prefix.exists()


@pytest.mark.parametrize(("answer", "code"), [("n\n", 4), ("\n", 4), ("maybe\n", 4), ("y\n", 0)])
def test_a_removal_is_confirmed(
    answer: str, code: int, small: small_releases.Small, place: pathlib.Path
) -> None:
    prefix = place / "own" / f"confirmed-{answer.strip() or 'empty'}"
    assert installing.run([*command(small, prefix), "--yes"]).code == 0
    terminal = Terminal(command(small, prefix, "--uninstall"))
    terminal.until("[y/N] ")
    terminal.type(answer)
    assert terminal.end() == code, terminal.seen
    assert prefix.exists() is (code != 0)
