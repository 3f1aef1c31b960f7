"""The named Platforms of a person: `~/.config/enlist/config.toml`.

    current = "prod"

    [contexts.prod]
    url = "https://platform.example.org:8440"
    pins = ["sha256:…"]
    token_file = "/home/me/.config/enlist/prod.token"

A token itself never stands here, only where it lies. `ENLIST_CONFIG` names another file. Known
limit: the file is written anew as a whole, so comments in it do not survive a change.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from runtime_kit import private_files

_MAX_BYTES = 262_144
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_TEXTS = ("url", "ca_file", "token_file")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One Platform and how to reach it."""

    url: str
    pins: tuple[str, ...] = ()
    ca_file: str | None = None
    token_file: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """All of them, and which one commands use."""

    contexts: Mapping[str, Context] = dataclasses.field(default_factory=dict)
    current: str | None = None

    def by_url(self, origin: str) -> Context | None:
        """The context for that address; the current one first."""
        ordered = sorted(self.contexts, key=lambda name: name != self.current)
        wanted = origin.rstrip("/").lower()
        found = (self.contexts[name] for name in ordered)
        return next((one for one in found if one.url.rstrip("/").lower() == wanted), None)


def place(environment: Mapping[str, str]) -> Path:
    """Where the file is (XDG Base Directory)."""
    if environment.get("ENLIST_CONFIG"):
        return Path(environment["ENLIST_CONFIG"])
    base = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "enlist" / "config.toml"


def check_name(name: str) -> str:
    """The name if it is one; raises a usage error otherwise."""
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"The context name {name[:80]!r} is not well formed: use a-z, 0-9, - and _."
        )
    return name


def read(path: Path) -> Book:
    """All contexts; none when there is no file. Raises a usage error for a broken one."""
    try:
        raw = private_files.read_bounded(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return Book()
    except (OSError, private_files.FileTooLarge) as error:
        raise click.UsageError(f"The file {path} cannot be read: {error}") from error
    import tomllib  # noqa: PLC0415 - most machines have no such file

    try:
        return _book(tomllib.loads(raw.decode()))
    except (ValueError, TypeError, AttributeError) as error:
        raise click.UsageError(f"The file {path} is not a list of contexts: {error}") from error


def write(path: Path, book: Book) -> None:
    """Replaces the file; its folder is made private."""
    private_files.ensure_private_folder(path.parent)
    private_files.write_private(path, _toml(book).encode())


def _book(document: Mapping[str, Any]) -> Book:
    contexts = {}
    for name, fields in document.get("contexts", {}).items():
        unknown = set(fields) - {*_TEXTS, "pins"}
        if unknown:
            raise ValueError(f"contexts.{name} has the unknown name {min(unknown)!r}")
        if not isinstance(fields.get("url"), str):
            raise TypeError(f"contexts.{name} has no url")
        for field in _TEXTS:
            if not isinstance(fields.get(field, ""), str):
                raise TypeError(f"contexts.{name}.{field} is not a text")
        pins = fields.get("pins", [])
        if not isinstance(pins, list) or not all(isinstance(pin, str) for pin in pins):
            raise ValueError(f"contexts.{name}.pins is not a list of texts")
        contexts[str(name)] = Context(
            url=fields["url"],
            pins=tuple(pins),
            ca_file=fields.get("ca_file"),
            token_file=fields.get("token_file"),
        )
    current = document.get("current")
    if current is not None and current not in contexts:
        raise ValueError(f"the current context {current!r} is not among them")
    return Book(contexts=contexts, current=current)


def _toml(book: Book) -> str:
    lines = ["# Written by enlist config. A token never stands here, only where it lies."]
    if book.current is not None:
        lines.append(f"current = {json.dumps(book.current)}")
    for name, context in sorted(book.contexts.items()):
        lines += ["", f"[contexts.{name}]", f"url = {json.dumps(context.url)}"]
        if context.pins:
            lines.append(f"pins = {json.dumps(list(context.pins))}")
        lines += [
            f"{field} = {json.dumps(value)}"
            for field, value in (("ca_file", context.ca_file), ("token_file", context.token_file))
            if value is not None
        ]
    return "\n".join(lines) + os.linesep
