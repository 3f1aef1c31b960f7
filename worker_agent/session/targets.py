"""Where the gateway is and by which keys it is known. Pure: a table tests it.

In pin mode the signed statement decides, first about the addresses and alone about the keys, since
a key that it no longer names may be in the wrong hands. In the other modes, and where a statement
names none, counts what `agent.json` has, which came over a connection proved by that mode.
"""

import dataclasses

from wire_protocol import pins, trust
from worker_agent.settings import agent_file, join_file


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The gateway as this machine knows it; without pins nothing can be asked of it."""

    urls: tuple[str, ...]
    pins: frozenset[pins.Pin]


def gateway_of(
    join: join_file.JoinFile, *, held: trust.Held, agent: agent_file.AgentFile
) -> Gateway | None:
    """The gateway to dial, None where nothing has been said of one."""
    stated = held.statement if join.mode.adopts_statements else None
    own = () if agent.gateway_url is None else (agent.gateway_url,)
    urls = own if stated is None else tuple(dict.fromkeys((*stated.gateway_urls, *own)))
    keys = stated.gateway_pins if stated is not None else ()
    known = frozenset(keys or agent.gateway_pins)
    return Gateway(urls=urls, pins=known) if urls and known else None
