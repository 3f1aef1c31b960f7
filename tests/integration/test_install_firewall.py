"""A port opened and closed again in the kernel's real rules, in a network of the test's own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_A_NETWORK_OF_ITS_OWN = """
import json, sys
from installer import firewall, programs

def rules():
    return [line.strip() for line in programs.run(["nft", "list", "ruleset"]).splitlines()]

programs.run(["nft", "add", "table", "inet", "filter"])
programs.run(["nft", "add", "chain", "inet", "filter", "input",
              "{ type filter hook input priority 0 ; policy drop ; }"])
programs.run(["nft", "add", "rule", "inet", "filter", "input", "tcp", "dport", "22", "accept"])
before = rules()
openings = firewall.openings([8444, 8445])
changed = [firewall.open_port(one) for one in openings]
opened = rules()
again = [firewall.open_port(one) for one in openings]
same = rules() == opened
for one in [*openings, *openings]:  # and once more, when they are gone
    firewall.close(one)
print(json.dumps({"changed": changed, "again": again, "same": same,
                  "opened": [line for line in opened if "enlist" in line],
                  "after": rules() == before}))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root for a network of its own")
@pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft")
def test_a_port_is_opened_once_and_closed_again() -> None:
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-P", "-c", IN_A_NETWORK_OF_ITS_OWN],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT)},
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "changed": [True, True],
        "again": [False, False],
        "same": True,
        "opened": [
            'tcp dport 8445 accept comment "enlist-8445"',
            'tcp dport 8444 accept comment "enlist-8444"',
        ],
        "after": True,
    }
