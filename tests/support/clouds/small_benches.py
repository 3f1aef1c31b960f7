"""The contract's benches on the small fakes: Linode, Vultr, OpenStack."""

import contextlib
from collections.abc import Mapping
from typing import ClassVar, Self

from provisioning import credentials, naming, packed_owner, providers
from provisioning.libcloud_drivers import linode as linode_driver
from tests.support.clouds import bench, linode, openstack, server, small_cloud, vultr
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit


class SmallBench(bench.Bench):
    """What the three have in common."""

    codes: ClassVar[bench.Codes] = bench.Codes(
        quota="quota", capacity="capacity", catalogue="catalogue", locked="locked"
    )
    token: ClassVar[str]
    cloud: small_cloud.SmallCloud

    def __init__(self) -> None:
        super().__init__()
        self.secrets.append(self.token)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._served = self._stack.enter_context(server.Served(self.cloud))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        assert self._served.broken == []

    @property
    def ledger(self) -> ledger_kit.Ledger:
        return self.cloud.ledger

    @property
    def script(self) -> script_kit.Script:
        return self.cloud.script

    def opening(self) -> providers.Opening:
        return providers.Opening(
            settings={},
            credential=bench.a_token(self.token),
            observer=self.told,
            clock=self.clock,
            endpoints={"": self._served.address},
        )

    def settle(self) -> None:
        self.clock.advance(60)
        self.cloud.settle()


class LinodeBench(SmallBench):
    """Linode."""

    provider: ClassVar[str] = "linode"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "POST /v4/linode/instances",
        bench.Step.FIND: "GET /v4/linode/instances",
        bench.Step.DESCRIBE: "GET /v4/linode/instances/{id}",
        bench.Step.DELETE: "DELETE /v4/linode/instances/{id}",
        bench.Step.LIST: "GET /v4/linode/instances",
        bench.Step.POLL: "GET /v4/linode/instances/{id}",
    }
    region: ClassVar[str] = "eu-central"
    other_region: ClassVar[str] = "us-east"
    size: ClassVar[str] = "g6-standard-1"
    image: ClassVar[str] = "linode/debian12"
    token: ClassVar[str] = linode.TOKEN
    tells_codes: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.cloud = linode.Linode(clock=self.clock)

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        owner = naming.owner_of(tags)
        marks = [] if owner is None else linode_driver.tags_of(owner)
        return self.cloud.make(
            name=name,
            region=self.region,
            size=self.size,
            image=self.image,
            marks=marks,
            user_data=b"",
        ).ref


class VultrBench(SmallBench):
    """Vultr."""

    provider: ClassVar[str] = "vultr"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "POST /v2/instances",
        bench.Step.FIND: "GET /v2/instances",
        bench.Step.DESCRIBE: "GET /v2/instances/{id}",
        bench.Step.DELETE: "DELETE /v2/instances/{id}",
        bench.Step.LIST: "GET /v2/instances",
        bench.Step.POLL: "GET /v2/instances/{id}",
    }
    region: ClassVar[str] = "fra"
    other_region: ClassVar[str] = "ewr"
    size: ClassVar[str] = "vc2-1c-2gb"
    image: ClassVar[str] = "2136"
    token: ClassVar[str] = vultr.TOKEN
    tells_codes: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.cloud = vultr.Vultr(clock=self.clock)

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        owner = naming.owner_of(tags)
        return self.cloud.make(
            name=name,
            region=self.region,
            size=self.size,
            image=self.image,
            marks="" if owner is None else packed_owner.as_line(owner),
            user_data=b"",
        ).ref


class OpenStackBench(SmallBench):
    """OpenStack."""

    provider: ClassVar[str] = "openstack"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "POST /servers",
        bench.Step.FIND: "GET /servers/detail",
        bench.Step.DESCRIBE: "GET /servers/{id}",
        bench.Step.DELETE: "DELETE /servers/{id}",
        bench.Step.LIST: "GET /servers/detail",
        bench.Step.POLL: "GET /servers/{id}",
    }
    codes: ClassVar[bench.Codes] = bench.Codes(
        quota="quota",
        capacity="capacity",
        catalogue="catalogue",
        locked="locked",
        async_capacity="500",
    )
    region: ClassVar[str] = "RegionOne"
    other_region: ClassVar[str] = "RegionOne"
    size: ClassVar[str] = "m1.small"
    image: ClassVar[str] = "debian-12"
    token: ClassVar[str] = openstack.SECRET

    def __init__(self) -> None:
        super().__init__()
        self.cloud = self.stack = openstack.OpenStack(clock=self.clock)
        self.secrets.append(openstack.TOKEN)

    def __enter__(self) -> Self:
        super().__enter__()
        self.stack.address = self._served.address
        return self

    def opening(self) -> providers.Opening:
        return providers.Opening(
            settings={"auth_url": f"{self._served.address}/v3", "region": "RegionOne"},
            credential=credentials.parse(
                credentials.Kind.OPENSTACK_APPLICATION,
                {
                    "application_id": openstack.APPLICATION,
                    "application_secret": openstack.SECRET,
                },
            ),
            observer=self.told,
            clock=self.clock,
            may_stay_here=True,
        )

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        return self.cloud.make(
            name=name,
            region=self.region,
            size=self.size,
            image=openstack.IMAGES[self.image],
            marks=dict(tags),
            user_data=b"",
        ).ref
