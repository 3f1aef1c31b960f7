"""The pictures and tables of the state machines, drawn from their tables.

What a state or an event means is the remark beside it in its file, so that it stands once.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from platform_server.dispatch import states as order_states
from platform_server.nodes import scheduling
from platform_server.nodes import states as node_states
from platform_server.operations import states as operation_states
from platform_server.tokens import states as token_states
from worker_agent.identity import states as machine_states

_REMARK: Final = re.compile(r'^    \w+ = "([^"]+)"  # (.+)$', re.MULTILINE)
_State = TypeVar("_State", bound=str)
_Event = TypeVar("_Event", bound=str)


def enrollment_text() -> str:
    """An enrollment on the Platform."""
    return _text(token_states.State, token_states.Event, table=token_states.TABLE)


def node_text() -> str:
    """A node on the Platform."""
    return _text(node_states.State, node_states.Event, table=node_states.TABLE)


def scheduling_text() -> str:
    """Whether a node takes work."""
    return _text(scheduling.Scheduling, scheduling.Event, table=scheduling.TABLE)


def order_text() -> str:
    """An order to a node."""
    return _text(order_states.State, order_states.Event, table=order_states.TABLE)


def operation_text() -> str:
    """An operation, of whatever kind."""
    return _text(operation_states.State, operation_states.Event, table=operation_states.TABLE)


def machine_text() -> str:
    """A machine that joins."""
    table = {
        (state, event): after
        for state, row in machine_states.TABLE.items()
        for event, after in row.items()
    }
    return _text(machine_states.State, machine_states.Event, table=table)


def _text(
    states: type[_State], events: type[_Event], *, table: Mapping[tuple[_State, _Event], _State]
) -> str:
    all_states, all_events = _members(states), _members(events)
    return "\n".join(
        [
            "```mermaid",
            *_picture(all_states, table=table),
            "```",
            "",
            *_matrix(all_states, all_events, table=table),
            "",
            *_meanings("State", states),
            "",
            *_meanings("Event", events),
        ]
    )


def _members(enumeration: type[_State]) -> list[_State]:
    return list(enumeration.__members__.values())  # type: ignore[attr-defined]


def _picture(
    states: list[_State], *, table: Mapping[tuple[_State, _Event], _State]
) -> Iterator[str]:
    """Mermaid's state diagram; an event that changes nothing is left to the matrix."""
    yield "stateDiagram-v2"
    for state in states:
        if "-" in state:
            yield f'    state "{state}" as {_id(state)}'
    yield f"    [*] --> {_id(states[0])}"
    labels: dict[tuple[_State, _State], list[str]] = {}
    for (state, event), after in table.items():
        if after != state:
            labels.setdefault((state, after), []).append(str(event))
    for (state, after), names in labels.items():
        yield f"    {_id(state)} --> {_id(after)}: {', '.join(names)}"
    for state in states:
        if not any(before == state for before, _ in labels):
            yield f"    {_id(state)} --> [*]"


def _matrix(
    states: list[_State], events: list[_Event], *, table: Mapping[tuple[_State, _Event], _State]
) -> Iterator[str]:
    yield f"| | {' | '.join(f'`{event}`' for event in events)} |"
    yield "|---" * (len(events) + 1) + "|"
    for state in states:
        cells = [table.get((state, event), "") for event in events]
        yield f"| **{state}** | {' | '.join(cells)} |"


def _meanings(title: str, enumeration: type[str]) -> Iterator[str]:
    found = _REMARK.findall(inspect.getsource(enumeration))
    if not found:
        return
    yield f"| {title} | Means |"
    yield "|---|---|"
    for name, meaning in found:
        yield f"| `{name}` | {meaning} |"


def _id(state: str) -> str:
    return state.replace("-", "_")
