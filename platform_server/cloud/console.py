"""The end of what a machine's console showed, asked of its provider now, and made harmless.

What a machine writes to its console is the machine's word: nothing in it may move a person's
cursor, colour a terminal or reorder what is read, and no answer is longer than a person reads.
"""

import re
from typing import Final

from platform_server.cloud import machines, requests, using
from provisioning import abilities
from provisioning import contract as provider

MOST_CHARACTERS: Final = 65_536
# What a terminal obeys: CSI and OSC sequences and the short ones (ECMA-48).
_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
_ENDS: Final = re.compile(r"\r+\n|\r")


async def read(clouds: using.Clouds, *, machine: machines.Machine, actor: str) -> str | None:
    """Asks the machine's provider, on record; None where it has nothing to show yet.

    Raises:
        abilities.Lacking: the provider has no console that can be read.
        requests.WrongState: the machine is not there.
        outcomes.Fault, using.Paused: it could not be asked.
    """
    abilities.require(machine.provider, provider.Capability.CONSOLE)
    if machine.provider_ref is None or not machine.counts:
        raise requests.WrongState(f"The machine of {machine.node_id} is not there.")
    async with clouds.driver(
        machine.connection_id, purpose="read console", actor=actor, changes=False
    ) as driver:
        shown = await driver.console(machine.provider_ref, region=machine.region)
    return harmless(shown) if shown else None


def harmless(raw: str) -> str:
    """Lines of printable text, the last of them; what a terminal would obey is taken out."""
    end = raw[-2 * MOST_CHARACTERS :]
    lines = _ENDS.sub("\n", _SEQUENCES.sub("", end))
    plain = "".join(one if one in "\n\t" or one.isprintable() else "\ufffd" for one in lines)
    if len(end) == len(raw) and len(plain) <= MOST_CHARACTERS:
        return plain
    kept = plain[-MOST_CHARACTERS:]
    return kept.partition("\n")[2] or kept
