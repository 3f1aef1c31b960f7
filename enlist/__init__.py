"""The SDK: what other people's Python imports to talk to an Enlist Platform.

    import enlist

    with enlist.Client() as client:
        for node in client.nodes.iterate():
            print(node.node_id, node.state)

`Client` waits, `AsyncClient` is awaited; both have the same calls and the same typed answers
(`wire_protocol.admin`). What goes wrong is one of the exceptions below, named by what to do next.
Importing this costs next to nothing: each name loads what it needs when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enlist.client import AsyncClient, Client
    from enlist.errors import (
        Conflict,
        EnlistError,
        Fault,
        Invalid,
        NeedsOperator,
        NotFound,
        NotPermitted,
        Refused,
        Temporary,
    )

_CLIENTS = ("AsyncClient", "Client")
_ERRORS = (
    "Conflict",
    "EnlistError",
    "Fault",
    "Invalid",
    "NeedsOperator",
    "NotFound",
    "NotPermitted",
    "Refused",
    "Temporary",
)

__all__ = [
    "AsyncClient",
    "Client",
    "Conflict",
    "EnlistError",
    "Fault",
    "Invalid",
    "NeedsOperator",
    "NotFound",
    "NotPermitted",
    "Refused",
    "Temporary",
]


def __getattr__(name: str) -> Any:
    if name in _CLIENTS:
        return getattr(importlib.import_module("enlist.client"), name)
    if name in _ERRORS:
        return getattr(importlib.import_module("enlist.errors"), name)
    raise AttributeError(f"module 'enlist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
