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
    digitalocean,
    ledger,
    linode,
    openstack,
    recordings,
    referee,
    script,
    server,
    upcloud,
    vultr,
)

_SETTLE_SECONDS: Final = 0.3


class Fake(server.Cloud, Protocol):
    """A fake that a thread brings on."""

    def settle(self) -> None:
        """Lets what is under way come to its end."""
        ...


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


SHOPS: Final[Mapping[str, Shop]] = {
    "digitalocean": Shop(
        secret=digitalocean.TOKEN,
        region="fra1",
        size="s-1vcpu-2gb",
        image="debian-12-x64",
        create="POST /v2/droplets",
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
    stack = openstack.OpenStack(clock=clock)
    fakes: dict[str, Fake] = {
        "digitalocean": digitalocean.DigitalOcean(clock=clock),
        "linode": linode.Linode(clock=clock),
        "openstack": stack,
        "upcloud": upcloud.UpCloud(clock=clock),
        "vultr": vultr.Vultr(clock=clock),
    }
    judge = referee.of("digitalocean", host="https://api.digitalocean.com")
    policy = _policy(folder)
    environment = {**faked_hetzner.QUICK, "ENLIST_CLOUD_POLICY": str(policy)}
    with contextlib.ExitStack() as all_of_them:
        served = {
            name: all_of_them.enter_context(
                server.Served(fake, referee=judge if name == "digitalocean" else None)
            )
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
        assert judge is None or not judge.faults, judge.faults


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
