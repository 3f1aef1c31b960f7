"""The row of Vultr among the benches."""

from tests.support.clouds import small_benches

BENCH = small_benches.VultrBench
