"""The contract's bench on the Google of our own, held to Google's own description."""

import contextlib
from collections.abc import Mapping
from typing import ClassVar, Self

from provisioning import credentials, providers
from tests.support.clouds import azure_bench, bench, gcp, gcp_description, gcp_oauth, server
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit


class GcpBench(bench.Bench):
    """Google."""

    provider: ClassVar[str] = "gcp"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "POST compute.instances.insert",
        bench.Step.FIND: "GET compute.instances.get",
        bench.Step.DESCRIBE: "GET compute.instances.get",
        bench.Step.DELETE: "DELETE compute.instances.delete",
        bench.Step.LIST: "GET compute.instances.aggregatedList",
        bench.Step.POLL: "GET compute.zoneOperations.get",
    }
    codes: ClassVar[bench.Codes] = bench.Codes(
        quota="quotaExceeded",
        capacity="ZONE_RESOURCE_POOL_EXHAUSTED",
        catalogue="notFound",
        locked="resourceNotReady",
        async_capacity="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    )
    region: ClassVar[str] = "us-central1"
    other_region: ClassVar[str] = "europe-west3"
    size: ClassVar[str] = "e2-small"
    image: ClassVar[str] = "ubuntu-os-cloud/ubuntu-2404-lts-amd64"
    signs_time: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.cloud = gcp.Gcp(clock=self.clock)
        self.referee = gcp_description.Referee()
        self.secrets += [gcp_oauth.private_key().splitlines()[1]]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.served = self._stack.enter_context(server.Served(self.cloud, referee=self.referee))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self.served.broken:
            raise self.served.broken[0]
        assert not self.referee.faults, self.referee.faults

    @property
    def ledger(self) -> ledger_kit.Ledger:
        """What the fake was asked and holds."""
        return self.cloud.ledger

    @property
    def script(self) -> script_kit.Script:
        """What it does wrong."""
        return self.cloud.script

    def opening(self) -> providers.Opening:
        """With a pasted key, which is good."""
        return providers.Opening(
            settings={},
            credential=credentials.parse(
                credentials.Kind.GCP_KEY, {"document": gcp_oauth.document()}
            ),
            observer=self.told,
            clock=azure_bench.HastyClock(self.clock),
            endpoints={"": self.served.address},
        )

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        """A machine made by somebody else."""
        return self.cloud.plant(name=name, tags=tags)

    def ports_open(self, ref: str) -> list[str]:
        """What rules of the project let in to this machine; without any, nothing comes in."""
        tags = set(self.cloud.held[ref].body.get("tags", {}).get("items", []))
        return [
            port
            for one in self.cloud.held.values()
            if one.kind == "firewalls"
            and (not one.body.get("targetTags") or tags & set(one.body["targetTags"]))
            for allowed in one.body.get("allowed", [])
            for port in allowed.get("ports", [bench.ANY_PORT])
        ]

    def settle(self) -> None:
        """Lets what was accepted come to its end."""
        self.clock.advance(60)
        self.cloud.settle()


BENCH = GcpBench
