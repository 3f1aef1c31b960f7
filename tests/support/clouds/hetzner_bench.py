"""The bench of Hetzner Cloud: its fake behind the shared server, held to its own description."""

from collections.abc import Mapping
from typing import Self

from provisioning import contract, providers
from tests.support.clouds import bench, hetzner, referee, server
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

TOKEN = "hz-token-of-the-tests-0123456789"
READING_TOKEN = "hz-reading-token-0123456789"


class HetznerBench(bench.Bench):
    """A project that is empty at first."""

    provider = "hetzner"
    steps = {  # noqa: RUF012 - as the base declares it
        bench.Step.CREATE: "POST /v1/servers",
        bench.Step.FIND: "GET /v1/servers",
        bench.Step.DESCRIBE: "GET /v1/servers/{id}",
        bench.Step.DELETE: "DELETE /v1/servers/{id}",
        bench.Step.LIST: "GET /v1/servers",
        bench.Step.POLL: "GET /v1/actions",
    }
    codes = bench.Codes(
        quota="resource_limit_exceeded",
        capacity="resource_unavailable",
        catalogue="invalid_server_type",
        locked="locked",
        async_capacity="resource_unavailable",
    )
    region = "fsn1"
    other_region = "hel1"
    size = "cx23"
    image = "debian-12"

    def __init__(self) -> None:
        super().__init__()
        self.fake = hetzner.FakeHetzner(clock=self.clock)
        self.referee = referee.of("hetzner", host="https://api.hetzner.cloud")
        self._served = server.Served(self.fake, referee=self.referee)
        self.secrets = [TOKEN]

    def __enter__(self) -> Self:
        self._served.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._served.close()
        faults = [*self._served.broken, *(self.referee.faults if self.referee else ())]
        if faults:
            raise AssertionError(f"The fake answered what the provider never would: {faults}")

    @property
    def ledger(self) -> ledger_kit.Ledger:
        return self.fake.ledger

    @property
    def script(self) -> script_kit.Script:
        return self.fake.script

    @property
    def address(self) -> str:
        """Where it is served."""
        return f"{self._served.address}/v1"

    def opening(self, *, token: str = TOKEN) -> providers.Opening:
        return providers.Opening(
            settings={},
            credential=bench.a_token(token),
            observer=self.told,
            clock=self.clock,
            endpoints={"": self.address},
        )

    def reading_driver(self) -> contract.Driver:
        """A driver whose token may only read."""
        return providers.open_driver(self.provider, self.opening(token=READING_TOKEN))

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        body = {
            "name": name,
            "server_type": self.size,
            "image": self.image,
            "location": self.region,
            "labels": dict(tags),
        }
        asked = server.Asked(
            method="POST",
            path="/v1/servers",
            query={},
            headers={"authorization": f"Bearer {TOKEN}"},
            body=server.Reply(document=body).body(),
        )
        reply = self.fake.answer(asked, name="POST /v1/servers", async_fail=None)
        return str(reply.document["server"]["id"])

    def ports_open(self, ref: str) -> list[str]:
        walls = self.fake.servers[int(ref)]["public_net"]["firewalls"]
        if not walls:
            return [bench.ANY_PORT]
        rules = [one for wall in walls for one in self.fake.firewalls[wall["id"]]["rules"]]
        return [str(one["port"]) for one in rules if one["protocol"] in {"tcp", "udp"}]

    def settle(self) -> None:
        self.clock.advance(60)
        self.fake.settle()


BENCH = HetznerBench
