"""Real machines for tests: Debian with systemd as process 1 and cloud-init, under systemd-nspawn.

`images` builds a base image once and keeps it in the user's cache folder; `site` is the place where
the machines of one test stand (a network namespace with a switch, overlays, the removal of
whatever an earlier run left); `machine` is one of them: boot, run, cut the power, plug the cable.

Needs root, systemd-nspawn and mmdebstrap; `why_not()` says which is missing.
Known limit: a power cut ends every process at once and keeps what was written, synced or not; the
kernel is the host's, and with it the clock (`machine.Machine.pretend_time` moves what is started).
"""

import os
import shutil

PROGRAMS = ("systemd-nspawn", "nsenter", "setpriv", "ip", "mount")


def why_not() -> str | None:
    """Why no machine can be booted here, in words for a skipped test; None where it can."""
    if os.geteuid() != 0:
        return "machines under systemd-nspawn need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"machines need {', '.join(missing)}: apt-get install systemd-container"
    return None
