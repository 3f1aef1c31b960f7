"""From a machine's start to a ready node, against the same machine's boot with nothing to do.

Both are first boots by cloud-init on fresh disks over the same image, in turn, three times each;
the ratio is of the medians. Then what the installer says of its own phases, and the bundle's size.
Needs root and systemd-nspawn. Known limit: Platform and machine share the cores, and the disk is
memory, so the seconds are a quiet machine's at best; the ratio is what to compare.
"""

import re
import statistics
import sys
import time

from bench import report
from tests.support import machines
from tests.support.machines import first_boot, images, installing, machine, site

ROUNDS = 3
AT_MOST_RATIO = 2.5
AT_MOST_MEGABYTES = 25.0
_SECONDS = re.compile(r"Seconds: (.*)")
_PHASE = re.compile(r"([a-z-]+) ([0-9.]+)")


def main() -> int:
    """Measures and prints."""
    as_json = report.wants_json()
    reason = machines.why_not()
    if reason is not None:
        sys.stderr.write(f"No machine can be booted here: {reason}\n")
        return 2
    images.ensure_image("bookworm")
    with site.alone(), site.opened() as place:
        report.show("boot", _figures(place), as_json=as_json)
    return 0


def _figures(place: site.Site) -> list[report.Figure]:
    releases = installing.Releases(place.folder / "releases")
    releases.ensure("now")
    bind = [f"--bind-ro={releases.folder}:{installing.RELEASES}"]
    idle, joined, booted = [], [], []
    with machine.placed(place, "platform", number=10, options=bind) as host:
        host.boot()
        installing.install(host, "platform")
        platform = installing.Platform(host)
        platform.wait_serving()
        phases: dict[str, float] = {}
        for turn in range(ROUNDS):
            idle.append(_empty_boot(place, turn))
            ready, whole, phases = _node_boot(place, turn, platform)
            joined.append(ready)
            booted.append(whole)
    bundle = next((releases.folder / "now").glob("enlist-worker-*.tar")).stat().st_size
    return [
        report.Figure(
            name="ratio",
            value=statistics.median(joined) / statistics.median(idle),
            unit="",
            meaning="start to ready, over start to booted with empty user data",
            at_most=AT_MOST_RATIO,
        ),
        _seconds("ready", joined, "from the machine's start to its node ready"),
        _seconds("ready_booted", booted, "the same machine until its boot is done"),
        _seconds("empty", idle, "the boot with empty user data until it is done"),
        report.Figure(
            name="bundle",
            value=bundle / 1e6,
            unit="MB",
            meaning="the worker's archive, for the Pythons of Debian 12 and 13",
            at_most=AT_MOST_MEGABYTES,
        ),
        *(
            report.Figure(
                name=f"installer_{name}", value=value, unit="s", meaning="a phase of install.sh"
            )
            for name, value in phases.items()
        ),
    ]


def _seconds(name: str, values: list[float], meaning: str) -> report.Figure:
    return report.Figure(name=name, value=statistics.median(values), unit="s", meaning=meaning)


def _empty_boot(place: site.Site, turn: int) -> float:
    with machine.placed(place, f"empty{turn}", number=20 + turn) as bare:
        started = time.monotonic()
        bare.boot()
        return time.monotonic() - started


def _node_boot(
    place: site.Site, turn: int, platform: installing.Platform
) -> tuple[float, float, dict[str, float]]:
    node = f"node{turn}"
    with machine.placed(place, node, number=40 + turn) as bare:
        bare.seed(first_boot.user_data(platform.token(node)))
        started = time.monotonic()
        bare.start()
        platform.wait_state(node, "ready", seconds=120)
        ready = time.monotonic() - started
        bare.wait_booted()
        whole = time.monotonic() - started
        said = _SECONDS.search(bare.journal(first_boot.UNIT))
        phases = _PHASE.findall(said.group(1)) if said else []
        return ready, whole, {name: float(seconds) for name, seconds in phases}


if __name__ == "__main__":
    sys.exit(main())
