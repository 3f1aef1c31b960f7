"""What root takes out of the Platform's folder for the edge, and all that it refuses there."""

import os
import pathlib
import subprocess
import sys

import pytest

from platform_server.app import edges
from platform_server.edge import handover
from platform_server.settings import groups
from tests.support import certificates, edge

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
WORDS = {
    name: edges._words_of(name, settings=groups.Settings())
    for name in (edges.LISTENER, edges.BUNDLES)
}


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "data" / "run" / "listener"
    folder.mkdir(parents=True)
    certificates.issue().write(folder / handover.KEY)
    (folder / handover.WORDS).write_bytes(handover.written(WORDS))
    (tmp_path / "to").mkdir(mode=0o700)
    return tmp_path / "data"


def _refused(data: pathlib.Path) -> str:
    to = data.parent / "to"
    before = sorted(to.iterdir())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "platform_server.edge.handover"),
            *("--data-dir", data, "--to", to),
        ],
        capture_output=True,
        text=True,
        timeout=edge.PATIENCE_S,
        check=False,
        cwd=edge.ROOT,
    )
    assert done.returncode == 1, done.stderr
    assert sorted(to.iterdir()) == before
    return done.stderr


def test_the_key_and_the_words_of_each_program_are_copied_for_root_alone(
    data: pathlib.Path,
) -> None:
    to = data.parent / "to"
    handover.hand_over(data, to=to)
    assert (to / "tls.pem").read_bytes() == (data / "run/listener/tls.pem").read_bytes()
    for name, words in WORDS.items():
        assert (to / f"{name}.words").read_text().splitlines() == list(words)
    assert {one.stat().st_mode & 0o777 for one in to.iterdir()} == {0o600}


@pytest.mark.parametrize("name", [handover.KEY, handover.WORDS])
def test_a_link_to_a_file_of_roots_is_not_followed(data: pathlib.Path, name: str) -> None:
    file = data / "run" / "listener" / name
    moved = data.parent / "elsewhere"
    file.rename(moved)
    file.symlink_to(moved)
    assert "cannot be opened" in _refused(data)
    file.unlink()
    os.link(moved, file)
    assert "not a plain file" in _refused(data)


@pytest.mark.parametrize("folder", ["run", "run/listener", ""])
def test_a_link_in_the_place_of_a_folder_is_not_followed(data: pathlib.Path, folder: str) -> None:
    place = data / folder
    moved = data.parent / "elsewhere"
    place.rename(moved)
    place.symlink_to(moved)
    assert "not a folder" in _refused(data)


@pytest.mark.parametrize("name", [handover.KEY, handover.WORDS])
def test_a_pipe_is_not_waited_for(data: pathlib.Path, name: str) -> None:
    file = data / "run" / "listener" / name
    file.unlink()
    os.mkfifo(file)
    assert "not a plain file" in _refused(data)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_account_is_not_read(data: pathlib.Path) -> None:
    os.chown(data / "run" / "listener" / handover.KEY, 65_533, 65_533)
    assert "not a plain file" in _refused(data)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"root:$y$j9T$abc:19000:0:99999:7:::\n",
        b"x" * (handover.MOST_BYTES + 1),
        CERTIFICATE,
        CERTIFICATE.replace(b"CERTIFICATE", b"OPENSSH PRIVATE KEY") + CERTIFICATE,
    ],
)
def test_what_is_not_one_key_and_its_certificates_is_not_handed_over(
    data: pathlib.Path, content: bytes
) -> None:
    (data / "run" / "listener" / handover.KEY).write_bytes(content)
    assert "tls.pem" in _refused(data)


@pytest.mark.parametrize(
    "line",
    [
        "listener --engine-socket /run/other.sock",
        "listener --tls-file /etc/shadow",
        "listener @/etc/shadow 1",
        "listener --max-sockets",
        "listener --max-sockets -1",
        "listener --max-sockets=1 1",
        "listener --trusted-proxy ::/0/--",
        "bundles --folder /root",
        "LD_PRELOAD=/run/enlist-bundles/evil.so",
        "listener --log-level in\x00fo",
        "listener --log-level inf\u00f6",
        "listener --log-level info\nlistener --log-level info",
    ],
)
def test_an_option_that_is_not_of_the_closed_list_is_not_handed_over(
    data: pathlib.Path, line: str
) -> None:
    whole = {"listener": "listener", "bundles": "bundles"}
    whole[line.partition(" ")[0]] = line
    (data / "run" / "listener" / handover.WORDS).write_text("\n".join(whole.values()) + "\n")
    assert "units.words" in _refused(data)


def test_what_was_handed_over_stays_where_the_next_is_refused(data: pathlib.Path) -> None:
    to = data.parent / "to"
    handover.hand_over(data, to=to)
    before = (to / "tls.pem").read_bytes()
    (data / "run" / "listener" / handover.KEY).write_bytes(b"nonsense\n")
    _refused(data)
    assert (to / "tls.pem").read_bytes() == before
