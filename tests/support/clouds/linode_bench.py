"""The row of Linode among the benches."""

from tests.support.clouds import small_benches

BENCH = small_benches.LinodeBench
