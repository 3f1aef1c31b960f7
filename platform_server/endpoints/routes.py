"""A route as a value: what it takes, what it gives, what it may refuse with.

The same value serves the call and describes it in the OpenAPI document, so the two cannot differ.
Who may call it stands in `access_table` alone.
"""

import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import pydantic

from platform_server.endpoints import calls
from wire_protocol import labels

Handler = Callable[["calls.Call[Any, Any]"], Awaitable["calls.Answer"]]

_METHODS = frozenset({"GET", "POST", "PATCH", "PUT", "DELETE"})
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

# `key` or `key=value`, each as labels are (wire_protocol.labels)
_LABEL = f"^{labels.KEY_PATTERN.strip('^$')}(={labels.VALUE_PATTERN.strip('^$')})?$"

MAX_PAGE = 500
DEFAULT_PAGE = 100


class NoQuery(pydantic.BaseModel):
    """A route without query parameters of its own."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class PageQuery(pydantic.BaseModel):
    """What every list takes."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[
        int, pydantic.Field(ge=1, le=MAX_PAGE, description="How many entries at most.")
    ] = DEFAULT_PAGE
    cursor: Annotated[
        str | None,
        pydantic.Field(max_length=512, description="`next_cursor` of the page before this one."),
    ] = None
    infra: Annotated[
        str | None,
        pydantic.Field(
            pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="Only this scope."
        ),
    ] = None


class LabelledPageQuery(PageQuery):
    """What a list takes whose entries carry labels."""

    label: Annotated[
        list[Annotated[str, pydantic.Field(pattern=_LABEL)]],
        pydantic.Field(
            max_length=16, description="Only entries with this label, `key=value` or `key`."
        ),
    ] = []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A request header that a route reads."""

    name: str
    text: str
    pattern: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route.

    `changes` makes it take `?check=true` and, for POST, `Idempotency-Key`. `secret_fields` are
    answered once: a replay gives null in their place and the code `token-already-shown`.
    `cursor` are the kinds of a list's sort key.
    `problems` are the codes it may refuse with beside those every route may. With `raw_body` the
    handler gets the bounded bytes and reads them with `parsing.read_body` itself (the enroll door
    must write a misshapen request into its audit). `word_may_be_an_id`: something may be called as
    the last word of the path; its other methods are then those of the path with the id.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    answer: type[pydantic.BaseModel] | None
    status: int = 200
    other_statuses: Mapping[int, str] = dataclasses.field(default_factory=dict)
    request: type[pydantic.BaseModel] | None = None
    query: type[pydantic.BaseModel] = NoQuery
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    headers: tuple[Header, ...] = ()
    cursor: tuple[type, ...] = (str,)
    changes: bool = False
    secret_fields: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    stream: bool = False
    raw_body: bool = False
    word_may_be_an_id: bool = False
    media_type: str = "application/json"

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"{self.path}: the method {self.method!r} is not used here.")
        if set(_PLACEHOLDER.findall(self.path)) != set(self.parameters):
            raise ValueError(f"{self.path}: every placeholder needs a sentence in `parameters`.")

    @property
    def key(self) -> tuple[str, str]:
        """What the access table lists it under."""
        return (self.method, self.path)

    @property
    def idempotent_by_key(self) -> bool:
        """Whether it takes `Idempotency-Key`."""
        return self.changes and self.method == "POST"
