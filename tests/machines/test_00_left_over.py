"""What a killed run leaves is found by name and removed by the next one.

00 a run that was killed takes its machine with it; mounts, network and folder go with the next run
"""

import os
import pathlib
import signal
import subprocess
import sys

import psutil

from tests.support.machines import site

RUN = """
import sys, time
from tests.support.machines import machine, site
with site.opened() as place, machine.placed(place, "orphan", number=9) as orphan:
    orphan.start()
    print(place.name, orphan.process_id, flush=True)
    time.sleep(600)
"""


def test_00_a_killed_run_leaves_nothing_that_the_next_does_not_remove(place: site.Site) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        name, pid = run.stdout.readline().split()
        machine = psutil.Process(int(pid))
        os.killpg(run.pid, signal.SIGKILL)
    machine.wait(20)  # it goes with the run
    assert pathlib.Path(site.BASE, name).exists()
    assert name in mounts()

    site.remove_leftovers()

    assert not pathlib.Path(site.BASE, name).exists()
    assert not pathlib.Path("/run/netns", name).exists()
    assert name not in mounts()
    assert place.folder.exists()  # of a run that lives: left alone


def mounts() -> str:
    """What is mounted on this host."""
    return pathlib.Path("/proc/self/mounts").read_text()
