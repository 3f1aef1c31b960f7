"""The receipt of an installation: what was made here, so that it can be taken away again.

Written before the first thing is made, with the name of what is about to be made, and again at
each step: after a power cut it names a thing that may not be there yet, never the other way round.
Removal reads nothing else. It holds no secret and everybody may read it.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from installer import layout as layout_kit
from installer import waiting
from runtime_kit import private_files

FORMAT = 1
_MODE = 0o644
_MOST_BYTES = 1_048_576


class Unreadable(Exception):
    """The receipt cannot be read as one: it was changed by hand or comes from a newer Enlist."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One rule in a firewall: the command that was run, and the one that takes it back."""

    tool: str
    done: tuple[str, ...]
    undo: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one role has on this machine; `accounts` and `packages` are those that were made."""

    role: layout_kit.Role
    version: str
    release: str
    prefix: pathlib.Path
    data_dir: pathlib.Path
    account: str | None
    link: pathlib.Path
    installed_at: str
    updated_at: str
    accounts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    firewall: tuple[Opened, ...] = ()
    packages: tuple[str, ...] = ()

    def adding(
        self,
        *,
        accounts: Sequence[str] = (),
        files: Sequence[pathlib.Path] = (),
        folders: Sequence[pathlib.Path] = (),
        units: Sequence[str] = (),
        firewall: Sequence[Opened] = (),
        packages: Sequence[str] = (),
    ) -> "Receipt":
        """The same with more in its lists; what stands there already is not added twice."""
        return dataclasses.replace(
            self,
            accounts=_merged(self.accounts, accounts),
            files=_merged(self.files, [str(one) for one in files]),
            folders=_merged(self.folders, [str(one) for one in folders]),
            units=_merged(self.units, units),
            firewall=tuple(dict.fromkeys([*self.firewall, *firewall])),
            packages=_merged(self.packages, packages),
        )

    def to_document(self) -> dict[str, Any]:
        """As it stands in the file."""
        plain: dict[str, Any] = {"format": FORMAT}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, pathlib.Path):
                plain[field.name] = str(value)
            elif field.name == "firewall":
                plain[field.name] = [
                    {"tool": one.tool, "done": list(one.done), "undo": list(one.undo)}
                    for one in value
                ]
            else:
                plain[field.name] = list(value) if isinstance(value, tuple) else value
        return plain


def now() -> str:
    """The time of a step, RFC 3339 in UTC."""
    return waiting.SystemWaits().now().strftime("%Y-%m-%dT%H:%M:%SZ")


def write(receipt: Receipt, *, layout: layout_kit.Layout) -> None:
    """Puts the receipt in place of the one before, in one step."""
    content = json.dumps(receipt.to_document(), indent=2, sort_keys=True) + "\n"
    private_files.write_private(layout.receipt, content.encode(), mode=_MODE)


def find(path: pathlib.Path) -> Receipt | None:
    """The receipt at this path; None where there is none. Raises `Unreadable`."""
    try:
        content = private_files.read_regular(path, max_bytes=_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except private_files.FileTooLarge as error:
        raise Unreadable(str(error)) from error
    try:
        return _parse(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(
            f"{path} is no receipt of this Enlist ({error}): move it away, and run the same again."
        ) from error


def layout_of(
    receipt: Receipt, *, system: bool, environment: Mapping[str, str]
) -> layout_kit.Layout:
    """The places that the receipt names."""
    if system:
        return layout_kit.system(receipt.role, prefix=receipt.prefix, data_dir=receipt.data_dir)
    places = layout_kit.rootless(
        receipt.role, prefix=receipt.prefix, data_dir=receipt.data_dir, environment=environment
    )
    return dataclasses.replace(places, link=receipt.link)


def _merged(before: Sequence[str], added: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*before, *added]))


def _parse(plain: Any) -> Receipt:
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError("its format is not one that this version knows")
    account = plain["account"]
    return Receipt(
        role=layout_kit.Role(plain["role"]),
        version=_text(plain["version"]),
        release=_text(plain["release"]),
        prefix=_folder(plain["prefix"]),
        data_dir=_folder(plain["data_dir"]),
        account=None if account is None else _text(account),
        link=_folder(plain["link"]),
        installed_at=_text(plain["installed_at"]),
        updated_at=_text(plain["updated_at"]),
        accounts=_texts(plain["accounts"]),
        files=_texts(plain["files"]),
        folders=_texts(plain["folders"]),
        units=_texts(plain["units"]),
        firewall=tuple(
            Opened(tool=_text(one["tool"]), done=_texts(one["done"]), undo=_texts(one["undo"]))
            for one in plain["firewall"]
        ),
        packages=_texts(plain["packages"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(_text(one) for one in value)


def _folder(value: Any) -> pathlib.Path:
    path = pathlib.Path(_text(value))
    if not path.is_absolute() or len(path.parts) < 2 or ".." in path.parts:
        raise ValueError(f"{value!r} is no absolute path")
    return path
