"""User data that makes a machine a node at its first boot, for cloud-init.

It runs the line that a person would paste. The work is a unit, started by `bootcmd` at every boot:
cloud-init runs the rest of user data once per instance, and a boot that was cut in the middle
would never run it again. The unit ends for good once the machine has joined.

Known limit: written for the tests and the bench; what a provider gets is made elsewhere.
"""

import textwrap

from tests.support.machines import installing

UNIT = "enlist-first-boot.service"
_UNIT_TEXT = """\
[Unit]
Description=Install Enlist and join
Wants=network-online.target
After=network-online.target
ConditionPathExists=!/var/lib/enlist/worker/agent.json
StartLimitIntervalSec=0
[Service]
Type=oneshot
ExecStart=/bin/sh /run/enlist-first-boot
Restart=on-failure
RestartSec=5
"""


def user_data(token: installing.Token) -> str:
    """A #cloud-config that installs from the Platform's own bundle port and joins."""
    script = (
        "set -eu\n"
        "umask 077\n"
        "cat >/run/enlist-first-boot.token <<'EOF'\n"
        f"{token.join_token}\n"
        "EOF\n"
        f"{without_sudo(token.bare_command)} --yes"
        " --join-token-file /run/enlist-first-boot.token\n"
        "rm -f /run/enlist-first-boot.token\n"
    )
    begin = (
        "umask 077\n"
        "mkdir -p /run/systemd/system\n"
        f"cat >/run/systemd/system/{UNIT} <<'EOF'\n{_UNIT_TEXT}EOF\n"
        f"cat >/run/enlist-first-boot <<'EOS'\n{script}EOS\n"
        f"systemctl daemon-reload\nsystemctl start --no-block {UNIT}\n"
    )
    return "#cloud-config\nbootcmd:\n- - sh\n  - -euc\n  - |\n" + textwrap.indent(begin, "    ")


def without_sudo(line: str) -> str:
    """The pasted line for a machine on which it runs as root already."""
    return line.replace("| sudo sh", "| sh")
