"""`enlist cloud machines create demo --provider local`: a Platform and its machines on one host.

00 one command orders a machine, which boots, installs, joins and is active; each phase was told
01 the node is ready, of this host's own image, and root in it is nobody outside
02 cloud-init's own schema finds nothing wrong with the data, with snippets or without
03 its ticket is wiped from every file that cloud-init keeps, and from the host
04 the same order again is refused for its name, and makes no second machine
05 rebooted, it is ready again with the same identity, and its first boot does not run again
06 off behind the Platform's back, `reboot` starts it again
07 deleted, nothing is left of it: no folder, process, mount, control group, cable or bridge
08 the lines of docs/quickstart-cloud.md, as they stand
"""

import base64
import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from provisioning import first_boot
from provisioning.local import images
from tests.support import bundles, faked_hetzner
from tests.support.machines import local

NODE = "demo"
TICKET = first_boot.Ticket(
    document=base64.b64encode(
        json.dumps(
            {
                "platform_url": "https://192.0.2.10:8444",
                "pins": [f"sha256:{'a' * 64}"],
                "trust_key_ids": ["0123456789abcdef"],
                "bundle_url": "https://192.0.2.10:8446",
                "bundle_pins": [f"sha256:{'b' * 64}"],
                "bundles": {"x86_64": "c" * 64},
                "installers": {"x86_64": "d" * 64},
                "node_id": "demo",
                "token": "never issued",
            }
        ).encode()
    ).decode(),
    signature="c2ln",
    key_id="0123456789abcdef",
)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local.Laptop]:
    """A Platform in a folder of its own."""
    reason = local.why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        local.ensure_image()
    except images.BuildFailed as failure:
        pytest.skip(f"no image can be built: {failure}")
    with local.alone(), local.opened(tmp_path_factory.mktemp("laptop")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(laptop: local.Laptop) -> dict[str, str]:
    """What is remembered from one step to the next."""
    return {"folder": str(laptop.places.folder)}


def test_00_one_command_makes_an_active_machine(
    laptop: local.Laptop, shown: dict[str, str]
) -> None:
    done = laptop.attempt(
        *("cloud", "machines", "create", NODE, "--provider", "local", "--wait", "-o", "json"),
        expect=0,
    )
    machine = laptop.document("cloud", "machines", "show", NODE)
    assert machine["state"] == "active", done.stderr
    assert [one["phase"] for one in machine["phases"]] == [
        "fetching",
        "installing",
        "joining",
        "starting",
    ]
    shown["ref"] = machine["provider_ref"]
    assert re.fullmatch(r"demo-[0-9a-f]{10}", shown["ref"])


def test_01_the_node_is_ready_and_root_in_it_is_nobody_outside(
    laptop: local.Laptop, shown: dict[str, str]
) -> None:
    laptop.wait_node(NODE, state="ready")
    guest = laptop.guest(shown["ref"])
    assert guest.run("hostname").strip() == shown["ref"]
    assert guest.run("cloud-init", "status", "--wait").strip().endswith("status: done")
    uid = subprocess.run(
        ["stat", "-c", "%u", f"/proc/{guest.leader}"], capture_output=True, text=True, check=True
    ).stdout
    assert int(uid) == images.FIRST_UID
    assert guest.run("systemctl", "--failed", "--no-legend") == ""


def test_02_cloud_inits_own_schema_finds_nothing_wrong(
    laptop: local.Laptop, shown: dict[str, str]
) -> None:
    guest = laptop.guest(shown["ref"])
    assert "Valid" in guest.run("cloud-init", "schema", "--system")
    snippets = (
        None,
        "\ufeff#cloud-config\r\npackages: [htop]\r\nbootcmd: [[echo, hello]]\r\n",
        "#!/bin/sh\necho hello\n",
    )
    for number, text in enumerate(snippets):
        snippet = None if text is None else first_boot.parse_snippet(text)
        guest.write(f"/root/{number}", first_boot.render(TICKET, snippet=snippet))
        assert "Valid" in guest.run("cloud-init", "schema", "--config-file", f"/root/{number}")
        guest.run("rm", f"/root/{number}")  # what has no ticket in it is looked at next
    guest.write("/root/wrong", "#cloud-config\nbootcmd: {a: b}\n")
    with pytest.raises(AssertionError, match="bootcmd"):
        guest.run("cloud-init", "schema", "--config-file", "/root/wrong")


def test_03_the_ticket_is_wiped_everywhere(laptop: local.Laptop, shown: dict[str, str]) -> None:
    guest = laptop.guest(shown["ref"])
    local.wait(
        lambda: guest.run("sh", "-c", "ls /run/enlist-first-boot 2>&1 || true"),
        until=lambda said: "No such file" in said,
        what="the first boot's own files are gone",
        seconds=60,
    )
    # The document is base64 of JSON whose keys are these; so begins each three-byte shift of them.
    begins = "InBsYXRmb3JtX3VybC|J0b2tlbi|b2tlbiI6ImVudF"
    places = "/etc /opt /root /home /var /run /tmp"
    found = guest.run(
        "sh", "-c", f"grep -rlaE 'ent_[0-9a-f]{{16}}_[0-9a-f]{{64}}|{begins}' {places} || true"
    )
    assert found == ""
    assert not (laptop.places.folder / shown["ref"] / "user-data").exists()


def test_04_the_name_is_taken(laptop: local.Laptop) -> None:
    laptop.attempt(
        *("cloud", "machines", "create", NODE, "--provider", "local", "--role", "build"), expect=4
    )
    laptop.run("cloud", "machines", "create", NODE, "--provider", "local", "--wait")
    assert len(list(laptop.places.folder.glob("demo-*"))) == 1


def test_05_rebooted_it_is_ready_again_with_the_same_identity(
    laptop: local.Laptop, shown: dict[str, str]
) -> None:
    guest = laptop.guest(shown["ref"])
    key = guest.run("sh", "-c", "sha256sum /var/lib/enlist/worker/identity/*key*")
    before = laptop.node(NODE)["generation"]
    leader = guest.leader
    laptop.run("cloud", "machines", "reboot", NODE, "--wait")
    local.wait(
        lambda: laptop.node(NODE),
        until=lambda node: node["state"] == "ready" and node["generation"] > before,
        what="the node has a newer session",
        seconds=90,
    )
    assert guest.leader != leader
    assert guest.run("sh", "-c", "sha256sum /var/lib/enlist/worker/identity/*key*") == key
    assert len(laptop.document("cloud", "machines", "show", NODE)["phases"]) == 4


def test_06_a_machine_that_is_off_is_started_by_reboot(
    laptop: local.Laptop, shown: dict[str, str]
) -> None:
    guest = laptop.guest(shown["ref"])
    before = laptop.node(NODE)["generation"]
    guest.run("systemctl", "poweroff", "--no-block")
    local.wait(
        lambda: json.loads((guest.folder / "state.json").read_text()),
        until=lambda state: state["phase"] == "off",
        what="the machine is off",
        seconds=60,
    )
    local.wait(
        lambda: laptop.document("cloud", "machines", "show", NODE, "--refresh"),
        until=lambda seen: seen["power"] == "off",
        what="the Platform sees that it is off",
        seconds=30,
    )
    laptop.run("cloud", "machines", "reboot", NODE, "--wait")
    local.wait(
        lambda: laptop.node(NODE),
        until=lambda node: node["state"] == "ready" and node["generation"] > before,
        what="the node has a newer session",
        seconds=90,
    )


def test_07_deleted_nothing_is_left_of_it(laptop: local.Laptop, shown: dict[str, str]) -> None:
    laptop.run("cloud", "machines", "delete", NODE, "--wait")
    assert local.traces(laptop.places, shown["ref"]) == []
    assert laptop.node(NODE).get("state", "removed") == "removed"
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert local.BRIDGE not in links


def test_08_the_quickstarts_lines_do_what_they_say(laptop: local.Laptop) -> None:
    page = (bundles.ROOT / "docs/quickstart-cloud.md").read_text()
    heading = "## On this very host, without any account"
    create, nodes, delete = faked_hetzner.commands_of(page, heading=heading)
    laptop.run(*create)
    assert re.search(r"demo +.*ready", laptop.run(*nodes))
    laptop.run(*delete)
    assert [one.name for one in laptop.places.folder.iterdir()] == [".lock"]
