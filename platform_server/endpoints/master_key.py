"""`POST /platform/rotate-master-key`: a new master key, while everything runs."""

from platform_server.audit import events
from platform_server.endpoints import calls, refusals, routes
from platform_server.sealing import envelope, key_file, rotation
from platform_server.store import contract
from wire_protocol import admin


class MasterKeyRoutes:
    """Acts for one engine."""

    def __init__(self, engine: rotation.Engine) -> None:
        self._engine = engine

    async def rotate(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Begins the change in one transaction, then takes it as far as it goes.

        Where another engine has not followed yet, the change goes on by itself within seconds.
        """
        now = call.now()
        if not key_file.is_replaceable(self._engine.key_path):
            raise refusals.Refusal(
                "conflict",
                f"The master key lies in {self._engine.key_path}, which this process may not "
                "replace. Put it into the data directory as master.key and restart the Platform.",
            )

        async def work(tx: contract.Tx) -> calls.Changed:
            try:
                begun = await rotation.begin(tx, keyring=self._engine.keyring, now=now)
            except rotation.RotationUnderWay as fault:
                raise refusals.Refusal("conflict", str(fault)) from None
            changes = [
                admin.Change(
                    action="rotate",
                    target="master key",
                    detail="every sealed value is wrapped by a new key",
                )
            ]
            await events.append(
                tx,
                at=now,
                kind="platform.master-key-rotated",
                subject=begun.to_id,
                infra=call.settings.platform.infra,
                data={"from": begun.from_id},
            )
            await call.record(
                tx,
                action="platform.rotate-master-key",
                target=f"master-key:{begun.to_id}",
                infra=call.settings.platform.infra,
                details={"from": begun.from_id, "to": begun.to_id},
            )
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        reply = await call.mutate(work)
        if not call.check:
            await self._advance(call)
        return reply

    async def _advance(self, call: calls.Call[None, routes.NoQuery]) -> None:
        try:
            await rotation.advance(call.store, engine=self._engine, now=call.now())
        except (envelope.CannotOpen, key_file.Unusable) as fault:
            raise refusals.Refusal(
                "unavailable",
                f"The change has begun and goes on by itself once this is mended: {fault}",
                retry_after_seconds=5,
            ) from None


def served(engine: rotation.Engine) -> tuple[routes.Route, ...]:
    """The route of this module."""
    return (
        routes.Route(
            method="POST",
            path="/api/v1/platform/rotate-master-key",
            summary="Change the master key and wrap every sealed value with the new one.",
            handler=MasterKeyRoutes(engine).rotate,
            answer=admin.Done,
            changes=True,
            problems=("conflict", "unavailable"),
        ),
    )
