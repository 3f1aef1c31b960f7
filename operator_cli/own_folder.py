"""Whether a folder that was named is the installed worker's, by whatever name it goes.

Compared is what the kernel says a name leads to (device and inode), and not its text: another way
of writing it would have root work in the Agent's folder, where the Agent lays links.
"""

import os
import pathlib

import click

from wire_protocol import problems


class CannotHandOver(click.ClickException):
    """What was typed cannot be done as the worker's account: the sentence says why."""

    exit_code = int(problems.Exit.NEEDS_OPERATOR)


def is_named(named: pathlib.Path, data_dir: pathlib.Path) -> bool:
    """Whether that is the installation's data directory, whatever it is called here.

    Raises `CannotHandOver` for what lies in it, and for a folder of another account than root's:
    whoever owns it could lead root anywhere.
    """
    path = named.expanduser().absolute()
    own = _look(data_dir)
    if own is None:
        return path.resolve() == data_dir.resolve()
    found = _look(path)
    if found is not None and os.path.samestat(found, own):
        return True
    for above in {*path.parents, *path.resolve().parents}:
        info = _look(above)
        if info is not None and os.path.samestat(info, own):
            raise CannotHandOver(f"{path} is in the worker's data directory: name {data_dir}.")
    if found is not None and found.st_uid != 0:
        raise CannotHandOver(
            f"{path} belongs to uid {found.st_uid}, and not to root: run this as that account."
        )
    return False


def _look(path: pathlib.Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CannotHandOver(f"{path} cannot be looked at: {error.strerror}.") from error
