"""docs/quickstart-cloud.md as a new user types it: a machine at a faked Hetzner, from nothing."""

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support import faked_hetzner, operators

PAGE = pathlib.Path(__file__).parents[2] / "docs/quickstart-cloud.md"
pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("cloud-quickstart")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[faked_hetzner.Place]:
    with faked_hetzner.running(tmp_path_factory.mktemp("quickstart")) as running:
        yield running


def test_the_pages_commands_order_a_machine_and_end_it(place: faked_hetzner.Place) -> None:
    commands = faked_hetzner.commands_of(PAGE.read_text(), heading="## At Hetzner")
    save, create, listed, costs, reboot, delete = commands
    (place.folder / "token").write_text(f"{faked_hetzner.TOKEN}\n")
    saved = place.run(*save, "--setting", f"endpoint={place.address}").stdout
    assert "Saved hetzner (hetzner)." in saved
    assert faked_hetzner.TOKEN not in saved
    asked = place.run(*create, "--check").stdout
    assert "order web-1: cx23 in fsn1 at hetzner, 0.00" in asked
    assert place.fake.ledger.machines == {}
    follow = ("events", "--follow", "-o", "json")
    with place.started(*follow) as told, place.started(*create) as ordering:
        operators.wait_until(lambda: bool(place.fake.ledger.living()), what="a machine is bought")
        (bought,) = place.fake.ledger.living()
        with place.booted(bought.ref):
            out, err = ordering.communicate(timeout=120)
            assert ordering.returncode == 0, err
            states = [line.partition(": ")[2].partition(",")[0] for line in err.splitlines()]
            assert states[-1] == "active"
            assert re.search(r"^state +active$", out, re.MULTILINE), out
            assert states[0] == "cx23 in fsn1 at hetzner"
            watched = [one for one in dict.fromkeys(states[1:]) if one != "requested"]
            assert _told(told, out) == ["requested", *watched]
            assert "web-1  ready" in place.run(*listed).stdout
            _look_at(place, ref=bought.ref)
            assert "hetzner" in place.run(*costs).stdout
            place.run(*reboot)
            in_use = place.run("cloud", "connections", "forget", "hetzner", expect=4)
            assert "Not confirmed gone yet: the machine of web-1. Delete" in in_use.stderr
            place.run(*delete)
    assert place.fake.ledger.living() == []
    assert place.fake.ledger.count("POST /v1/servers") == 1
    gone = json.loads(place.run("cloud", "machines", "list", "--ended", "-o", "json").stdout)
    assert [one["state"] for one in gone["machines"]] == ["deleted"]
    place.run("cloud", "connections", "forget", "hetzner")


def _told(stream: "subprocess.Popen[str]", shown: str) -> list[str]:
    """The states of that operation as the stream of events told them, up to `active`."""
    operation_id = re.findall(r"^operation_id +(\S+)$", shown, re.MULTILINE)[0]
    assert stream.stdout is not None
    states: list[str] = []
    for line in stream.stdout:
        event = json.loads(line)
        if event["data"].get("operation_id") == operation_id:
            states.append(event["kind"].removeprefix("operation."))
            if states[-1] == "active":
                break
    return states


def _look_at(place: faked_hetzner.Place, *, ref: str) -> None:
    """What a person sees of a machine that is active."""
    shown = json.loads(place.run("cloud", "machines", "show", "web-1", "-o", "json").stdout)
    assert (shown["provider_ref"], shown["state"]) == (ref, "active")
    assert shown["still_billed"]
    refreshed = place.run("cloud", "machines", "show", "web-1", "--refresh", "-o", "json")
    assert json.loads(refreshed.stdout)["power"] == "running"
    costs = json.loads(place.run("cloud", "costs", "-o", "json").stdout)
    assert costs["connections"][0]["hourly_micros"] > 0


def test_the_secret_stands_in_no_answer_log_or_file_that_others_may_read(
    place: faked_hetzner.Place,
) -> None:
    place.connect("again")
    shown = place.run("cloud", "connections", "show", "again", "-o", "json").stdout
    log = place.platform.log.read_text()
    assert faked_hetzner.TOKEN not in shown + log
    raw = b"".join(
        file.read_bytes()
        for file in pathlib.Path(place.platform.data_dir).rglob("*")
        if file.is_file()
    )
    assert faked_hetzner.TOKEN.encode() not in raw
    refused = place.run(
        *("cloud", "connections", "save", "wrong", "--provider", "hetzner", "--secret-file", "-"),
        *("--setting", f"endpoint={place.address}"),
        stdin="not-the-token",
        expect=2,
    )
    assert "not-the-token" not in refused.stderr
    assert "Nothing was saved: save wrong again" in refused.stderr
    assert "wrong" not in place.run("cloud", "connections", "list").stdout
    place.run("cloud", "connections", "forget", "again")


def test_a_machine_that_still_boots_is_deleted_and_that_is_a_good_end(
    place: faked_hetzner.Place,
) -> None:
    place.connect("early")
    place.run("cloud", "machines", "create", "web-2", "--provider", "hetzner")
    operators.wait_until(lambda: bool(place.fake.ledger.living()), what="a machine is bought")
    deleted = place.run("cloud", "machines", "delete", "web-2", "--wait")
    assert re.search(r"^state +cancelled$", deleted.stdout, re.MULTILINE), deleted.stdout
    assert "Error" not in deleted.stderr
    assert place.fake.ledger.living_things() == []
    place.run("cloud", "connections", "forget", "early")


def test_a_volume_and_an_address_are_made_attached_taken_away_and_gone(
    place: faked_hetzner.Place,
) -> None:
    place.connect("kept")
    where = ("--connection", "kept", "--region", "fsn1")
    place.run(*("cloud", "volumes", "create", "data", *where, "--size-gigabytes", "10", "--wait"))
    place.run("cloud", "addresses", "create", "front", *where, "--wait")
    listed = json.loads(place.run("cloud", "volumes", "list", "-o", "json").stdout)["children"]
    assert [(one["name"], one["size_gigabytes"], one["node_id"]) for one in listed] == [
        ("data", 10, None)
    ]
    assert "data" in place.run("cloud", "connections", "forget", "kept", expect=4).stderr
    place.run("cloud", "volumes", "delete", "data", "--wait")
    place.run("cloud", "addresses", "delete", "front", "--wait")
    assert place.fake.ledger.living_things() == []
    assert "No orphans." in place.run("cloud", "orphans", "list").stdout
    place.run("cloud", "connections", "forget", "kept")
