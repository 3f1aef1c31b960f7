"""Tells the helper whom to believe: `python -I -m root_helper.seed --data-dir DIR`, run by root.

Run after a join: by `enlist worker join` typed as root, and by the unit that finishes a join. What
the Agent's folder shows counts for nothing by itself: either a key that the helper holds has signed
it, or it is what root joins just now (`expected`; the file `join-by-root` stands meanwhile). So an
Agent that was taken over cannot make up a join and have the helper follow it, whenever it tries.

`--forget` says that this machine has left.
"""

import argparse
import contextlib
import os
import pathlib
import pwd
import stat
import sys
from collections.abc import Sequence

from installer import layout as layout_kit
from root_helper import __main__ as program
from root_helper import expected, refusals, trusted
from root_helper import places as places_kit
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points, private_files
from wire_protocol import ids, problems, statements, strict_json, trust

SEEDED = crash_points.declare(
    "helper.seeded", story="The helper believes the new set; the sign of root's join still stands."
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_BYTES = 1_048_576


class NotSeeded(Exception):
    """The helper keeps what it believed; the message says why, and what helps."""


def main(arguments: Sequence[str]) -> int:
    """Seeds, begins or forgets; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -I -m root_helper.seed")
    parser.add_argument("--data-dir", type=pathlib.Path, required=True)
    parser.add_argument("--prefix", type=pathlib.Path, default=layout_kit.DEFAULT_PREFIX)
    parser.add_argument("--forget", action="store_true")
    given = parser.parse_args(arguments)
    try:
        places = program.places_of(given.prefix)
        private_files.ensure_private_folder(places.folder)
        if given.forget:
            forget(places)
        else:
            account = places.layout.account or layout_kit.ACCOUNTS[layout_kit.Role.WORKER][0]
            seed(places, data_dir=given.data_dir, uid=pwd.getpwnam(account).pw_uid)
    except (NotSeeded, program.CannotStart, places_kit.Damaged) as error:
        sys.stderr.write(f"Error: {error}\n")
        return problems.Exit.NEEDS_OPERATOR
    except (OSError, KeyError) as error:
        sys.stderr.write(f"Error: The root helper could not be told of the join: {error}\n")
        return problems.Exit.TEMPORARY
    return problems.Exit.DONE


def begin(places: places_kit.Places, joins: expected.Expected) -> None:
    """Root joins this machine now."""
    expected.write(places, joins)


def forget(places: places_kit.Places) -> None:
    """This machine has left its Platform: nobody is believed until root joins it again."""
    private_files.write_private(places.left, b"")
    for path in (places.join_by_root, places.trust, places.orders, places.outcome):
        path.unlink(missing_ok=True)


def seed(places: places_kit.Places, *, data_dir: pathlib.Path, uid: int) -> bool:
    """Takes what the join brought; says whether anything changed. Raises `NotSeeded`."""
    offered = read_join(data_dir, uid=uid)
    changed = _take(places, offered, joins=expected.read(places))
    crash_points.reach(SEEDED)
    places.join_by_root.unlink(missing_ok=True)
    return changed


def _take(
    places: places_kit.Places, offered: trusted.Known, *, joins: expected.Expected | None
) -> bool:
    is_first = not places.left.exists()
    try:
        known = trusted.find(places)
    except places_kit.Damaged:
        if joins is None:
            raise
        known, is_first = None, False
    if known is None:
        _require(joins, offered, is_first=is_first, otherwise="It was never told whom to believe.")
        trusted.write(places, offered)
        return True
    if (known.platform_id, known.node_id) != (offered.platform_id, offered.node_id):
        _require(joins, offered, otherwise=f"It serves node {known.node_id} of another join.")
        trusted.write(places, offered)
        places.orders.unlink(missing_ok=True)  # another Platform counts its orders anew
        return True
    if known.held.statement.number == offered.held.statement.number:
        return False
    answer = statements.TrustAnswer(present=offered.held.signed, chain=())
    try:
        trusted.advance(places, answer, now=clock_kit.SystemClock().now())
    except refusals.Refused as error:
        if joins is None or offered.held.statement.number < known.held.statement.number:
            raise NotSeeded(
                f"The root helper keeps the trust set it holds: {error} "
                "The Agent hands it what is missing when it next asks its Platform."
            ) from error
        _require(joins, offered, otherwise=str(error))
        trusted.write(places, offered)
    return True


def _require(
    joins: expected.Expected | None,
    offered: trusted.Known,
    *,
    is_first: bool = False,
    otherwise: str,
) -> None:
    """That root joins this very thing now; raises `NotSeeded`."""
    if joins is None:
        raise NotSeeded(
            f"The root helper does not follow this join. {otherwise} To have it follow, join as "
            "root: sudo enlist worker join -"
        )
    try:
        expected.require(joins, offered, is_first=is_first)
    except expected.NotExpected as error:
        raise NotSeeded(
            f"What the worker's folder shows is not what root joined: {error}"
        ) from error


def read_join(data_dir: pathlib.Path, *, uid: int) -> trusted.Known:
    """Node and trust set from the Agent's own folder, which may be a trap; raises `NotSeeded`."""
    try:
        with contextlib.closing(_Folder(data_dir, uid=uid)) as folder:
            agent = strict_json.read(folder.read("agent.json"), what="agent.json", most=_MOST_BYTES)
            fields = strict_json.read(
                folder.read("trust.json"), what="trust.json", most=_MOST_BYTES
            )
        signed = statements.parse_signed(fields)
        held = trust.Held(signed=signed, statement=statements.parse_statement(signed.content))
        with strict_json.judged():
            return trusted.Known(
                node_id=ids.parse_node_id(agent.text("node_id", most=64)), held=held
            )
    except (OSError, strict_json.Malformed) as error:
        raise NotSeeded(f"{data_dir} holds no finished join: {error}") from error


class _Folder:
    """A folder of an account's, read by root without being led anywhere else."""

    def __init__(self, path: pathlib.Path, *, uid: int) -> None:
        self._uid = uid
        self._descriptor = os.open(path, _FOLDER)

    def read(self, name: str) -> bytes:
        """A plain file of the account's; raises `OSError` for anything else."""
        descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != self._uid:
                raise OSError(f"{name} is no plain file of uid {self._uid}")
            return os.pread(descriptor, _MOST_BYTES, 0)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Closes the folder."""
        os.close(self._descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
