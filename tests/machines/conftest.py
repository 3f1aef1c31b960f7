"""What the suites on real machines share: the site, the released folders, an installed Platform.

A suite is a file whose tests are numbered steps on the same machines: when one fails, the steps
after it are skipped. All suites run in one process of a parallel run (`xdist_group`), since they
share the Platform; machines are taken away at the end of each suite, whatever happened.
"""

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import pytest

from tests.support import machines
from tests.support.machines import images, installing, machine, site

STEP_SECONDS = 600
_FAILED = pytest.StashKey[str]()
Reporting = Generator[None, pytest.TestReport, pytest.TestReport]


@pytest.hookimpl(tryfirst=True)  # or a file named on the command line is grouped too late
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder: one group, and time for the first to build an image."""
    for item in items:
        if "tests/machines/" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("machines"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(STEP_SECONDS))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A step that stands on one that failed is skipped."""
    before = item.parent.stash.get(_FAILED, None) if item.parent else None
    if before is not None:
        pytest.skip(f"the step before failed: {before}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers the first step of a suite that failed."""
    report = yield
    if report.failed and item.parent is not None:
        item.parent.stash.setdefault(_FAILED, item.name)
    return report


@pytest.fixture(scope="session")
def place() -> Iterator[site.Site]:
    """Where the machines of this run stand; skips where none can."""
    reason = machines.why_not()
    if reason is not None:
        pytest.skip(reason)
    with site.alone(), site.opened() as opened:
        yield opened


@pytest.fixture(scope="session")
def releases(place: site.Site) -> installing.Releases:
    """Released folders for the machines: this checkout's, a newer one, a broken one."""
    return installing.Releases(place.folder / "releases")


@pytest.fixture(scope="session")
def new_machine(
    place: site.Site, releases: installing.Releases
) -> Callable[..., "machine.Placing"]:
    """Makes machines, each with a number of its own and the released folders under /srv."""
    numbers = itertools.count(20)

    def make(
        name: str,
        *,
        release: str = "bookworm",
        megabytes: int = machine.DISK_MEGABYTES,
        options: Sequence[str] = (),
        kernel: bool = False,
        surroundings: Mapping[str, str] | None = None,
    ) -> machine.Placing:
        try:
            images.ensure_image(release, kernel=kernel)
        except (images.BuildFailed, FileNotFoundError) as reason:
            pytest.skip(f"no image of {images.RELEASES[release]} can be built: {reason}")
        return machine.placed(
            place,
            name,
            number=next(numbers),
            release=release,
            options=[f"--bind-ro={releases.folder}:{installing.RELEASES}", *options],
            megabytes=megabytes,
            kernel=kernel,
            surroundings=surroundings,
        )

    return make


@pytest.fixture(scope="session")
def platform(
    new_machine: Callable[..., machine.Placing], releases: installing.Releases
) -> Iterator[installing.Platform]:
    """A machine with the Platform installed by install.sh, serving its worker bundles."""
    releases.ensure("now")
    with new_machine("platform") as booted:
        booted.boot()
        installing.install(booted, "platform")
        installed = installing.Platform(booted)
        # What waits for a heartbeat waits for seconds, not for half a minute.
        installed.configure("[gateway]\nheartbeat_seconds = 3\n")
        installed.wait_serving()
        yield installed
