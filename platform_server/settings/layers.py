"""Reads the settings from their layers; each value remembers where it came from.

In order, later wins: defaults, the file (`--config`, or config.toml in the data directory),
config.<environment>.toml and config.local.toml beside it, environment variables
ENLIST_<SECTION>__<NAME> (and the few of `_OTHER_VARIABLES`), flags. A name that does not exist is
refused with its source and the nearest name that does, since a misspelt limit must not silently be
no limit.
"""

import dataclasses
import difflib
import json
import pathlib
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pydantic

from platform_server.settings import groups
from runtime_kit import private_files
from wire_protocol import ids

MAX_FILE_BYTES: Final = 1_048_576
PREFIX: Final = "ENLIST_"
_OTHER_VARIABLES: Final = {"ENLIST_CLOUD_POLICY": "cloud.policy_file"}
DEFAULT: Final = "default"
_ENVIRONMENT: Final = "platform.environment"
_MANY: Final = (list, tuple)


class InvalidSettings(Exception):
    """A setting is unknown or out of shape: the message names it, its source and the right form.

    The program ends with exit code 2; nothing was started.
    """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value from one layer."""

    value: Any
    source: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force, and the source of each that is not the default."""

    settings: groups.Settings
    sources: Mapping[str, str]

    def source_of(self, name: str) -> str:
        """Where the value of `section.name` came from."""
        return self.sources.get(name, DEFAULT)


def load(
    data_dir: pathlib.Path,
    *,
    config_file: pathlib.Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Given],
) -> Loaded:
    """Reads every layer; raises `InvalidSettings`. Reads files, changes nothing."""
    path = config_file or data_dir / "config.toml"
    base = dict(_from_file(path, required=config_file is not None))
    variables = dict(_from_environment(environ))
    chosen = {**base, **variables, **flags}.get(_ENVIRONMENT)
    beside = (f"config.{chosen.value if chosen else 'dev'}.toml", "config.local.toml")
    merged = dict(base)
    for name in beside:
        if "/" not in name:
            merged |= dict(_from_file(path.parent / name, required=False))
    merged |= variables
    merged |= flags
    return _build(merged)


def known_names() -> list[str]:
    """Every `section.name` there is, without the nodes, whose names the operator chooses."""
    return [
        f"{section}.{name}"
        for section, group in _sections().items()
        if section != "nodes"
        for name in group.model_fields
    ]


def _sections() -> dict[str, type[groups.Group]]:
    return {
        section: groups.ConfiguredNode
        if section == "nodes"
        else typing.cast("type[groups.Group]", field.annotation)
        for section, field in groups.Settings.model_fields.items()
    }


