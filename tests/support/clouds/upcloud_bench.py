"""The contract's bench on the UpCloud of our own."""

import contextlib
from collections.abc import Mapping
from typing import ClassVar, Self

from provisioning import credentials, providers
from tests.support.clouds import bench, recordings, server, upcloud, upcloud_recorded
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit


class UpCloudBench(bench.Bench):
    """UpCloud, made of recordings."""

    provider: ClassVar[str] = "upcloud"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "POST /1.3/server",
        bench.Step.FIND: "GET /1.3/server",
        bench.Step.DESCRIBE: "GET /1.3/server/{uuid}",
        bench.Step.DELETE: "DELETE /1.3/server/{uuid}",
        bench.Step.LIST: "GET /1.3/server",
        bench.Step.POLL: "GET /1.3/server/{uuid}",
    }
    codes: ClassVar[bench.Codes] = bench.Codes(
        quota="SERVER_CORE_LIMIT_REACHED",
        capacity="SERVER_RESOURCES_UNAVAILABLE",
        catalogue="ZONE_NOT_FOUND",
        locked="SERVER_STATE_ILLEGAL",
        async_capacity="state_error",
    )
    region: ClassVar[str] = "fi-hel1"
    other_region: ClassVar[str] = "de-fra1"
    size: ClassVar[str] = "1xCPU-2GB"
    addresses_carry_owner: ClassVar[bool] = False
    image: ClassVar[str] = upcloud.TEMPLATE

    def __init__(self) -> None:
        super().__init__()
        recordings.folder()  # skips where there is none
        self.cloud = upcloud.UpCloud(clock=self.clock)
        self.referee = upcloud_recorded.Referee() if upcloud_recorded.is_here() else None
        self.secrets.append(upcloud.TOKEN)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._served = self._stack.enter_context(server.Served(self.cloud, referee=self.referee))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        assert self._served.broken == []
        assert self.referee is None or not self.referee.faults, sorted(set(self.referee.faults))

    @property
    def ledger(self) -> ledger_kit.Ledger:
        return self.cloud.ledger

    @property
    def script(self) -> script_kit.Script:
        return self.cloud.script

    def opening(self) -> providers.Opening:
        credential = credentials.parse(credentials.Kind.UPCLOUD_TOKEN, {"token": upcloud.TOKEN})
        return providers.Opening(
            settings={},
            credential=credential,
            observer=self.told,
            clock=self.clock,
            endpoints={"": self._served.address},
        )

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        labels = [{"key": key, "value": value} for key, value in tags.items()]
        return self.cloud.plant(name=name, labels=labels)

    def settle(self) -> None:
        self.clock.advance(60)
        self.cloud.settle()


BENCH = UpCloudBench
