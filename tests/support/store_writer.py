"""A program that writes to a store until it is killed and says what was acknowledged.

`python -m tests.support.store_writer URL RUN [CRASH_POINT]`: many transactions in flight, each
with two rows that belong together; a line on stdout for each acknowledged one. With a crash
point it kills itself there, once the store stands.
"""

import asyncio
import functools
import itertools
import os
import sys

from platform_server.store import contract, opening
from runtime_kit import crash_points

IN_FLIGHT = 16


async def write_on(url: str, *, run: str, crash_point: str) -> None:
    """Write pairs without end."""
    store = await opening.open_store(url)
    print("open", flush=True)  # noqa: T201 - its output is its purpose
    crash_points._target = crash_point
    numbers = itertools.count()

    async def write(tx: contract.Tx, *, name: str) -> None:
        for half in ("left", "right"):
            await tx.execute(
                "INSERT INTO platform_values (name, value) VALUES (?, 'x')", f"{name}.{half}"
            )

    async def one() -> None:
        while True:
            name = f"{run}.{next(numbers)}"
            await store.transact(functools.partial(write, name=name))
            os.write(1, f"{name}\n".encode())

    await asyncio.gather(*[one() for _ in range(IN_FLIGHT)])


if __name__ == "__main__":
    asyncio.run(
        write_on(sys.argv[1], run=sys.argv[2], crash_point=sys.argv[3] if sys.argv[3:] else "")
    )
