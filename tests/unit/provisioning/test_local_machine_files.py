"""Names, orders, records and addresses of machines on this host."""

import dataclasses
import datetime
import ipaddress
import pathlib
import shutil
from typing import Any

import pytest

from provisioning import contract, credentials, naming, providers
from provisioning.local import bridge, disk, driver, hands, host, images, keeper, machines, programs
from runtime_kit import clock as clock_kit

OWNER = contract.Owner(
    installation="plt_1", infra="default", operation="op_1", node="demo", attempt=1
)
NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
FIELDS: dict[str, Any] = {
    "kind": "nspawn",
    "owner": dataclasses.asdict(OWNER),
    "size": "small",
    "image": "debian-12",
    "network": "10.99.0.0/24",
    "first_boot": "#cloud-config\n{}\n",
}
MACHINE = machines.Machine(
    kind=machines.Kind.NSPAWN,
    name=naming.name_of(OWNER),
    owner=OWNER,
    size="small",
    image="debian-12",
    network="10.99.0.0/24",
    address="10.99.0.2",
    created_at=NOW,
)


def test_an_orders_machine_has_the_name_that_operation_and_attempt_give() -> None:
    assert machines.parse_wish(FIELDS).name == naming.name_of(OWNER)
    for node in ("n" * 63, "1node", "a.b.c"):
        owner = dataclasses.replace(OWNER, node=node)
        assert machines.check_name(naming.name_of(owner)) == naming.name_of(owner)


@pytest.mark.parametrize(
    "name",
    ["", "..", "../../etc-0123456789", "demo", "demo-012345678g", ".making-demo-0123456789",
     "demo-0123456789/x", "Demo-0123456789", "demo-0123456789\n"],
)  # fmt: skip
def test_no_other_name_is_taken(name: str) -> None:
    with pytest.raises(machines.Unusable):
        machines.check_name(name)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "docker"},
        {"size": "huge"},
        {"image": "debian-11"},
        {"image": "../debian-12"},
        {"network": "8.8.8.0/24"},
        {"network": "127.0.0.0/24"},
        {"network": "10.0.0.0/8"},
        {"network": "10.99.0.0/30"},
        {"network": "fd00::/64"},
        {"first_boot": "#cloud-config\n# é"},
        {"first_boot": "#" * 16_000},
        {"owner": {**FIELDS["owner"], "node": "a/b"}},
        {"owner": {**FIELDS["owner"], "operation": ""}},
        {"owner": {**FIELDS["owner"], "attempt": 0}},
        {"owner": None},
    ],
)
def test_an_order_out_of_form_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(machines.Unusable):
        machines.parse_wish({**FIELDS, **changes})


def test_a_record_reads_back_as_it_was_written(tmp_path: pathlib.Path) -> None:
    machines.write(tmp_path, MACHINE)
    assert machines.read(tmp_path) == MACHINE
    assert (tmp_path / machines.RECORD).stat().st_mode & 0o777 == 0o600


def test_a_damaged_record_is_no_machine_and_says_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / machines.RECORD).write_text('{"kind": "nspawn"}')
    with pytest.raises(machines.Unusable, match="damaged"):
        machines.read(tmp_path)


def test_addresses_are_given_once_and_never_the_hosts_own() -> None:
    network = ipaddress.IPv4Network("10.99.0.0/29")
    taken: set[str] = set()
    for _ in range(5):
        taken.add(machines.free_address(network, taken=frozenset(taken)))
    assert taken == {f"10.99.0.{number}" for number in range(2, 7)}
    assert bridge.address_of(network) == "10.99.0.1" == MACHINE.gateway
    with pytest.raises(machines.Unusable, match="No address is free"):
        machines.free_address(network, taken=frozenset(taken))


def test_the_instance_id_is_stable_and_new_for_each_machine() -> None:
    later = dataclasses.replace(OWNER, attempt=2)
    other = dataclasses.replace(MACHINE, name=naming.name_of(later))
    assert MACHINE.instance_id == dataclasses.replace(MACHINE, address="10.99.0.9").instance_id
    assert MACHINE.instance_id != other.instance_id


def test_an_image_is_named_after_what_it_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    place = pathlib.Path("/images")
    kinds = machines.Kind
    first = images.place_of("debian-12", kind=kinds.NSPAWN, images=place)
    assert first.name.startswith("debian-12-nspawn-")
    assert first != images.place_of("debian-12", kind=kinds.QEMU, images=place)
    monkeypatch.setattr(images, "PACKAGES", (*images.PACKAGES, "less"))
    assert first != images.place_of("debian-12", kind=kinds.NSPAWN, images=place)


