"""The mark of a restore that has begun and not ended: `restore-under-way.json`.

While it stands in a data directory no Platform starts there, and the same restore goes on where it
was cut off. Its random id also stands in the store that the restore filled, so that a store is
taken for ours only if this very restore filled it.
"""

import dataclasses
import json
import pathlib
import secrets
from typing import Final

from platform_server.backup import failures
from runtime_kit import private_files

NAME: Final = "restore-under-way.json"
_MOST_BYTES: Final = 65_536


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """Which backup is being restored here."""

    restore_id: str
    backup_id: str
    made_at: str
    key_path: str
    """Where its master key is kept: the same place in each try."""


def find(data_dir: pathlib.Path) -> UnderWay | None:
    """The mark, or None; raises `TargetInUse` when it cannot be read."""
    path = data_dir / NAME
    try:
        document = json.loads(private_files.read_private(path, max_bytes=_MOST_BYTES))
        return UnderWay(
            restore_id=str(document["restore_id"]),
            backup_id=str(document["backup_id"]),
            made_at=str(document["made_at"]),
            key_path=str(document["key_path"]),
        )
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise failures.TargetInUse(f"{data_dir} is no directory.") from None
    except (
        OSError,
        private_files.FileTooLarge,
        private_files.LaxMode,
        KeyError,
        TypeError,
        ValueError,
    ) as fault:
        raise failures.TargetInUse(
            f"The mark {path} cannot be read ({fault}): empty the directory and restore again."
        ) from None


def begin(
    data_dir: pathlib.Path, *, backup_id: str, made_at: str, key_path: pathlib.Path
) -> UnderWay:
    """Sets the mark; raises OSError."""
    mark = UnderWay(
        restore_id=secrets.token_hex(16),
        backup_id=backup_id,
        made_at=made_at,
        key_path=str(key_path.absolute()),
    )
    private_files.write_private(
        data_dir / NAME, json.dumps(dataclasses.asdict(mark), indent=2).encode() + b"\n"
    )
    return mark


def end(data_dir: pathlib.Path) -> None:
    """Removes the mark: everything is in its place."""
    (data_dir / NAME).unlink(missing_ok=True)
    private_files.sync_folder(data_dir)
