"""Commands of a worker typed as root on an installed machine: run as its account, in its folder.

So that no file of root's is left in the data directory, and nothing of the Agent's runs as root.
What only root may read (a token's file, a CA file) is read here and handed over on stdin. After the
join root tells the root helper whom to believe; when the machine has left, that it believes nobody.
Not for: a command with another `--data-dir` than the receipt's, which is somebody's own affair.
"""

import dataclasses
import os
import pathlib
import pwd
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from installer import layout as layout_kit
from installer import programs, units
from installer import receipt as receipt_kit
from operator_cli import global_options, join_input, own_folder, pending_join
from root_helper import expected, seed
from root_helper import places as helper_places
from runtime_kit import clock as clock_kit
from runtime_kit import private_files
from wire_protocol import ids, join_token, problems, tickets

JOIN_UNIT = "enlist-join.service"
_KEPT = ("TERM", "LANG", "LC_ALL", "NO_COLOR", "COLUMNS", "ENLIST_OUTPUT", "ENLIST_CRASH_AT")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KILLED = 128  # and above: by that signal less 128
_PIECE_BYTES = 1_048_576
RUN_SECONDS = 600.0  # a join that waits for its Platform has ended long before
TAKE_SECONDS = 900.0  # an archive over a slow line
_CLOCK = clock_kit.SystemClock()


class TookTooLong(click.ClickException):
    """What runs as the account did not end in time, and was killed."""

    exit_code = int(problems.Exit.TEMPORARY)

    def __init__(self, account: str, seconds: float) -> None:
        super().__init__(
            f"What runs as {account} did not end within {seconds:g} s, and was ended. Try again; "
            "where it stays so, see what else runs as that account."
        )


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
        raise own_folder.CannotHandOver(f"{error} Run the installer again.") from error
    if receipt is None or receipt.account is None:
        return None
    named = options.data_dir or options.environment.get("ENLIST_DATA_DIR")
    if named and not own_folder.is_named(pathlib.Path(named), receipt.data_dir):
        return None
    try:
        account = pwd.getpwnam(receipt.account)
    except KeyError:
        raise own_folder.CannotHandOver(
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
    asked = join_input.read(given, may_ask=not _has_joined(here))
    check = bool(given["check"])
    with_token = any(
        asked[name] is not None for name in ("join_token", "ticket", "enrollment_token")
    )
    if not check:
        _ensure_folder(here)
        if with_token:
            private_files.ensure_private_folder(here.places.folder)
            joins = _expected(asked)
            if joins is not None:
                seed.begin(here.places, joins)
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
    elif with_token and code not in pending_join.KEPT_FOR and code < _KILLED:
        here.places.join_by_root.unlink(missing_ok=True)  # nothing is pending any more either
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


def _expected(asked: Mapping[str, Any]) -> expected.Expected | None:
    """What root knows of the join before any of it runs as the account.

    None where the token is damaged: the join itself then says in what.
    """
    node_id = asked["node_id"]
    try:
        if asked["ticket"] is not None:
            ticket = tickets.read_document(tickets.parse(asked["ticket"].encode()).content)
            return expected.Expected(node_id=ticket.node_id, trust_key_ids=ticket.trust_key_ids)
        if asked["join_token"] is not None:
            join = join_token.decode(asked["join_token"])
            return expected.Expected(node_id=join.node_id, trust_key_ids=join.trust_key_ids)
        return expected.Expected(node_id=None if node_id is None else ids.parse_node_id(node_id))
    except ValueError:
        return None


def _has_joined(here: Installed) -> bool:
    return os.path.lexists(here.layout.data_dir / "agent.json")


def _ensure_folder(here: Installed) -> None:
    """The installer made it; where it was removed by hand it comes back with the right owner."""
    try:
        os.mkdir(here.layout.data_dir, private_files.PRIVATE_FOLDER)  # noqa: PTH102 - with its mode
    except FileExistsError:
        return
    except OSError as error:
        raise own_folder.CannotHandOver(
            f"{here.layout.data_dir} cannot be made: {error.strerror}. Run the installer again."
        ) from error
    os.chown(here.layout.data_dir, here.account.pw_uid, here.account.pw_gid)


def take_from(
    here: Installed,
    module: Sequence[str],
    *,
    most: int,
    seconds: float = TAKE_SECONDS,
    clock: clock_kit.Clock = _CLOCK,
) -> Iterator[bytes]:
    """What one of our modules says as the account, piece by piece, bounded in size and time.

    Raises click's `Exit` with its exit code where it fails; it has told why on stderr. Whoever is
    that account may stop the module, or hold its end of the pipe open: neither holds root up.
    """
    end = clock.monotonic() + seconds
    process = subprocess.Popen(stdout=subprocess.PIPE, **_as_account(here, module))
    assert process.stdout is not None  # noqa: S101 - it was asked for
    try:
        said = 0
        while True:
            left = end - clock.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TookTooLong(here.account.pw_name, seconds)
            piece = os.read(process.stdout.fileno(), _PIECE_BYTES)
            if not piece:
                break
            said += len(piece)
            if said > most:
                raise own_folder.CannotHandOver("What the worker's account hands over is too long.")
            yield piece
        try:
            process.wait(timeout=max(0.0, end - clock.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise TookTooLong(here.account.pw_name, seconds) from error
    finally:
        process.stdout.close()
        process.kill()  # where it has not ended
        process.wait()
    if process.returncode != 0:
        raise click.exceptions.Exit(_code(process.returncode))


def _run(
    here: Installed, module: Sequence[str], *, given: bytes | None, seconds: float = RUN_SECONDS
) -> int:
    """Runs one of our modules as the account; gives its exit code."""
    try:
        done = subprocess.run(
            input=given, check=False, timeout=seconds, **_as_account(here, module)
        )
    except subprocess.TimeoutExpired:
        TookTooLong(here.account.pw_name, seconds).show()
        return TookTooLong.exit_code
    except OSError as error:
        raise own_folder.CannotHandOver(
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
