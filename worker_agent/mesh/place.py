"""Asking the Platform for this node's place, over a connection on which the node has proved itself.

Asked whenever a session opens, so that a moved endpoint, another network or a mesh that was turned
on later reaches every node by itself; and now and then where the mesh does not come up.
"""

import logging
from collections.abc import Awaitable, Callable

from runtime_kit import failures as network
from runtime_kit.wireguard import keys
from wire_protocol import mesh, session, strict_json
from worker_agent.mesh import grant_file, key
from worker_agent.settings import documents, failures, paths

LOGGER = logging.getLogger(__name__)
Asker = Callable[[str, bytes], Awaitable[bytes]]
"""Asks one question; raises `NetworkFailure` or a `Failure`."""


class NotAnswered(Exception):
    """The Platform could not be asked now; what the node has stays."""


async def ask(where: paths.Paths, *, asker: Asker) -> mesh.Grant | None:
    """The place, kept on the disk; None where there is none. Raises `NotAnswered`, `OSError`."""
    answer = await _ask_with(keys.public_key_of(key.ensure(where)), asker=asker)
    if answer.refused == mesh.KEY_IN_USE:
        LOGGER.warning("Another node has this machine's mesh key, it gets a new one")
        answer = await _ask_with(keys.public_key_of(key.replace(where)), asker=asker)
    if answer.refused is not None:
        LOGGER.warning("The Platform gives no mesh place", extra={"reason": answer.refused})
    if answer.grant != _kept(where):
        grant_file.write(where.mesh, answer.grant)
    return answer.grant


async def _ask_with(public_key: str, *, asker: Asker) -> mesh.Answer:
    try:
        said = await asker(session.Ask.MESH, mesh.Request(public_key=public_key).to_bytes())
        return mesh.parse_answer(said)
    except (network.NetworkFailure, failures.Failure, strict_json.Malformed) as fault:
        raise NotAnswered(str(fault)) from fault


def _kept(where: paths.Paths) -> mesh.Grant | None:
    try:
        return grant_file.read(where.mesh)
    except documents.Damaged:
        return None