def _from_file(path: pathlib.Path, *, required: bool) -> Iterator[tuple[str, Given]]:
    try:
        raw = private_files.read_regular(path, max_bytes=MAX_FILE_BYTES)
        content = tomllib.loads(raw.decode())
    except FileNotFoundError:
        if required:
            raise InvalidSettings(f"The settings file {path} does not exist.") from None
        return
    except (OSError, private_files.FileTooLarge) as fault:
        raise InvalidSettings(f"The settings file {path} cannot be read: {fault}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise InvalidSettings(f"The settings file {path} is not TOML: {fault}") from None
    yield from _flatten(content, source=f"file {path}")


def _flatten(content: Mapping[str, Any], *, source: str) -> Iterator[tuple[str, Given]]:
    for section, group in content.items():
        if not isinstance(group, dict):
            raise _unknown(section, source=source)
        for name, value in group.items():
            if section == "nodes" and isinstance(value, dict):
                for part, inner in value.items():
                    yield (
                        f"nodes.{_node(name, source=source)}.{part}",
                        Given(value=inner, source=source),
                    )
            else:
                yield f"{section}.{name}", Given(value=value, source=source)


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    for variable, name in _OTHER_VARIABLES.items():
        if variable in environ:
            source = f"environment variable {variable}"
            yield name, Given(value=environ[variable], source=source)
    for variable in sorted(environ):
        parts = variable.removeprefix(PREFIX).lower().split("__")
        if not variable.startswith(PREFIX) or len(parts) == 1:
            continue
        source = f"environment variable {variable}"
        if parts[0] == "nodes" and len(parts) > 1:
            parts[1] = _node(parts[1].replace("_", "-"), source=source)
        yield ".".join(parts), Given(value=environ[variable], source=source)


def _node(text: str, *, source: str) -> str:
    try:
        return ids.parse_node_id(text)
    except ValueError as fault:
        raise InvalidSettings(f"nodes ({source}): {fault}") from None


def _build(merged: Mapping[str, Given]) -> Loaded:
    tree: dict[str, Any] = {}
    for name, given in merged.items():
        annotation = _annotation_of(name, source=given.source)
        *folders, leaf = name.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = _read_text(given.value, annotation=annotation)
    sources = {name: given.source for name, given in merged.items()}
    sources |= _in_proportion(tree)
    try:
        settings = groups.Settings.model_validate(tree)
    except pydantic.ValidationError as fault:
        raise _out_of_shape(fault, sources=sources) from None
    return Loaded(settings=settings, sources=sources)


def _annotation_of(name: str, *, source: str) -> Any:
    section, _, rest = name.partition(".")
    leaf = rest.partition(".")[2] if section == "nodes" else rest
    group = _sections().get(section)
    if group is None or leaf not in group.model_fields:
        raise _unknown(name, source=source)
    return group.model_fields[leaf].annotation


def _read_text(value: Any, *, annotation: Any) -> Any:
    """Reads a text from the environment or a flag; a list is separated by commas."""
    if not isinstance(value, str):
        return value
    kinds = set(_kinds(annotation))
    if value == "" and type(None) in kinds:
        return None
    if kinds.isdisjoint(_MANY):
        return value
    if value.startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return [part.strip() for part in value.split(",") if part.strip()]


def _kinds(annotation: Any) -> Iterator[Any]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        for one in typing.get_args(annotation):
            yield from _kinds(one)
    elif origin is typing.Annotated:
        yield from _kinds(typing.get_args(annotation)[0])
    else:
        yield origin or annotation


def _in_proportion(tree: dict[str, Any]) -> dict[str, str]:
    """Raises the two narrower limits with the ceiling, unless they are set themselves."""
    group = tree.get("enrollment", {})
    fields = groups.EnrollmentGroup.model_fields
    try:
        factor = int(group["attempts_per_minute"]) / fields["attempts_per_minute"].default
    except (KeyError, TypeError, ValueError):
        return {}
    sources: dict[str, str] = {}
    for name in ("failures_per_address", "failures_per_token"):
        if factor > 1 and name not in group:
            group[name] = int(fields[name].default * factor)
            sources[f"enrollment.{name}"] = "in proportion to enrollment.attempts_per_minute"
    return sources


def _unknown(name: str, *, source: str) -> InvalidSettings:
    near = difflib.get_close_matches(name, [*known_names(), *_sections()], n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]}?" if near else ""
    return InvalidSettings(f"There is no setting {name} (from {source}).{hint}")


def _out_of_shape(
    fault: pydantic.ValidationError, *, sources: Mapping[str, str]
) -> InvalidSettings:
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    path = [str(part) for part in first["loc"] if isinstance(part, str)]
    name = ".".join(path[: 3 if path[:1] == ["nodes"] else 2])
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    return InvalidSettings(f"{name} (from {_source_at(name, sources=sources)}): {message}.")


def _source_at(name: str, *, sources: Mapping[str, str]) -> str:
    inside: Iterable[str] = (
        source for key, source in sources.items() if key == name or key.startswith(f"{name}.")
    )
    return next(iter(inside), DEFAULT)
