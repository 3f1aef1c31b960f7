"""The bench of machines with a kernel of their own: as of containers, of the other kind."""

from provisioning.local import machines
from tests.support.clouds import local_bench


class LocalQemuBench(local_bench.LocalBench):
    """A host without machines at first."""

    provider = "local-qemu"
    kind = machines.Kind.QEMU


BENCH = LocalQemuBench