def test_the_seed_names_machine_and_instance_and_only_root_reads_the_ticket(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.chown", lambda *_: None)
    disk.lay_seed(tmp_path, machine=MACHINE, user_data=b"#cloud-config\n{}\n", owner=1)
    seed = tmp_path / "var/lib/cloud/seed/nocloud"
    assert (seed / "meta-data").read_text() == (
        f"instance-id: i-{MACHINE.name}\nlocal-hostname: {MACHINE.name}\n"
    )
    assert (seed / "user-data").read_bytes() == b"#cloud-config\n{}\n"
    assert (seed / "user-data").stat().st_mode & 0o777 == 0o600
    network = (tmp_path / "etc/systemd/network/10-enlist.network").read_text()
    assert "Address=10.99.0.2/24\nGateway=10.99.0.1\n" in network


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_nobody_but_root_enters_the_images(tmp_path: pathlib.Path, mode: int) -> None:
    """Not made by a former version either, which let everybody in."""
    folder = tmp_path / "images"
    images.keep_to_root(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "debian-12-nspawn-0123456789abcdef").mkdir()
    (folder / ".debian-12-nspawn.lock").touch()
    folder.chmod(mode)
    images.keep_to_root(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_with_more_than_images_is_refused_while_others_may_enter(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "cache"
    (folder / "apt").mkdir(parents=True)
    folder.chmod(0o755)
    with pytest.raises(images.BuildFailed, match="chmod 0700"):
        images.keep_to_root(folder)
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("unit", ["enlist-machines.service"])
def test_the_unit_makes_the_images_roots_alone(unit: str) -> None:
    text = (pathlib.Path(__file__).parents[3] / "systemd/platform" / unit).read_text()
    assert "CacheDirectory=enlist/images\nCacheDirectoryMode=0700\n" in text


class Mounts:
    """What the disk asks of the host's programs; mounting an overlay may fail."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.has_overlay = True

    def run(self, *command: str, seconds: float = 0.0) -> str:
        del seconds
        self.ran.append(command[0])
        if command[0] == "mount" and not self.has_overlay:
            raise programs.Failed("mount: no room")
        if command[0] == "cp":
            (pathlib.Path(command[-1]) / "bin").mkdir()
        return ""


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> Mounts:
    made = Mounts()
    monkeypatch.setattr(programs, "run", made.run)
    monkeypatch.setattr("os.chown", lambda *_: None)
    return made


def test_a_machine_never_boots_from_a_bare_image_again(
    tmp_path: pathlib.Path, mounts: Mounts
) -> None:
    (tmp_path / disk.USER_DATA).write_bytes(b"#cloud-config\n{}\n")
    (tmp_path / disk.USER_DATA).chmod(0o600)
    disk.assemble(tmp_path, machine=MACHINE, image=tmp_path / "image", owner=1)
    for left in (tmp_path / disk.ROOT).iterdir():  # mounted then, and gone with its namespace
        shutil.rmtree(left)
    mounts.has_overlay = False
    with pytest.raises(programs.Failed, match="no room"):
        disk.assemble(tmp_path, machine=MACHINE, image=tmp_path / "image", owner=1)
    assert "cp" not in mounts.ran
    assert list((tmp_path / disk.ROOT).iterdir()) == []


def test_a_copy_of_the_image_that_was_cut_off_is_made_anew(
    tmp_path: pathlib.Path, mounts: Mounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "remove_tree", shutil.rmtree)
    mounts.has_overlay = False
    (tmp_path / disk.USER_DATA).write_bytes(b"#cloud-config\n{}\n")
    (tmp_path / disk.USER_DATA).chmod(0o600)
    (tmp_path / disk.ROOT / "half").mkdir(parents=True)
    disk.assemble(tmp_path, machine=MACHINE, image=tmp_path / "image", owner=1)
    assert not (tmp_path / disk.ROOT / "half").exists()
    assert (tmp_path / disk.ROOT / "bin").is_dir()
    again = list(mounts.ran)
    disk.assemble(tmp_path, machine=MACHINE, image=tmp_path / "image", owner=1)
    assert mounts.ran == again  # a whole copy is its disk from then on


async def _unheard(call: contract.ApiCall) -> None:
    del call


@pytest.mark.parametrize("kind", machines.Kind)
def test_an_installed_platform_is_refused_the_emulator_when_its_connection_is_opened(
    kind: machines.Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "of_this_process", lambda _places: hands.Helper())
    opening = providers.Opening(
        settings={},
        credential=credentials.Nothing(),
        observer=_unheard,
        clock=clock_kit.SystemClock(),
    )
    if kind is machines.Kind.NSPAWN:
        assert driver.opened(kind, opening).provider == "local-nspawn"
        return
    with pytest.raises(providers.Refused, match=r"holds no emulators.*local-nspawn"):
        driver.opened(kind, opening)


# --- what the host does ------------------------------------------------------------------------


class Keepers:
    """Writes down what is asked of it, and starts nothing."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.dies_at_start = False

    def start(self, folder: pathlib.Path, command: Any, *, size: machines.Size) -> None:
        del command, size
        self.told.append(f"start {folder.name}")
        if self.dies_at_start:
            raise KeyboardInterrupt
        keeper.say(folder, keeper.Phase.RUNNING)

    def is_alive(self, folder: pathlib.Path) -> bool:
        return f"start {folder.name}" in self.told

    def end(self, folder: pathlib.Path) -> None:
        self.told.append(f"end {folder.name}")


class Switch:
    """No bridge."""

    def ensure(self, network: ipaddress.IPv4Network) -> None:
        del network

    def remove_if_unused(self) -> None:
        return


@pytest.fixture
def keepers() -> Keepers:
    return Keepers()


@pytest.fixture
def here(tmp_path: pathlib.Path, keepers: Keepers) -> host.Host:
    places = host.Places(folder=tmp_path / "machines", images=tmp_path / "images")
    return host.Host(places, launcher=keepers, network=Switch())


WISH = machines.parse_wish(FIELDS)


def test_the_same_order_again_is_the_same_machine_and_one_start(
    here: host.Host, keepers: Keepers
) -> None:
    first = here.create(WISH, now=NOW)
    assert here.create(WISH, now=NOW + datetime.timedelta(hours=1)) == first
    assert keepers.told == [f"start {WISH.name}"]


def test_cut_off_between_folder_and_start_the_same_order_finishes(
    here: host.Host, keepers: Keepers
) -> None:
    keepers.dies_at_start = True
    with pytest.raises(KeyboardInterrupt):
        here.create(WISH, now=NOW)
    keepers.dies_at_start = False
    assert here.create(WISH, now=NOW).phase == keeper.Phase.RUNNING
    assert len(here.all()) == 1


def test_a_folder_left_half_made_is_made_anew(here: host.Host, tmp_path: pathlib.Path) -> None:
    (tmp_path / "machines" / machines.aside_of(WISH.name)).mkdir(parents=True)
    here.create(WISH, now=NOW)
    assert sorted(one.name for one in (tmp_path / "machines").iterdir()) == [".lock", WISH.name]


def test_another_operations_machine_of_that_name_is_not_taken(
    here: host.Host, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "machines" / WISH.name
    folder.mkdir(parents=True)
    other = dataclasses.replace(MACHINE, owner=dataclasses.replace(OWNER, operation="op_2"))
    machines.write(folder, other)
    with pytest.raises(host.Taken):
        here.create(WISH, now=NOW)
    assert machines.read(folder) == other


def test_deleted_nothing_is_left_and_again_is_fine(
    here: host.Host, keepers: Keepers, tmp_path: pathlib.Path
) -> None:
    here.create(WISH, now=NOW)
    assert here.delete(WISH.name)
    assert not here.delete(WISH.name)
    assert [one.name for one in (tmp_path / "machines").iterdir()] == [".lock"]
    assert keepers.told[-1] == f"end {WISH.name}"


def test_a_machine_that_is_being_deleted_is_not_started_again(
    here: host.Host, tmp_path: pathlib.Path, keepers: Keepers
) -> None:
    here.create(WISH, now=NOW)
    folder = tmp_path / "machines" / WISH.name
    found = machines.read(folder)
    assert found is not None
    machines.write(folder, dataclasses.replace(found, is_deleting=True))
    (folder / keeper.STATE).unlink()
    before = list(keepers.told)
    assert here.create(WISH, now=NOW).machine.is_deleting
    assert not here.reboot(WISH.name)
    assert keepers.told == before


def test_a_machine_whose_keeper_is_gone_is_off_and_reboot_starts_it(
    here: host.Host, keepers: Keepers
) -> None:
    here.create(WISH, now=NOW)
    keepers.told.clear()
    (seen,) = here.all()
    assert seen.phase == keeper.Phase.OFF
    assert here.reboot(WISH.name)
    assert keepers.told == [f"start {WISH.name}"]


def test_no_more_machines_are_made_than_the_host_may_have(
    here: host.Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "MOST_MACHINES", 1)
    here.create(WISH, now=NOW)
    second = dataclasses.replace(WISH, owner=dataclasses.replace(OWNER, operation="op_2"))
    with pytest.raises(host.NoRoom):
        here.create(second, now=NOW)


def test_no_more_containers_are_made_than_the_kernel_lets_boot(
    here: host.Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(f"{2 * host.WATCHERS_EACH - 1}\n")
    monkeypatch.setattr(host, "WATCHERS", limit)
    here.create(WISH, now=NOW)
    second = dataclasses.replace(WISH, owner=dataclasses.replace(OWNER, operation="op_2"))
    with pytest.raises(host.NoRoom, match=r"lets 1 containers .* sysctl -w fs\.inotify\."):
        here.create(second, now=NOW)
    here.create(WISH, now=NOW)  # the same order again is not one more
    here.create(
        dataclasses.replace(second, kind=machines.Kind.QEMU), now=NOW
    )  # a kernel of its own
    limit.write_text(f"{2 * host.WATCHERS_EACH}\n")
    third = dataclasses.replace(WISH, owner=dataclasses.replace(OWNER, operation="op_3"))
    here.create(third, now=NOW)


def test_a_console_is_shown_from_its_end(here: host.Host, tmp_path: pathlib.Path) -> None:
    here.create(WISH, now=NOW)
    assert here.console(WISH.name) is None
    (tmp_path / "machines" / WISH.name / keeper.CONSOLE).write_text("x" * 20_000 + "the end")
    shown = here.console(WISH.name)
    assert shown is not None
    assert shown.endswith("the end")
    assert len(shown) == host.MOST_CONSOLE_BYTES
