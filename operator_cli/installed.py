"""Commands of a worker typed as root on an installed machine: run as its account, in its folder.

So that no file of root's is left in the data directory, and nothing of the Agent's runs as root.
What only root may read (a token's file, a CA file) is read here and handed over on stdin. After the
join root tells the root helper whom to believe; when the machine has left, that it believes nobody.
Not for: a command with another `--data-dir` than the receipt's, which is somebody's own affair.
"""

import dataclasses
import getpass
import os
import pathlib
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from installer import layout as layout_kit
from installer import programs, units
from installer import receipt as receipt_kit
from operator_cli import global_options, pending_join
from root_helper import places as helper_places
from root_helper import seed
from runtime_kit import private_files
from wire_protocol import problems

JOIN_UNIT = "enlist-join.service"
_KEPT = ("TERM", "LANG", "LC_ALL", "NO_COLOR", "COLUMNS", "ENLIST_OUTPUT", "ENLIST_CRASH_AT")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_TOKEN_BYTES = 16_384
_MOST_CA_BYTES = 65_536
_PIECE_BYTES = 1_048_576


class CannotHandOver(click.ClickException):
    """What was typed cannot be done as the worker's account: the sentence says why."""

    exit_code = int(problems.Exit.NEEDS_OPERATOR)


class BadInput(click.ClickException):
    """The input is wrong: nothing was sent or spent."""

    exit_code = int(problems.Exit.INVALID)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The worker that is installed on this machine."""

    layout: layout_kit.Layout
    account: pwd.struct_passwd

    @property
    def places(self) -> helper_places.Places:
        """The root helper's files."""
        folder = self.layout.helper or layout_kit.HELPER_FOLDER
        return helper_places.Places(layout=self.layout, folder=folder)


def find(
    options: global_options.Options, *, prefix: pathlib.Path | None = None
) -> Installed | None:
    """The installation that the command is for, if root typed it; None: it runs as it is."""
    if os.geteuid() != 0:
        return None
    plain = layout_kit.system(layout_kit.Role.WORKER, prefix=prefix or own_prefix())
    try:
        receipt = receipt_kit.find(plain.receipt)
    except receipt_kit.Unreadable as error:
        raise CannotHandOver(f"{error} Run the installer again.") from error
    if receipt is None or receipt.account is None:
        return None
    named = options.data_dir or options.environment.get("ENLIST_DATA_DIR")
    if named and pathlib.Path(named).expanduser().absolute() != receipt.data_dir:
        return None
    try:
        account = pwd.getpwnam(receipt.account)
    except KeyError:
        raise CannotHandOver(
            f"The account {receipt.account} of the installation is gone. Run the installer again."
        ) from None
    layout = receipt_kit.layout_of(receipt, system=True, environment={})
    return Installed(layout=dataclasses.replace(layout, account=receipt.account), account=account)


def own_prefix(prefix: str = sys.prefix) -> pathlib.Path:
    """Where this very program is installed, else where installations go."""
    release = pathlib.Path(prefix).resolve()
    if release.parent.name == "releases" and len(release.parents) > 2:
        return release.parents[2]
    return layout_kit.DEFAULT_PREFIX


