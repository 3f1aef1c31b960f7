"""The contract's bench on the DigitalOcean of our own."""

import contextlib
from collections.abc import Mapping
from typing import ClassVar, Self

from provisioning import providers
from tests.support.clouds import bench, digitalocean, referee, server
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit


class DigitalOceanBench(bench.Bench):
    """DigitalOcean, held to its own description."""

    provider: ClassVar[str] = "digitalocean"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "POST /v2/droplets",
        bench.Step.FIND: "GET /v2/droplets",
        bench.Step.DESCRIBE: "GET /v2/droplets/{id}",
        bench.Step.DELETE: "DELETE /v2/droplets/{id}",
        bench.Step.LIST: "GET /v2/droplets",
        bench.Step.POLL: "GET /v2/actions/{id}",
    }
    codes: ClassVar[bench.Codes] = bench.Codes(
        quota="droplet_limit",
        capacity="no_capacity",
        catalogue="bad_size",
        locked="pending_event",
        async_capacity="errored",
    )
    region: ClassVar[str] = "fra1"
    other_region: ClassVar[str] = "nyc3"
    size: ClassVar[str] = "s-1vcpu-2gb"
    addresses_carry_owner: ClassVar[bool] = False
    image: ClassVar[str] = "debian-12-x64"

    def __init__(self) -> None:
        super().__init__()
        self.cloud = digitalocean.DigitalOcean(clock=self.clock)
        self.secrets.append(digitalocean.TOKEN)
        self.referee = referee.of("digitalocean", host="https://api.digitalocean.com")
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._served = self._stack.enter_context(server.Served(self.cloud, referee=self.referee))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        assert not self._served.broken, self._served.broken
        assert self.referee is None or not self.referee.faults, self.referee.faults

    @property
    def ledger(self) -> ledger_kit.Ledger:
        return self.cloud.ledger

    @property
    def script(self) -> script_kit.Script:
        return self.cloud.script

    def opening(self) -> providers.Opening:
        return providers.Opening(
            settings={},
            credential=bench.a_token(digitalocean.TOKEN),
            observer=self.told,
            clock=self.clock,
            endpoints={"": self._served.address},
        )

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        planted = [f"{key}:{value}" for key, value in tags.items()]
        return str(self.cloud.plant(name=name, tags=planted))

    def ports_open(self, ref: str) -> list[str]:
        """What the firewalls with a tag of its let in; all of it where there is none."""
        tags = set(self.cloud.droplets[int(ref)].tags)
        walls = [one for one in self.cloud.children.firewalls.values() if tags & set(one["tags"])]
        if not walls:
            return [bench.ANY_PORT]
        return [str(rule["ports"]) for one in walls for rule in one["inbound_rules"]]

    def settle(self) -> None:
        self.clock.advance(60)
        self.cloud.settle()


BENCH = DigitalOceanBench
