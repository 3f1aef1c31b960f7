"""What is asked of the Platform, as plain values: one `Call` a question, no I/O.

The builders in `nodes.py`, `tokens.py` and their neighbours make calls; `exchange.py` turns one
into requests; `client.py` carries them out. `Call` knows by type which model answers it, and by
name where that model is, so that building one imports no model.
"""

import dataclasses
import importlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from enlist import errors
from wire_protocol import product

if TYPE_CHECKING:
    from wire_protocol import admin

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One question to the Platform. `repeatable`: a second one after a lost answer does no harm.

    `answer` is `module:Model` of `wire_protocol`, or empty where nothing is answered. `keyed` sends
    an idempotency key, which makes it repeatable as well.
    """

    method: str
    path: str
    answer: str
    query: Mapping[str, str | list[str]] = dataclasses.field(default_factory=dict)
    body: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    keyed: bool = False
    repeatable: bool = False

    @property
    def target(self) -> str:
        """Path and query as they stand in the request line."""
        pairs = urllib.parse.urlencode(dict(self.query), doseq=True)
        return f"{product.API_PREFIX}{self.path}{'?' if pairs else ''}{pairs}"

    def parse(self, document: Any) -> T:
        """The typed answer; raises pydantic's `ValidationError` when it is none."""
        if not self.answer:
            return cast(T, None)
        module, _, name = self.answer.partition(":")
        model = getattr(importlib.import_module(f"wire_protocol.{module}"), name)
        return cast(T, model.model_validate(document))


def checked(call: "Call[Any]") -> "Call[admin.Checked]":
    """The same call in check mode: what would change, without changing it."""
    return Call(
        method=call.method,
        path=call.path,
        answer="admin:Checked",
        query={**call.query, "check": "true"},
        body=call.body,
        keyed=False,
        repeatable=True,
    )


def part(text: str) -> str:
    """A text as one segment of a path; raises `Invalid` for what would leave the path."""
    if text in ("", ".", ".."):
        raise errors.Invalid(f"{text!r} is not an id.", code="invalid")
    return urllib.parse.quote(text, safe="")


def given(**fields: Any) -> dict[str, Any]:
    """The fields that were given: None and empty collections are left to the Platform."""
    return {
        name: value for name, value in fields.items() if value is not None and value not in ([], {})
    }


def after(call: Call[T], *, cursor: str) -> Call[T]:
    """The same list from that cursor on."""
    return dataclasses.replace(call, query={**call.query, "cursor": cursor})


def page_query(
    *, limit: int | None, cursor: str | None, infra: str | None, label: Sequence[str] = ()
) -> dict[str, str | list[str]]:
    """What every list takes; the Platform sets and checks the bounds."""
    return given(
        limit=None if limit is None else str(limit),
        cursor=cursor,
        infra=infra,
        label=list(label),
    )