def run(name: str, callback: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """The command itself, or the same run as the account."""
    options = global_options.current()
    here = find(options)
    if here is None:
        return callback(**given)
    code = _join(here, options, given) if name == "join" else _other(here, options, name, given)
    if code != problems.Exit.DONE:
        raise click.exceptions.Exit(code)
    return None


def _join(here: Installed, options: global_options.Options, given: Mapping[str, Any]) -> int:
    asked = _asked(here, given)
    check = bool(given["check"])
    with_token = asked["join_token"] is not None or asked["enrollment_token"] is not None
    if not check:
        _ensure_folder(here)
        if with_token:
            private_files.ensure_private_folder(here.places.folder)
            seed.begin(here.places)
    words = ["--stdin", "--output", options.output, *(["--check"] if check else [])]
    if options.debug:
        words.append("--debug")
    code = _run(
        here,
        ["operator_cli.pending_join", "--data-dir", str(here.layout.data_dir), *words],
        given=pending_join.document(**asked),
    )
    if check:
        return code
    if code == problems.Exit.DONE:
        return _seed(here)
    if code == problems.Exit.TEMPORARY and with_token and units.is_running():
        click.echo(
            f"It is tried again until it succeeds or is refused: systemctl status {JOIN_UNIT}",
            err=True,
        )
        programs.ask(["systemctl", "start", "--no-block", JOIN_UNIT])
    elif code != problems.Exit.TEMPORARY:
        here.places.join_by_root.unlink(missing_ok=True)
    return code


def _other(
    here: Installed, options: global_options.Options, name: str, given: Mapping[str, Any]
) -> int:
    words = ["operator_cli", "--output", options.output, "--data-dir", str(here.layout.data_dir)]
    words += [f"--{flag}" for flag in ("yes", "debug") if options.typed(flag)]
    flags = [f"--{key.replace('_', '-')}" for key, value in given.items() if value is True]
    code = _run(here, [*words, "worker", name, *flags], given=None)
    if code == problems.Exit.DONE and not given.get("check"):
        if name == "leave":
            seed.forget(here.places)
        elif name == "refresh-trust":
            return _seed(here)
    return code


def _seed(here: Installed) -> int:
    """The join stands whatever comes of this; without it, updates from the Platform do not."""
    try:
        private_files.ensure_private_folder(here.places.folder)
        seed.seed(here.places, data_dir=here.layout.data_dir, uid=here.account.pw_uid)
    except (seed.NotSeeded, helper_places.Damaged, OSError) as error:
        click.echo(f"Warning: The root helper was not told: {error}", err=True)
    return problems.Exit.DONE


def _asked(here: Installed, given: Mapping[str, Any]) -> dict[str, Any]:
    token = _secret(given["join_token"], given["join_token_file"], what="join token")
    enrollment = _secret(
        given["enrollment_token"], given["enrollment_token_file"], what="enrollment token"
    )
    if token is None and enrollment is None and not _has_joined(here) and sys.stdin.isatty():
        if given["platform_url"] is not None:
            enrollment = getpass.getpass("Enrollment token: ")
        else:
            token = getpass.getpass("Join token: ")
    ca_file = given["platform_ca_file"]
    return {
        "join_token": token,
        "enrollment_token": enrollment,
        "ca_pem": None
        if ca_file is None
        else _text(ca_file, most=_MOST_CA_BYTES, what="--platform-ca-file"),
        "platform_url": given["platform_url"],
        "node_id": given["node_id"],
        "fingerprints": list(given["fingerprints"]),
        "addresses": list(given["addresses"]),
        "labels": list(given["labels"]),
        "port": given["port"],
    }


def _secret(argument: str | None, file: str | None, *, what: str) -> str | None:
    if argument is not None and file is not None:
        raise BadInput(f"The {what} is given twice: as an argument and as a file.")
    if argument == "-" or file == "-":
        content = sys.stdin.buffer.read(_MOST_TOKEN_BYTES + 1)
        return _decoded(content, most=_MOST_TOKEN_BYTES, what="stdin")
    if argument is not None:
        click.echo(
            f"Warning: The {what} stands in the command line, where every account of this machine "
            "can read it (ps). Give it on stdin (-) or in a file instead.",
            err=True,
        )
        return argument
    return None if file is None else _text(file, most=_MOST_TOKEN_BYTES, what=f"The {what}'s file")


def _text(file: str, *, most: int, what: str) -> str:
    try:
        content = private_files.read_bounded(pathlib.Path(file), max_bytes=most)
    except private_files.FileTooLarge as error:
        raise BadInput(f"{what}: {error}") from error
    except OSError as error:
        raise BadInput(f"{what}: {file} cannot be read: {error.strerror}.") from error
    return _decoded(content, most=most, what=file)


def _decoded(content: bytes, *, most: int, what: str) -> str:
    if len(content) > most:
        raise BadInput(f"{what} holds more than {most} bytes.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{what} holds no text.") from None
    if not text.strip():
        raise BadInput(f"{what} is empty.")
    return text


def _has_joined(here: Installed) -> bool:
    return os.path.lexists(here.layout.data_dir / "agent.json")


def _ensure_folder(here: Installed) -> None:
    """The installer made it; where it was removed by hand it comes back with the right owner."""
    try:
        os.mkdir(here.layout.data_dir, private_files.PRIVATE_FOLDER)  # noqa: PTH102 - with its mode
    except FileExistsError:
        return
    except OSError as error:
        raise CannotHandOver(
            f"{here.layout.data_dir} cannot be made: {error.strerror}. Run the installer again."
        ) from error
    os.chown(here.layout.data_dir, here.account.pw_uid, here.account.pw_gid)


def take_from(here: Installed, module: Sequence[str], *, most: int) -> Iterator[bytes]:
    """What one of our modules says as the account, piece by piece, bounded.

    Raises click's `Exit` with its exit code where it fails; it has told why on stderr.
    """
    with subprocess.Popen(stdout=subprocess.PIPE, **_as_account(here, module)) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        said = 0
        while piece := process.stdout.read(_PIECE_BYTES):
            said += len(piece)
            if said > most:
                process.kill()
                raise CannotHandOver("What the worker's account hands over is too long.")
            yield piece
    if process.returncode != 0:
        raise click.exceptions.Exit(_code(process.returncode))


def _run(here: Installed, module: Sequence[str], *, given: bytes | None) -> int:
    """Runs one of our modules as the account; gives its exit code."""
    try:
        done = subprocess.run(input=given, check=False, **_as_account(here, module))
    except OSError as error:
        raise CannotHandOver(
            f"The command cannot run as {here.account.pw_name}: {error.strerror}."
        ) from error
    return _code(done.returncode)


def _as_account(here: Installed, module: Sequence[str]) -> dict[str, Any]:
    kept = {name: os.environ[name] for name in (*_KEPT, *_PROXIES) if name in os.environ}
    isolated, where = (["-I"], {}) if _is_installed() else ([], {"PYTHONPATH": _checkout()})
    return {
        "args": [sys.executable, *isolated, "-m", *module],
        "env": {**kept, **where, "PATH": _PATH, "HOME": "/nonexistent"},
        "user": here.account.pw_uid,
        "group": here.account.pw_gid,
        "extra_groups": [],
        "umask": 0o077,
        "cwd": "/",
    }


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def _is_installed(prefix: str = sys.prefix) -> bool:
    return pathlib.Path(prefix).resolve().parent.name == "releases"


def _checkout() -> str:
    return str(pathlib.Path(__file__).resolve().parents[1])
