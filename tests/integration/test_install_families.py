"""What install.sh does on other families of distributions, against their package managers' answers.

The programs of the family are stand-ins that write down what they were asked and answer as the real
ones do: the wording of their locks and refusals is theirs. Not proved on such machines
(docs/install.md says so); Debian 12 and 13 are tried for real in tests/machines.
"""

import dataclasses
import os
import pathlib

import pytest

from tests.support import installing, small_releases

# What install.sh itself needs of a system, and nothing that manages packages.
TOOLS = (
    *("awk", "cat", "chmod", "comm", "cut", "date", "dirname", "grep", "head", "mkdir", "mktemp"),
    *("mv", "readlink", "rm", "rmdir", "sed", "sh", "sha256sum", "sleep", "sort", "stat", "tail"),
    *("tar", "timeout", "tr", "uname", "wc"),
)
APT = "apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold"
APT_LOCKED = (
    "E: Could not get lock /var/lib/dpkg/lock-frontend. "
    "It is held by process 812 (unattended-upgr)\n"
    "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), "
    "is another process using it?\n"
)
DNF_LOCKED = "Error: Failed to obtain the transaction lock (logged in as: root).\n"
DNF4_LOCKED = "metadata already locked by 6150\n"
APT_UNKNOWN = "E: Unable to locate package python3.11\n"
DNF_UNKNOWN = "Error: Unable to find a match: python3.11\n"
DPKG_CUT = (
    "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.\n"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One distribution as install.sh sees it."""

    os_release: str
    manager: str
    python: str | None = None  # the version of the system's python3


UBUNTU_2404 = Family(
    os_release='PRETTY_NAME="Ubuntu 24.04.1 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\n'
    "ID=ubuntu\nID_LIKE=debian\n",
    manager="apt-get",
    python="3.12",
)
UBUNTU_2204 = Family(
    os_release='PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\n'
    "ID=ubuntu\nID_LIKE=debian\n",
    manager="apt-get",
    python="3.10",
)
DEBIAN_11 = Family(
    os_release='PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\nVERSION_ID="11"\nID=debian\n',
    manager="apt-get",
    python="3.9",
)
DEBIAN_12_BARE = Family(
    os_release='PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n',
    manager="apt-get",
)
FEDORA_41 = Family(
    os_release='NAME="Fedora Linux"\nVERSION_ID=41\nID=fedora\n'
    'PRETTY_NAME="Fedora Linux 41 (Server Edition)"\n',
    manager="dnf",
    python="3.13",
)
FEDORA_43 = Family(
    os_release='NAME="Fedora Linux"\nVERSION_ID=43\nID=fedora\n'
    'PRETTY_NAME="Fedora Linux 43 (Server Edition)"\n',
    manager="dnf",
    python="3.14",
)
RHEL_9 = Family(
    os_release='NAME="Red Hat Enterprise Linux"\nVERSION_ID="9.4"\nID="rhel"\nID_LIKE="fedora"\n'
    'PRETTY_NAME="Red Hat Enterprise Linux 9.4 (Plow)"\n',
    manager="dnf",
    python="3.9",
)
ROCKY_9 = Family(
    os_release='NAME="Rocky Linux"\nVERSION_ID="9.3"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'
    'PRETTY_NAME="Rocky Linux 9.3 (Blue Onyx)"\n',
    manager="dnf",
    python="3.9",
)


class System:
    """A folder of programs that stands for a machine of the family."""

    def __init__(self, folder: pathlib.Path, family: Family) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        self.programs = folder / "programs"
        self.pythons = folder / "pythons"
        for place in (self.programs, self.pythons):
            place.mkdir()
        for name in TOOLS:
            (self.programs / name).symlink_to(f"/usr/bin/{name}")
        (folder / "os-release").write_text(family.os_release)
        self.stand_in("id", "echo 0")
        self.stand_in(family.manager, "exit 0")
        self.stand_in("dpkg-query" if family.manager == "apt-get" else "rpm", "exit 0")
        if family.python is not None:
            self.add_python(family.python, name="python3")

    def stand_in(self, name: str, answer: str) -> None:
        """A program that writes down how it was called, and then does what `answer` says."""
        program = self.programs / name
        program.unlink(missing_ok=True)  # never through a link to the real one
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"{name} $*\" >>{self.asked}\n{answer}\n")
        program.chmod(0o755)

    def add_python(self, version: str, *, name: str) -> None:
        """A Python of that version, for as far as install.sh asks."""
        program = self.pythons / name
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)

    def fails_at_first(self, name: str, *, said: str, times: int, then: str = "exit 0") -> None:
        """A program that says something and fails, so many times, before it does `then`."""
        count = self.folder / f"{name}-times"
        self.stand_in(
            name,
            f"echo >>{count}; if [ $(wc -l <{count}) -le {times} ]; then\n"
            f"cat >&2 <<'SAID'\n{said}SAID\nexit 100; fi\n{then}",
        )

    def run(self, *options: str, lock_seconds: int = 60) -> installing.Ended:
        script = self.folder / "install.sh"
        script.write_bytes(
            small_releases.script_for_roots(
                path=str(self.programs), uid=os.getuid(), top=str(self.folder)
            )
        )
        return installing.run(
            ["/bin/sh", script, "--role", "worker", "--prefix", self.folder / "prefix",
             "--from", "/nowhere", "--yes", *options],
            environment={
                "PATH": str(self.programs),
                "ENLIST_PYTHON": "",
                "ENLIST_PYTHON_FOLDERS": str(self.pythons),
                "ENLIST_OS_RELEASE": str(self.folder / "os-release"),
                "ENLIST_LOCK_SECONDS": str(lock_seconds),
            },
            as_root=True,
        )  # fmt: skip

    def calls(self) -> list[str]:
        """What the package manager was asked."""
        try:
            lines = self.asked.read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line for line in lines if line.startswith(("apt-get ", "dnf ", "dpkg "))]


WANTED = {
    "Ubuntu 24.04 has what is needed": (UBUNTU_2404, None, ""),
    "Fedora 41 has what is needed": (FEDORA_41, None, ""),
    "Ubuntu 22.04 has Python 3.11 in universe": (
        UBUNTU_2204,
        "apt-get install --no-install-recommends python3.11",
        "from universe",
    ),
    "a bare Debian 12 gets the distribution's Python": (
        DEBIAN_12_BARE,
        "apt-get install --no-install-recommends python3",
        "the distribution's python3",
    ),
    "RHEL 9 has Python 3.11 in AppStream": (
        RHEL_9,
        "dnf install --setopt=install_weak_deps=False python3.11",
        "from AppStream",
    ),
    "Rocky 9 is as RHEL 9": (
        ROCKY_9,
        "dnf install --setopt=install_weak_deps=False python3.11",
        "from AppStream",
    ),
    "Fedora 43's own Python is too new": (
        FEDORA_43,
        "dnf install --setopt=install_weak_deps=False python3.13",
        "newer than Enlist knows",
    ),
}


@pytest.mark.parametrize("what", WANTED)
def test_a_dry_run_says_which_package_it_would_install(what: str, tmp_path: pathlib.Path) -> None:
    family, command, origin = WANTED[what]
    system = System(tmp_path, family)
    done = system.run("--dry-run")
    if command is None:
        assert done.code == 6, done  # it has gone on: this script holds no release key
        assert "holds no release key" in done.err
        assert done.out == ""
    else:
        assert done.code == 0, done
        assert f"would run: {command} " in done.out
        assert origin in done.out
    assert system.calls() == []
    assert not (tmp_path / "prefix").exists()


def test_a_system_without_such_a_python_is_told(tmp_path: pathlib.Path) -> None:
    done = System(tmp_path, DEBIAN_11).run()
    assert done.code == 6
    assert "Debian GNU/Linux 11 (bullseye) has no Python 3.11; upgrade it first" in done.err


COMMANDS = {
    "apt": (
        UBUNTU_2204,
        f"{APT} install --no-install-recommends python3.11",
    ),
    "dnf": (
        RHEL_9,
        "dnf -q -y --setopt=exit_on_lock=True --setopt=install_weak_deps=False install python3.11",
    ),
}


@pytest.mark.parametrize("manager", COMMANDS)
def test_the_package_is_installed_and_the_python_found(
    manager: str, tmp_path: pathlib.Path
) -> None:
    family, command = COMMANDS[manager]
    system = System(tmp_path, family)
    python = system.pythons / "python3.11"
    system.stand_in(
        family.manager, f"printf '#!/bin/sh\\necho 3.11\\n' >{python}; chmod 755 {python}"
    )
    done = system.run()
    assert "holds no release key" in done.err, done  # the step after
    assert [call for call in system.calls() if call.startswith(family.manager)] == [command]


LOCKS = {
    "apt's lock": (UBUNTU_2204, APT_LOCKED),
    "dnf 5's lock": (FEDORA_43, DNF_LOCKED),
    "dnf 4's lock": (RHEL_9, DNF4_LOCKED),
}


@pytest.mark.parametrize("what", LOCKS)
def test_a_lock_is_waited_for_and_said(what: str, tmp_path: pathlib.Path) -> None:
    family, said = LOCKS[what]
    system = System(tmp_path, family)
    system.stand_in("sleep", "exit 0")
    python = system.pythons / "python3.11"
    system.fails_at_first(
        family.manager,
        said=said,
        times=12,
        then=f"printf '#!/bin/sh\\necho 3.11\\n' >{python}; chmod 755 {python}",
    )
    done = system.run()
    assert "holds no release key" in done.err, done
    assert "holds the package manager's lock; waiting (0 of 60 s)" in done.err
    assert "waiting (30 of 60 s)" in done.err


@pytest.mark.parametrize("what", LOCKS)
def test_a_lock_is_not_waited_for_for_ever(what: str, tmp_path: pathlib.Path) -> None:
    family, said = LOCKS[what]
    system = System(tmp_path, family)
    system.stand_in("sleep", "exit 0")
    system.fails_at_first(family.manager, said=said, times=10_000)
    done = system.run(lock_seconds=30)
    assert done.code == 75
    assert "has held the package manager's lock for 30 s" in done.err
    assert said.splitlines()[0] in done.err


def test_an_installation_of_packages_that_was_cut_off_is_finished(tmp_path: pathlib.Path) -> None:
    system = System(tmp_path, UBUNTU_2204)
    system.stand_in("dpkg", "exit 0")
    system.fails_at_first("apt-get", said=DPKG_CUT, times=1)
    done = system.run()
    assert "An earlier installation of packages was cut off" in done.err
    calls = [call.split()[0] for call in system.calls() if "list" not in call]
    assert calls == ["apt-get", "dpkg", "apt-get"]
    assert done.code == 6  # no Python came with it, since nothing was really installed
    assert "still no Python 3.11 to 3.13" in done.err


@pytest.mark.parametrize(
    ("family", "said"), [(UBUNTU_2204, APT_UNKNOWN), (RHEL_9, DNF_UNKNOWN)], ids=["apt", "dnf"]
)
def test_a_package_that_the_distribution_has_not_is_named(
    family: Family, said: str, tmp_path: pathlib.Path
) -> None:
    system = System(tmp_path, family)
    system.fails_at_first(family.manager, said=said, times=10_000)
    done = system.run()
    assert done.code == 6
    assert "This distribution has no package python3.11" in done.err


def test_old_lists_are_brought_up_to_date_once(tmp_path: pathlib.Path) -> None:
    system = System(tmp_path, UBUNTU_2204)
    system.fails_at_first("apt-get", said="E: Failed to fetch: 404  Not Found\n", times=1)
    system.run()
    words = [call.split() for call in system.calls() if call.startswith("apt-get")]
    assert ["install" in call for call in words] == [True, False, True]
    assert "update" in words[1]


# --- containers -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_containers_that_are_there_are_used(engine: str, tmp_path: pathlib.Path) -> None:
    system = System(tmp_path, UBUNTU_2404)
    system.stand_in(engine, "exit 0")
    done = system.run("--containers")
    assert f"programs/{engine} is here" in done.err
    assert system.calls() == []


def test_podman_comes_from_the_distribution_with_its_networks(tmp_path: pathlib.Path) -> None:
    system = System(tmp_path, UBUNTU_2404)
    system.run("--containers")
    assert [call for call in system.calls() if "install" in call] == [
        f"{APT} install --install-recommends podman"
    ]


def test_what_came_with_us_is_written_down_and_what_others_installed_meanwhile_is_not(
    tmp_path: pathlib.Path,
) -> None:
    system = System(tmp_path, UBUNTU_2404)
    system.stand_in("sleep", "exit 0")
    installed = tmp_path / "installed"
    installed.write_text("installed bash\n")
    system.stand_in("dpkg-query", f"cat {installed}")
    # Whoever holds the lock at first installs something of his own meanwhile.
    others = f"[ -e {tmp_path}/tried ] || {{ echo 'installed somebodys-tool' >>{installed};"
    locked = f": >{tmp_path}/tried; printf '{APT_LOCKED.splitlines()[0]}\\n' >&2; exit 100; }}"
    system.stand_in("apt-get", f"{others} {locked}\nprintf 'installed podman\\n' >>{installed}")
    system.run("--containers")
    assert (tmp_path / "prefix" / "worker" / "packages-new").read_text() == "podman\n"


def test_no_script_of_anybody_else_is_fetched_or_run() -> None:
    text = (small_releases.ROOT / "installer" / "install.sh").read_text()
    assert "get.docker.com" not in text
    assert text.count("--insecure") == 2  # the one place, and the sentence above it


# --- packages that came with Enlist ----------------------------------------------------------

PURGED = "Purg python3.11 [3.11.0]\\nPurg python3.11-minimal [3.11.0]\\n"
PURGE_ALONE = f"""if [ "$1" = -s ]; then printf '{PURGED}'; fi"""
PURGE_OTHERS = f"""if [ "$1" = -s ]; then printf '{PURGED}Remv somebodys-tool [1]\\n'; fi"""


@pytest.mark.parametrize(("answer", "removed"), [(PURGE_ALONE, True), (PURGE_OTHERS, False)])
def test_packages_that_came_with_us_go_unless_others_need_them(
    answer: str, *, removed: bool, tmp_path: pathlib.Path
) -> None:
    system = System(tmp_path, UBUNTU_2204)
    # Removed but for its last files, by a Python that is no longer there.
    system.stand_in("id", '[ $# -eq 1 ] && [ "$1" = -u ] && echo 0')
    system.stand_in("apt-get", answer)
    root = tmp_path / "prefix" / "worker"
    root.mkdir(parents=True)
    (root / "receipt.json").write_text(
        '{\n  "folders": [\n    "'
        + str(root)
        + '"\n  ],\n  "packages": [\n    "python3.11",\n    "python3.11-minimal"\n  ],\n'
        '  "version": "0.1.0"\n}\n'
    )
    done = system.run("--uninstall")
    assert done.code == 0, done
    purges = [call for call in system.calls() if " -y purge" in call]
    assert purges == (["apt-get -q -y purge python3.11 python3.11-minimal"] if removed else [])
    assert ("are left, since others may need them" in done.err) is not removed
    assert not (tmp_path / "prefix").exists()
