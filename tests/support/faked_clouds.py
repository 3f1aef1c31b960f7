"""One real Platform with several faked providers beside it, each at work on the real clock.

What a machine does at its first boot is done by the product's own join and Agent, with the ticket
in the first-boot data that the fake was given. Not for: booting it, which tests/machines does; what
only one provider does wrong, which is tested beside its driver.
"""

import contextlib
import dataclasses
import json
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from runtime_kit import clock as clock_kit
from tests.support import faked_hetzner, real_platform
from tests.support.clouds import (
    aws,
    aws_bench,
    azure,
    azure_entra,
    azure_recorded,
    azure_things,
    digitalocean,
    gcp,
    gcp_description,
    gcp_oauth,
    ledger,
    linode,
    moto_process,
    openstack,
    recordings,
    referee,
    script,
    server,
    upcloud,
    upcloud_recorded,
    vultr,
)

_SETTLE_SECONDS: Final = 0.3


class Fake(server.Cloud, Protocol):
    """A fake that a thread brings on."""

    def settle(self) -> None:
        """Lets what is under way come to its end."""
        ...


class Judge(server.Referee, Protocol):
    """What holds a fake to its provider's description, and writes down what is not in it."""

    faults: list[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """How one provider is connected to and ordered at. `{address}` is where its fake is."""

    secret: str
    region: str
    size: str
    image: str
    create: str  # the call that buys
    save: Sequence[str] = ("--setting", "endpoint={address}")
    currency: str = "USD"
    telling: str = ""  # a part of the secret that no log may hold; by default all of it


SHOPS: Final[Mapping[str, Shop]] = {
    "aws": Shop(
        secret=aws_bench.SECRET_KEY,
        region="eu-west-1",
        size="t3.small",
        image="debian-12",
        create="ec2:RunInstances",
        save=(
            *("--credential", "aws-keys", "--field", f"access_key_id={aws_bench.ACCESS_KEY}"),
            *("--setting", "region=eu-west-1", "--setting", "regions=eu-west-1"),
            *("--setting", "endpoint={address}"),
        ),
    ),
    "azure": Shop(
        secret=azure_entra.SECRET,
        region="eastus",
        size="Standard_B2s",
        image="Debian:debian-12:12:latest",
        create="PUT Microsoft.Compute/virtualMachines",
        save=(
            *("--credential", "azure-secret", "--field", f"tenant_id={azure_entra.TENANT}"),
            *("--field", f"client_id={azure_entra.CLIENT}"),
            *("--field", f"subscription_id={azure_things.SUBSCRIPTION}"),
            *("--setting", f"resource_group={azure_things.RESOURCE_GROUP}"),
            *("--setting", "endpoint={address}"),
        ),
    ),
    "digitalocean": Shop(
        secret=digitalocean.TOKEN,
        region="fra1",
        size="s-1vcpu-2gb",
        image="debian-12-x64",
        create="POST /v2/droplets",
    ),
    "gcp": Shop(
        secret=gcp_oauth.document(),
        region="us-central1",
        size="e2-small",
        image="ubuntu-os-cloud/ubuntu-2404-lts-amd64",
        create="POST compute.instances.insert",
        save=("--credential", "gcp-key", "--setting", "endpoint={address}"),
        telling=gcp_oauth.private_key().splitlines()[1],
    ),
    "linode": Shop(
        secret=linode.TOKEN,
        region="eu-central",
        size="g6-standard-1",
        image="linode/debian12",
        create="POST /v4/linode/instances",
    ),
    "openstack": Shop(
        secret=openstack.SECRET,
        region="RegionOne",
        size="m1.small",
        image="debian-12",
        create="POST /servers",
        save=(
            *("--field", f"application_id={openstack.APPLICATION}"),
            *("--setting", "auth_url={address}", "--setting", "region=RegionOne"),
            *("--setting", "core_hourly=0.01", "--setting", "currency=EUR"),
        ),
        currency="EUR",
    ),
    "upcloud": Shop(
        secret=upcloud.TOKEN,
        region="fi-hel1",
        size="1xCPU-2GB",
        image="debian-12",
        create="POST /1.3/server",
        currency="EUR",
    ),
    "vultr": Shop(
        secret=vultr.TOKEN,
        region="fra",
        size="vc2-1c-2gb",
        image="2136",
        create="POST /v2/instances",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One provider's fake, at its address."""

    shop: Shop
    fake: Fake
    address: str

    @property
    def ledger(self) -> ledger.Ledger:
        """What it was asked and holds."""
        return self.fake.ledger

    @property
    def script(self) -> script.Script:
        """What it does wrong."""
        return self.fake.script


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The Platform and all the fakes beside it."""

    place: faked_hetzner.Place
    stalls: Mapping[str, Stall]

    def connect(self, provider: str) -> None:
        """Saves a connection of the provider's name."""
        stall = self.stalls[provider]
        words = [word.format(address=stall.address) for word in stall.shop.save]
        self.place.run(
            *("cloud", "connections", "save", provider, "--provider", provider),
            *("--secret-file", "-", *words),
            stdin=stall.shop.secret,
        )


@contextlib.contextmanager
def running(
    folder: pathlib.Path,
    *,
    addresses: Sequence[str] = ("127.0.0.1",),
    offer: Callable[[real_platform.RealPlatform, pathlib.Path], None] = faked_hetzner.offer_bundle,
) -> Iterator[Market]:
    """The Platform and every fake, for the length of a `with`.

    Machines that boot for real need `addresses` that they reach, and something to install.
    """
    clock = clock_kit.SystemClock()
    recordings.folder()
    moto_process.empty()
    stack = openstack.OpenStack(clock=clock)
    fakes: dict[str, Fake] = {
        "aws": aws.Aws(clock=clock),
        "azure": azure.Azure(clock=clock),
        "digitalocean": digitalocean.DigitalOcean(clock=clock),
        "gcp": gcp.Gcp(clock=clock),
        "linode": linode.Linode(clock=clock),
        "openstack": stack,
        "upcloud": upcloud.UpCloud(clock=clock),
        "vultr": vultr.Vultr(clock=clock),
    }
    judges: dict[str, Judge | None] = {
        "azure": azure_recorded.Referee() if azure_recorded.is_here() else None,
        "digitalocean": referee.of("digitalocean", host="https://api.digitalocean.com"),
        "gcp": gcp_description.Referee(),
        "upcloud": upcloud_recorded.Referee() if upcloud_recorded.is_here() else None,
    }
    policy = _policy(folder)
    environment = {
        **faked_hetzner.QUICK,
        "ENLIST_CLOUD_POLICY": str(policy),
        "ENLIST_CLOUD__CREDENTIAL_POLICY": "compat",
    }
    with contextlib.ExitStack() as all_of_them:
        served = {
            name: all_of_them.enter_context(server.Served(fake, referee=judges.get(name)))
            for name, fake in fakes.items()
        }
        stack.address = served["openstack"].address
        platform = all_of_them.enter_context(
            real_platform.running(
                folder / "platform",
                *("--bundle-port", "0"),
                environment=environment,
                addresses=addresses,
            )
        )
        offer(platform, folder)
        all_of_them.enter_context(_bringing_on(served, fakes))
        stalls = {
            name: Stall(shop=SHOPS[name], fake=fakes[name], address=served[name].address)
            for name in SHOPS
        }
        place = faked_hetzner.Place(
            platform=platform,
            fake=fakes["digitalocean"],  # type: ignore[arg-type]  # its `connect` is not used here
            address="",
            folder=folder,
        )
        yield Market(place=place, stalls=stalls)
        broken = [one.broken for one in served.values() if one.broken]
        assert not broken, broken
        faults = {name: judge.faults for name, judge in judges.items() if judge and judge.faults}
        assert not faults, faults


def _policy(folder: pathlib.Path) -> pathlib.Path:
    file = folder / "cloud.json"
    providers = {
        name: {
            "regions": [shop.region],
            "image": shop.image,
            "classes": [{"name": "starter", "size": shop.size}],
            "most_machines": 3,
            "most_hourly": "0.50",
            "currency": shop.currency,
        }
        for name, shop in SHOPS.items()
    }
    file.write_text(json.dumps({"version": 1, "providers": providers}))
    file.chmod(0o600)
    return file


@contextlib.contextmanager
def _bringing_on(served: Mapping[str, server.Served], fakes: Mapping[str, Fake]) -> Iterator[None]:
    """Lets what is under way at the fakes come to its end, again and again."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(_SETTLE_SECONDS):
            for name, fake in fakes.items():
                with served[name].working():
                    fake.settle()

    thread = threading.Thread(target=go_on, name="fakes go on")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=10)
