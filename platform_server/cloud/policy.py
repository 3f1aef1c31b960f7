"""The operator's policy file: where machines may stand, of which kind, how many, for how much.

Nothing may be ordered from a provider that costs money unless this file has a section for it, and
nothing in it has a default: what is not written is not allowed. (But `most_kept`, of volumes, of
snapshots and of addresses, may be left out: it is then the number of the machines.) It is read anew
each time, so that an edit counts at once and a damaged file stops orders rather than leaving the
old limits in force.

    {"version": 1,
     "providers": {
       "hetzner": {
         "regions": ["fsn1", "hel1"],
         "image": "debian-12",
         "classes": [{"name": "starter", "size": "cx23"}, {"name": "growth", "size": "cx33"}],
         "most_machines": 5,
         "most_hourly": "0.50",
         "currency": "EUR"}}}

Known limit: money is capped by the hour, for everything there is at one moment; what a month may
cost in all follows from it.
"""

import dataclasses
import decimal
import errno
import json
import os
import pathlib
import stat
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import pydantic
from pydantic import Field

from provisioning import providers

MOST_BYTES: Final = 262_144
MICROS: Final = 1_000_000
_WRITABLE_BY_OTHERS: Final = 0o022
_HINT: Final = "See docs/cloud.md, “The policy file”."

_Word = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")
]


class Unavailable(Exception):
    """The provider cannot be used before something is set up; the message says what."""


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class Class(_Part):
    """A class of machines: the operator's name for one of the provider's sizes."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    size: _Word


class Rules(_Part):
    """What may be ordered from one provider, over all its connections."""

    regions: Annotated[list[_Word], Field(min_length=1, max_length=100)]
    image: _Word
    classes: Annotated[list[Class], Field(min_length=1, max_length=100)]
    most_machines: Annotated[int, Field(ge=0, le=10_000)]
    most_kept: Annotated[int, Field(ge=0, le=10_000)] | None = None
    most_hourly: Annotated[decimal.Decimal, Field(ge=0, le=1_000_000, strict=False)]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]

    @pydantic.model_validator(mode="after")
    def _each_name_once(self) -> Self:
        names = [one.name for one in self.classes]
        if len(set(names)) < len(names):
            raise ValueError("two classes have the same name")
        return self

    @property
    def most_hourly_micros(self) -> int:
        """Millionths of the currency's unit."""
        return int(self.most_hourly * MICROS)

    @property
    def sizes(self) -> frozenset[str]:
        """The provider's sizes that some class stands for."""
        return frozenset(one.size for one in self.classes)

    def find_class(self, name: str) -> Class | None:
        """The class of this name."""
        return next((one for one in self.classes if one.name == name), None)


class _File(_Part):
    version: Literal[1]
    providers: Annotated[dict[str, Rules], Field(max_length=50)]

    @pydantic.field_validator("providers")
    @classmethod
    def _known(cls, value: dict[str, Rules]) -> dict[str, Rules]:
        named: dict[str, Rules] = {}
        for name, rules in value.items():
            try:
                found = providers.get(name).name
            except providers.Unknown as fault:
                raise ValueError(str(fault)) from None
            if found in named:
                raise ValueError(f"{found} has two sections")
            named[found] = rules
        return named


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where the policy is, None where none is set."""

    path: pathlib.Path | None

    def read(self) -> Mapping[str, Rules]:
        """The rules by provider, nothing where no file is set; raises `Unavailable`."""
        if self.path is None:
            return {}
        try:
            return _parse(_read(self.path), path=self.path)
        except OSError as fault:
            raise Unavailable(
                f"The policy file {self.path} cannot be read: {os.strerror(fault.errno or 0)}."
            ) from None

    def find(self, provider: str) -> Rules | None:
        """The rules for one provider; None only where it costs nothing and has no section.

        Raises `Unavailable`: the file is missing or damaged, or has no section for a provider that
        costs money.
        """
        row = providers.get(provider)
        found = self.read().get(row.name)
        if found is None and row.costs_money:
            if self.path is None:
                raise Unavailable(
                    f"{row.title} costs money, and no policy file says how much may be spent. "
                    f"Set [cloud] policy_file, or ENLIST_CLOUD_POLICY. {_HINT}"
                )
            raise Unavailable(
                f"The policy file {self.path} has no section “{row.name}”, so nothing may be "
                f"ordered there. {_HINT}"
            )
        return found


def _open_at_once(path: str, flags: int) -> int:
    """A pipe with no writer is opened as well, so that it can be refused."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read(path: pathlib.Path) -> bytes:
    """The file's content; it must not be one that others can change."""
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if status.st_mode & _WRITABLE_BY_OTHERS:
            raise Unavailable(
                f"The policy file {path} can be changed by other accounts, so it decides about no "
                f"money. Run: chmod go-w {path}"
            )
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Unavailable(f"The policy file {path} is larger than {MOST_BYTES} bytes.")
    return content


def _parse(content: bytes, *, path: pathlib.Path) -> Mapping[str, Rules]:
    try:
        document: Any = json.loads(content, object_pairs_hook=_once, parse_float=decimal.Decimal)
        return _File.model_validate(document).providers
    except pydantic.ValidationError as fault:
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise Unavailable(f"The policy file {path}: {place}: {message}. {_HINT}") from None
    except (ValueError, RecursionError) as fault:
        raise Unavailable(f"The policy file {path} is not JSON: {fault}. {_HINT}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; the same key twice would hide a limit."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
