"""Ending an UpCloud server: it must be stopped first, and what is data must be taken off it.

Soft, then hard, then waiting, then the delete: every step is chosen by the state that UpCloud shows
now, so a delete that was cut off anywhere is simply begun again. `?storages=1` deletes all that is
attached; so volumes are detached before it, and nothing is deleted while one could not be.

Known limit: a server in maintenance can be neither stopped nor deleted, and one may take minutes to
stop; then the delete is given back as one to try later. A disk whose title no longer names its
owner is taken off and stays unless UpCloud marks it as the boot disk, which recorded answers never
do, not even with the only disk of a server.
"""

import datetime
from typing import Any, Final

from provisioning import contract, outcomes
from provisioning.upcloud import calls, reading
from provisioning.upcloud import client as client_kit
from runtime_kit import clock as clock_kit

PACE_SECONDS: Final = 5.0
SOFT_SECONDS: Final = 30
"""How long a machine may take to end by itself: the node has been drained before."""
MOST_SECONDS: Final = 120


async def delete(client: client_kit.Client, uuid: str, *, clock: clock_kit.Clock) -> None:
    """Has the server deleted with its own disk; returns once that is accepted.

    Backups of that disk stay: they are what a person asked for as snapshots.

    Raises:
        outcomes.Fault: with topic `STATE` where it would not stop in time; begin again later.
    """
    if not await _stopped(client, uuid, clock=clock):
        return
    server = await client.find(calls.GET, f"/1.3/server/{uuid}", "server")
    if server is None:
        return
    for device in reading.devices(server):
        if not _is_own_disk(server, device):
            await client.send(
                calls.DETACH,
                f"/1.3/server/{uuid}/storage/detach",
                body={"storage_device": {"address": device["address"]}},
            )
    try:
        await client.send(
            calls.DELETE, f"/1.3/server/{uuid}", params={"storages": 1, "backups": "keep"}
        )
    except outcomes.Fault as fault:
        if fault.code != "SERVER_NOT_FOUND":
            raise


async def _stopped(client: client_kit.Client, uuid: str, *, clock: clock_kit.Clock) -> bool:
    """Brings it to where it can be deleted; false: it is gone already."""
    begun = clock.monotonic()
    asked: list[str] = []
    while True:
        server = await client.find(calls.GET, f"/1.3/server/{uuid}", "server")
        if server is None:
            return False
        state = server.get("state")
        if state in {"stopped", "error"}:
            return True
        waited = clock.monotonic() - begun
        wanted = "soft" if waited < SOFT_SECONDS else "hard"
        if state == "started" and wanted not in asked:
            asked.append(wanted)
            await _stop(client, uuid, how=wanted)
            continue  # most stop at once
        if waited >= MOST_SECONDS or not asked:  # in maintenance there is nothing to wait for here
            raise outcomes.Fault(
                f"The server is still in state {state}; it can be deleted once it is stopped.",
                outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
                topic=outcomes.Topic.STATE,
                code="SERVER_STATE_ILLEGAL",
                retry_after=datetime.timedelta(seconds=SOFT_SECONDS),
            )
        await clock.sleep(PACE_SECONDS)


async def _stop(client: client_kit.Client, uuid: str, *, how: str) -> None:
    order = {"stop_type": how}
    if how == "soft":
        order["timeout"] = str(SOFT_SECONDS)
    try:
        await client.send(calls.STOP, f"/1.3/server/{uuid}/stop", body={"stop_server": order})
    except outcomes.Fault as fault:
        if fault.topic is not outcomes.Topic.STATE and fault.code != "SERVER_NOT_FOUND":
            raise  # in those two the next look says what it is now


def _is_own_disk(server: dict[str, Any], device: Any) -> bool:
    """Whether a disk goes with its machine: by our title, else by being what it boots from."""
    own = reading.instance(server).owner
    disk = reading.storage({"uuid": device["storage"], "title": device.get("storage_title", "")})
    if disk.kind is contract.ChildKind.DISK:
        return disk.owner == own
    return disk.owner is None and device.get("boot_disk") == "1"
