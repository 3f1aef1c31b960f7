"""The enrollment port's key is changed under machines that join and machines that have joined."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.support import machine, real_platform, worker_command
from wire_protocol import join_token

pytestmark = pytest.mark.timeout(180)
PIN = re.compile(r"sha256:[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rig:
    """A Platform, and its pins before anything happened."""

    platform: real_platform.RealPlatform
    folder: pathlib.Path

    @property
    def pins(self) -> list[str]:
        shown = json.loads(self.platform.enlist("platform", "show", "-o", "json"))
        return list(shown["pins"])

    def rotate(self, *more: str) -> str:
        return self.platform.enlist("platform", "rotate-tls-key", "--yes", *more)

    def token(self, node_id: str) -> tuple[str, list[str]]:
        """A join token and the pins that it carries."""
        text = machine.issue(self.platform, node_id)
        return text, list(join_token.decode(text).pins)

    def folder_of(self, node_id: str) -> pathlib.Path:
        return self.folder / node_id

    async def join(self, node_id: str, token: str) -> worker_command.Ended:
        return await worker_command.enlist(
            *worker_command.join_arguments(self.folder_of(node_id)), stdin=token
        )

    async def joined(self, node_id: str) -> None:
        done = await self.join(node_id, self.token(node_id)[0])
        assert done.code == 0, done.err

    async def refreshed(self, node_id: str) -> bool:
        """Asks for the trust set as that machine; says whether the connection matched its pin."""
        done = await worker_command.enlist(
            *("worker", "refresh-trust", "--data-dir", str(self.folder_of(node_id)), "-o", "json")
        )
        assert done.code == 0, done.err
        matched = done.document["connection_matched"]
        assert isinstance(matched, bool)
        assert ("believed by signature" in done.err) is not matched
        return matched


@pytest.fixture
def rig(tmp_path: pathlib.Path) -> Iterator[Rig]:
    with real_platform.running(tmp_path / "platform") as platform:
        yield Rig(platform=platform, folder=tmp_path)


async def test_e6_e8_a_join_in_every_phase_works_and_survives_the_next(rig: Rig) -> None:
    (old,) = rig.pins
    await rig.joined("before-1")
    checked = rig.rotate("--after", "2d", "--check")
    assert "next TLS key" in checked
    assert rig.pins == [old]
    assert "join tokens made until then carry both pins" in rig.rotate("--after", "2d")
    served, following = rig.pins
    assert served == old
    assert following != old
    during, carried = rig.token("during-1")
    assert carried == [old, following]
    assert (await rig.join("during-1", during)).code == 0
    waiting, _ = rig.token("waiting-1")
    assert await rig.refreshed("before-1")

    assert "served at once" in rig.rotate("--now")
    assert rig.pins == [following]
    _, carried = rig.token("after-1")
    assert carried == [following]
    for node_id in ("before-1", "during-1"):
        assert await rig.refreshed(node_id), node_id
    assert (await rig.join("waiting-1", waiting)).code == 0
    await rig.joined("later-1")
    kinds = [
        event["kind"]
        for event in json.loads(rig.platform.enlist("events", "-o", "json"))["events"]
        if event["kind"].startswith("platform.tls-key")
    ]
    assert kinds == [
        "platform.tls-key-published",
        "platform.tls-key-published",
        "platform.tls-key-switched",
    ]


async def test_e10_a_key_changed_at_once_is_followed_by_signature_and_strands_only_old_tokens(
    rig: Rig,
) -> None:
    (old,) = rig.pins
    await rig.joined("joined-1")
    minted_before, _ = rig.token("stranded-1")
    rig.rotate("--now")
    (new,) = rig.pins

    refused = await rig.join("stranded-1", minted_before)
    assert refused.code == 6
    assert set(PIN.findall(refused.err)) == {old, new}
    assert "was the Platform's key rotated?" in refused.err
    assert refused.err.count("Nothing was sent.") == 1
    assert "was not sent" not in refused.err
    assert refused.err.rstrip().endswith("enlist nodes enroll-token stranded-1 --replace")

    assert not await rig.refreshed("joined-1")
    assert await rig.refreshed("joined-1")
    replaced = machine.issue(rig.platform, "stranded-1", "--replace")
    assert (await rig.join("stranded-1", replaced)).code == 0


async def test_the_day_of_the_switch_is_only_brought_forward(rig: Rig) -> None:
    arguments = ("--data-dir", str(rig.platform.data_dir), "platform", "rotate-tls-key")
    rig.rotate()
    published = rig.pins
    again = await worker_command.enlist(*arguments)
    assert (again.code, again.out) == (4, "")
    assert "It can only be brought forward." in again.err
    rig.rotate("--after", "1d")
    assert rig.pins == published
