"""A machine that joined and is joined again: what is in the way, and the way out, at a Platform."""

import pathlib

import pytest

from tests.support import machine, real_platform, worker_command


@pytest.mark.timeout(120)
async def test_a_machine_that_dials_out_is_made_to_listen_by_a_token_of_its_own(
    tmp_path: pathlib.Path,
) -> None:
    one = machine.in_folder(tmp_path)
    with real_platform.running(tmp_path / "p") as platform:
        first = machine.issue(platform, "web-1")
        dialling = await worker_command.enlist(
            *("--data-dir", str(one.data_dir), "worker", "join", "-"), stdin=first
        )
        assert dialling.code == 0, dialling.err
        assert "Warning" not in dialling.err
        before = machine.node(platform, "web-1")
        assert (before["connectivity"], before["state"]) == ("dial-out", "enrolled")

        refused = await worker_command.enlist(*one.join_arguments, stdin=first)
        assert refused.code == 4
        assert "--address is 127.0.0.1, stored is none, the machine dials out" in refused.err
        assert "enlist nodes enroll-token web-1 --replace" in refused.err
        assert machine.node(platform, "web-1") == before

        fresh = machine.issue(platform, "web-1", "--replace")
        one.join(fresh)
        after = machine.node(platform, "web-1")
        assert (after["connectivity"], after["address"]) == (
            "listen",
            f"https://127.0.0.1:{one.port}",
        )
        assert after["pin"] == before["pin"]
        assert after["generation"] == before["generation"] + 1
        with one.agent():
            machine.wait_for_state(platform, "web-1", "ready")
            again = await worker_command.enlist(*one.join_arguments, stdin=fresh)
            assert again.code == 0, again.err  # nothing is to do, and its own Agent has the port


@pytest.mark.timeout(120)
async def test_a_machine_that_listens_gets_another_port_by_a_token_of_its_own(
    tmp_path: pathlib.Path,
) -> None:
    one = machine.in_folder(tmp_path)
    other = machine.Machine(data_dir=one.data_dir, port=machine.free_port())
    with real_platform.running(tmp_path / "p") as platform:
        first = machine.issue(platform, "web-1")
        one.join(first)
        other.join(first, expect=4)
        other.join(machine.issue(platform, "web-1", "--replace"))
        with other.agent():
            ready = machine.wait_for_state(platform, "web-1", "ready")
        assert ready["address"] == f"https://127.0.0.1:{other.port}"
