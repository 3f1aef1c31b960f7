"""The contract's bench on the Azure of our own, held to recorded sessions of the real one."""

import contextlib
import datetime
from collections.abc import Mapping
from typing import ClassVar, Self

from provisioning import credentials, providers
from runtime_kit import clock as clock_kit
from tests.support.clouds import azure, azure_entra, azure_recorded, azure_things, bench, server
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit


class HastyClock:
    """A driver's view of the test's clock: its own waits are over at once, and have passed."""

    def __init__(self, clock: clock_kit.ManualClock) -> None:
        self._clock = clock

    def now(self) -> datetime.datetime:
        """The test's time."""
        return self._clock.now()

    def monotonic(self) -> float:
        """The test's seconds."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Moves the test's clock instead of waiting."""
        self._clock.advance(seconds)


class AzureBench(bench.Bench):
    """Azure."""

    provider: ClassVar[str] = "azure"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "PUT Microsoft.Compute/virtualMachines",
        bench.Step.FIND: "GET Microsoft.Compute/virtualMachines",
        bench.Step.DESCRIBE: "GET Microsoft.Compute/virtualMachines",
        bench.Step.DELETE: "DELETE Microsoft.Compute/virtualMachines",
        bench.Step.LIST: "GET Microsoft.Compute/virtualMachines",
        bench.Step.POLL: "GET operations",
    }
    codes: ClassVar[bench.Codes] = bench.Codes(
        quota="QuotaExceeded",
        capacity="SkuNotAvailable",
        catalogue="PlatformImageNotFound",
        locked="AnotherOperationInProgress",
        async_capacity="AllocationFailed",
    )
    region: ClassVar[str] = "eastus"
    other_region: ClassVar[str] = "westeurope"
    size: ClassVar[str] = "Standard_B2s"
    image: ClassVar[str] = "Debian:debian-12:12:latest"

    def __init__(self) -> None:
        super().__init__()
        self.cloud = azure.Azure(clock=self.clock)
        self.referee = azure_recorded.Referee() if azure_recorded.is_here() else None
        self.secrets.append(azure_entra.SECRET)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.served = self._stack.enter_context(server.Served(self.cloud, referee=self.referee))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self.served.broken:
            raise self.served.broken[0]
        assert self.referee is None or not self.referee.faults, sorted(set(self.referee.faults))

    @property
    def ledger(self) -> ledger_kit.Ledger:
        """What the fake was asked and holds."""
        return self.cloud.ledger

    @property
    def script(self) -> script_kit.Script:
        """What it does wrong."""
        return self.cloud.script

    def opening(self) -> providers.Opening:
        """With a client secret, which is good."""
        return providers.Opening(
            settings={"resource_group": azure_things.RESOURCE_GROUP},
            credential=credentials.parse(
                credentials.Kind.AZURE_SECRET,
                {
                    "tenant_id": azure_entra.TENANT,
                    "client_id": azure_entra.CLIENT,
                    "subscription_id": azure_things.SUBSCRIPTION,
                    "client_secret": azure_entra.SECRET,
                },
            ),
            observer=self.told,
            clock=HastyClock(self.clock),
            endpoints={"login": self.served.address, "arm": self.served.address},
        )

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        """A machine made by somebody else."""
        return self.cloud.plant(name=name, tags=tags)

    def ports_open(self, ref: str) -> list[str]:
        """What the rules of its cards' groups let in; all of it where a card has no group."""
        opened = []
        for card in self.cloud.held[ref.lower()].body["properties"]["networkProfile"][
            "networkInterfaces"
        ]:
            nic = self.cloud.held[card["id"].lower()].body["properties"]
            group = nic.get("networkSecurityGroup")
            if group is None:
                return [bench.ANY_PORT]
            rules = self.cloud.held[group["id"].lower()].body["properties"]["securityRules"]
            opened += [
                str(one["properties"]["destinationPortRange"])
                for one in rules
                if (one["properties"]["direction"], one["properties"]["access"])
                == ("Inbound", "Allow")
            ]
        return opened

    def settle(self) -> None:
        """Lets what was accepted come to its end."""
        self.clock.advance(60)
        self.cloud.settle()


BENCH = AzureBench
