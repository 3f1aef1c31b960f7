"""What a person has this machine do at its Platform: `enlist worker renew` and `worker leave`.

Both travel over a short connection on the gateway, beside a session that may be open. Where this
machine's own Agent runs, the connection says so (the hash of the Agent's `instance`), so that the
Platform can tell the command from one on a copy of this machine.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from wire_protocol import ids, times
from worker_agent.identity import lock, own
from worker_agent.mesh import keeper as mesh_keeper
from worker_agent.session import beside, connecting, errands, outside
from worker_agent.settings import failures, paths
from worker_agent.trust import refresh


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """A renewed certificate, or how the present one stands."""

    node_id: ids.NodeId
    identity: own.Identity
    former_pin: str
    check: bool

    def to_document(self) -> dict[str, object]:
        """The JSON document on stdout."""
        return {
            "node_id": self.node_id,
            **({"check": True} if self.check else {}),
            "renewed": not self.check,
            "pin": self.identity.pin,
            "key_changed": self.identity.pin != self.former_pin,
            "not_after": times.to_rfc3339(self.identity.certificate.not_valid_after_utc),
        }

    def to_text(self) -> str:
        """The lines for a person."""
        until = f"{self.identity.certificate.not_valid_after_utc:%Y-%m-%d}"
        if self.check:
            return (
                f"This would happen (nothing was changed): node {self.node_id} would have a new "
                f"certificate; the present one is valid until {until}. The Platform was asked, and "
                "lets this machine in."
            )
        key = "with a new key" if self.identity.pin != self.former_pin else "with the key it had"
        return f"Node {self.node_id} has a new certificate {key}, valid until {until}."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A machine that is a node no more."""

    node_id: ids.NodeId
    where: paths.Paths
    check: bool

    def to_document(self) -> dict[str, object]:
        """The JSON document on stdout."""
        return {
            "node_id": self.node_id,
            **({"check": True} if self.check else {}),
            "left": not self.check,
            "data_dir": str(self.where.folder),
        }

    def to_text(self) -> str:
        """The lines for a person."""
        if self.check:
            return (
                "This would happen (nothing was changed): the Platform would remove node "
                f"{self.node_id}, and key, certificate, trust set and join would be deleted in "
                f"{self.where.folder}. The Platform was asked, and lets this machine in."
            )
        return (
            f"Node {self.node_id} is removed, and its files in {self.where.folder} are deleted. To "
            f"join this machine again, on the Platform: enlist nodes allow {self.node_id}"
        )


def around(
    where: paths.Paths,
    *,
    clock: clock_kit.Clock,
    environment: Mapping[str, str] = os.environ,
) -> outside.Outside:
    """What a command's errand needs; raises `NeedsOperator` on a machine that has not joined."""
    _, held = refresh.load(where)
    return beside.around(where, held=held, clock=clock, environment=environment)


async def renew(where: paths.Paths, *, using: outside.Outside, new_key: bool) -> Renewed:
    """Renews now; raises a `Failure`, and the present certificate stays in use."""
    _, agent = connecting.read(where)
    before = own.load(where)
    made = await errands.renew(where, around=using, new_key=new_key)
    return Renewed(node_id=agent.node_id, identity=made, former_pin=before.pin, check=False)


async def rehearse_renewal(where: paths.Paths, *, using: outside.Outside) -> Renewed:
    """Makes sure that the Platform would let this machine renew; changes nothing."""
    _, agent = connecting.read(where)
    await errands.greet(where, around=using)
    present = own.load(where)
    return Renewed(node_id=agent.node_id, identity=present, former_pin=present.pin, check=True)


async def leave(where: paths.Paths, *, using: outside.Outside) -> Left:
    """Has the Platform remove this node, then deletes its files here; may be repeated."""
    join, agent = connecting.read(where)
    if where.identity.exists():  # else the node was removed before, and the clearing was cut off
        await errands.leave(where, around=using)
    if where.mesh.exists():  # an Agent that was killed has left its interface
        member = mesh_keeper.Member(platform_id=join.platform_id, node_id=agent.node_id)
        await mesh_keeper.remove_interface(member)
    async with lock.waited_for(where, clock=using.clock):
        _forget(where)
    return Left(node_id=agent.node_id, where=where, check=False)


async def rehearse_leaving(where: paths.Paths, *, using: outside.Outside) -> Left:
    """Makes sure that the Platform would let this machine leave; changes nothing."""
    _, agent = connecting.read(where)
    await errands.greet(where, around=using)
    return Left(node_id=agent.node_id, where=where, check=True)


def _forget(where: paths.Paths) -> None:
    """Deletes what makes this machine a node; the same command finishes what was cut off."""
    leaving = where.folder / f".tmp-{where.identity.name}"
    try:
        with contextlib.suppress(FileNotFoundError):
            where.identity.rename(leaving)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(leaving)
        for path in (where.orders, where.mesh, where.trust, where.join, where.agent):
            path.unlink(missing_ok=True)
        where.session.unlink(missing_ok=True)  # last: a running Agent tells no more from here on
    except OSError as error:
        raise failures.Temporary(
            f"The Platform has removed this node, but {where.folder} could not be cleared "
            f"({error.strerror}).",
            hint=f"Delete it: rm -r {where.folder}",
        ) from error
