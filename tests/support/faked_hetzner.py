"""A real Platform that orders at a faked Hetzner, and machines that enlist themselves from there.

The fake, the connection, the policy and the commands are those of the quickstart. What a machine
does at its first boot is done here by the product's own join and Agent, with the ticket that stands
in the first-boot data the fake was given. Not for: booting it, which tests/machines does.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence

import yaml

from runtime_kit import clock as clock_kit
from tests.support import machine, real_platform, small_bundles
from tests.support.clouds import hetzner, ledger, referee, server

TOKEN = "hz-token-of-the-tests-0123456789"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BEGIN, END = "ticket.json <<'ENLIST_END'\n", "\nENLIST_END\n"
QUICK = {"ENLIST_CLOUD__ALLOW_ENDPOINTS": "true", "ENLIST_PROBE__INTERVAL_SECONDS": "1"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The Platform and the fake beside it."""

    platform: real_platform.RealPlatform
    fake: hetzner.FakeHetzner
    address: str
    folder: pathlib.Path

    def run(
        self, *arguments: str, stdin: str = "", expect: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """One command; its exit code must be the expected one."""
        done = subprocess.run(
            [*real_platform.ENLIST, "--data-dir", str(self.platform.data_dir), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=real_platform.clean_environment(),
            cwd=self.folder,
        )
        log = real_platform.tail(self.platform.log)
        assert done.returncode == expect, (arguments, done.returncode, done.stderr, log)
        return done

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """One command that goes on while the `with` does; it is to have ended by its end."""
        with subprocess.Popen(
            [*real_platform.ENLIST, "--data-dir", str(self.platform.data_dir), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=real_platform.clean_environment(),
            cwd=self.folder,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def connect(self, name: str = "hetzner", *, token: str = TOKEN, expect: int = 0) -> str:
        """Saves the connection as the quickstart does, at the fake's address."""
        return self.run(
            *("cloud", "connections", "save", name, "--provider", "hetzner"),
            *("--secret-file", "-", "--setting", f"endpoint={self.address}"),
            stdin=token,
            expect=expect,
        ).stdout

    @contextlib.contextmanager
    def booted(self, ref: str) -> Iterator[machine.Agent]:
        """The machine of this ref joins, and its Agent runs for the length of the `with`."""
        with booted(self.folder, bought=self.fake.ledger.machines[ref]) as agent:
            yield agent


@contextlib.contextmanager
def booted(folder: pathlib.Path, *, bought: ledger.Machine) -> Iterator[machine.Agent]:
    """The machine joins with its ticket, and its Agent runs for the length of the `with`."""
    worker = machine.dialling_out(folder, name=f"machine-{bought.instance_id}")
    file = folder / f"ticket-{bought.instance_id}.json"
    file.write_text(json.dumps({**ticket_of(bought), "instance": {"id": bought.instance_id}}))
    real_platform.run_enlist(
        *("--data-dir", str(worker.data_dir), "worker", "join", "--ticket-file", str(file))
    )
    with worker.agent() as agent:
        yield agent


def commands_of(page: str, *, heading: str) -> list[list[str]]:
    """The arguments of each `enlist` command in the plain blocks below that heading of a page."""
    section = page.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    blocks = [text for language, text in _BLOCK.findall(section) if not language]
    return [
        shlex.split(line)[1:]
        for block in blocks
        for line in block.splitlines()
        if line.startswith("enlist ")
    ]


def ticket_of(bought: ledger.Machine) -> dict[str, str]:
    """The ticket in the first-boot data that the fake was given, as cloud-init would read it."""
    config = yaml.safe_load(bought.user_data.decode("ascii"))
    text = "\n".join(config["bootcmd"])
    found = json.loads(text.partition(BEGIN)[2].partition(END)[0])
    assert isinstance(found, dict)
    return found


def offer_bundle(platform: real_platform.RealPlatform, folder: pathlib.Path) -> None:
    """Something to install, in form alone: what stands in for machines here installs nothing."""
    signer = small_bundles.key()
    public = folder / "release.pub"
    public.write_bytes(signer.public_pem)
    path = small_bundles.make(signer).write(folder)
    platform.enlist("platform", "bundles", "add", str(path), "--release-key", str(public))


def policy(
    folder: pathlib.Path, *, most_machines: int = 3, most_hourly: str = "0.05"
) -> pathlib.Path:
    """The operator's policy file of the quickstart."""
    file = folder / "cloud.json"
    rules = {
        "regions": ["fsn1", "hel1"],
        "image": "debian-12",
        "classes": [{"name": "starter", "size": "cx23"}, {"name": "growth", "size": "cx33"}],
        "most_machines": most_machines,
        "most_hourly": most_hourly,
        "currency": "EUR",
    }
    file.write_text(json.dumps({"version": 1, "providers": {"hetzner": rules}}))
    file.chmod(0o600)
    return file


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Faked:
    """The fake, and where it is served."""

    fake: hetzner.FakeHetzner
    address: str


@contextlib.contextmanager
def faking(*, action_seconds: float = 0.2) -> Iterator[Faked]:
    """The fake for the length of a `with`; its referee must have found nothing."""
    fake = hetzner.FakeHetzner(clock=clock_kit.SystemClock(), action_seconds=action_seconds)
    judge = referee.of("hetzner", host="https://api.hetzner.cloud")
    with server.Served(fake, referee=judge) as served:
        yield Faked(fake=fake, address=f"{served.address}/v1")
        assert not served.broken, served.broken
        assert judge is None or not judge.faults, judge.faults


@contextlib.contextmanager
def serving(
    folder: pathlib.Path,
    *,
    faked: Faked,
    crash_at: str | None = None,
    addresses: Sequence[str] = ("127.0.0.1",),
    offer: Callable[[real_platform.RealPlatform, pathlib.Path], None] = offer_bundle,
) -> Iterator[Place]:
    """A Platform beside the fake, which may be started again over the same folder."""
    crash = {} if crash_at is None else {"ENLIST_CRASH_AT": crash_at}
    environment = {**QUICK, "ENLIST_CLOUD_POLICY": str(policy(folder)), **crash}
    is_new = not (folder / "platform").exists()
    with real_platform.running(
        folder / "platform",
        *("--bundle-port", "0"),
        environment=environment,
        addresses=addresses,
    ) as platform:
        if is_new:
            offer(platform, folder)
        yield Place(platform=platform, fake=faked.fake, address=faked.address, folder=folder)


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[Place]:
    """Both, for the length of a `with`."""
    with faking() as faked, serving(folder, faked=faked) as place:
        yield place
