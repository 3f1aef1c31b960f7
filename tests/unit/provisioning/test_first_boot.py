"""The text of first-boot data: what it holds, what it refuses, and that it reads back the same."""

import ast
import base64
import hashlib
import io
import json
import pathlib
import re
from typing import Any, ClassVar, Self

import pytest
import yaml

from provisioning import contract, first_boot
from provisioning.first_boot import program, rendering

TOKEN = f"ent_{'0' * 16}_{'1' * 64}"


def document(**changes: Any) -> str:
    """A ticket's document as the Platform makes it."""
    known: dict[str, Any] = {
        "v": 1,
        "platform_url": "https://192.0.2.10:8444",
        "pins": [f"sha256:{'a' * 64}"],
        "trust_key_ids": ["0123456789abcdef"],
        "bundle_url": "https://192.0.2.10:8446",
        "bundle_pins": [f"sha256:{'b' * 64}"],
        "bundles": {"x86_64": "c" * 64},
        "installers": {"x86_64": "d" * 64},
        "node_id": "demo",
        "token": TOKEN,
        "operation": "op-1",
        "attempt": 1,
        "expires_at": "2030-01-01T00:00:00Z",
        **changes,
    }
    return base64.b64encode(json.dumps(known).encode()).decode()


def ticket(**changes: Any) -> first_boot.Ticket:
    """The same, signed by nobody."""
    return first_boot.Ticket(
        document=document(**changes), signature="c2ln", key_id="0123456789abcdef"
    )


def beginning(text: str) -> str:
    """What cloud-init would run at each boot."""
    found = yaml.safe_load(text)["bootcmd"][0]
    assert isinstance(found, str)
    return found


def test_it_is_ascii_with_line_feeds_and_fits_every_provider_with_room_for_a_snippet() -> None:
    text = first_boot.render(ticket(node_id="n" * 63))
    assert text.isascii()
    assert "\r" not in text
    assert len(text) < contract.MOST_FIRST_BOOT_BYTES - 2000
    assert text.startswith("#cloud-config\n")


def test_no_password_opens_a_new_machine_and_no_snippet_allows_one() -> None:
    assert yaml.safe_load(first_boot.render(ticket()))["ssh_pwauth"] is False
    with pytest.raises(ValueError, match="may not set ssh_pwauth"):
        first_boot.parse_snippet("#cloud-config\nssh_pwauth: true\n")


def test_the_same_ticket_gives_the_same_bytes() -> None:
    assert first_boot.render(ticket()) == first_boot.render(ticket())


def test_it_carries_the_ticket_and_says_nothing_of_it_in_the_clear() -> None:
    text = first_boot.render(ticket())
    assert text.count(document()) == 1
    for secret in (TOKEN, "192.0.2.10"):
        assert secret not in text


def test_the_ticket_reads_back_exactly_off_the_machines_file() -> None:
    given = ticket()
    begin = beginning(first_boot.render(given))
    line = re.search(r"ticket\.json <<'ENLIST_END'\n(.*)\nENLIST_END\n", begin)
    assert line is not None
    assert json.loads(line.group(1)) == {
        "document": given.document,
        "signature": given.signature,
        "key_id": given.key_id,
    }


def test_b42_newlines_and_quotes_in_values_stay_values() -> None:
    evil = "sig'\"\nENLIST_END\nreboot\n: {x: &a $(id)}`id`"
    given = first_boot.Ticket(document=document(), signature=evil, key_id="k")
    begin = beginning(first_boot.render(given))
    assert "\nreboot\n" not in begin
    line = re.search(r"ticket\.json <<'ENLIST_END'\n(.*)\nENLIST_END\n", begin)
    assert line is not None
    assert json.loads(line.group(1))["signature"] == evil


def test_b38_nothing_of_it_is_encoded_before_a_driver_does_so_once() -> None:
    text = first_boot.render(ticket())
    assert text.splitlines()[0] == "#cloud-config"
    script = first_boot.render(ticket(), form=first_boot.Form.SCRIPT)
    assert script.splitlines()[0] == "#!/bin/sh"
    assert script.split("\n", 1)[1] == beginning(text)


def test_the_secret_stands_in_no_argument_of_a_process() -> None:
    lines = beginning(first_boot.render(ticket())).splitlines()
    holding = [line for line in lines if document() in line]
    assert len(holding) == 1
    assert holding[0].startswith('{"document"')  # a line that `cat` reads from its input


def test_the_machines_program_is_python_of_3_8_without_its_comments() -> None:
    program = rendering.program()
    tree = ast.parse(program, feature_version=(3, 8))
    assert '"""' not in program
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported <= {
        "base64", "collections", "hashlib", "http", "json", "os", "pathlib", "platform", "queue",
        "shutil", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "lacking"),
    [
        ({"token": ""}, "token"),
        ({"platform_url": None}, "platform_url"),
        ({"pins": "sha256:aa"}, "pins"),
        ({"bundles": {}}, "bundles"),
        ({"bundles": {"x86_64": "latest"}}, "bundles"),
        ({"installers": {}}, "installers"),
        ({"installers": {"aarch64": "d" * 64}}, "installer of each bundle"),
    ],
    ids=[
        "no token",
        "no address",
        "pins as text",
        "no bundle",
        "a bundle without a hash",
        "no installer",
        "the installer of another processor",
    ],
)
def test_a_document_that_lacks_something_is_refused_by_name(
    changes: dict[str, Any], lacking: str
) -> None:
    with pytest.raises(ValueError, match=f"does not say .*{lacking}"):
        first_boot.render(ticket(**changes))


def test_an_address_that_is_not_https_is_refused() -> None:
    with pytest.raises(ValueError, match="no https address"):
        first_boot.render(ticket(bundle_url="http://192.0.2.10:8446"))


@pytest.mark.parametrize("text", ["", "{}", "bm8ganNvbg==", "'; reboot #", "ab\ncd"])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="document is no"):
        first_boot.render(first_boot.Ticket(document=text, signature="", key_id=""))


# --- what an operator adds ----------------------------------------------------------------------


def rendered(snippet: str) -> Any:
    """What cloud-init reads with that snippet."""
    text = first_boot.render(ticket(), snippet=first_boot.parse_snippet(snippet))
    assert text.startswith("#cloud-config\n")
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "#cloud-config\npackages: [htop]\n",
        "\ufeff#cloud-config\npackages: [htop]\n",
        "#cloud-config\r\npackages:\r\n- htop\r\n",
        "\n\n#cloud-config\npackages: [htop]\n",
        "\ufeff\r\n#cloud-config \r\npackages: [htop]",
    ],
    ids=["plain", "a byte-order mark", "CRLF", "leading blank lines", "all of them"],
)
def test_b40_a_snippet_with_marks_of_editors_is_put_right(text: str) -> None:
    found = rendered(text)
    assert found["packages"] == ["htop"]
    assert len(found["bootcmd"]) == 1


def test_b40_a_script_with_a_mark_and_crlf_is_put_right() -> None:
    found = rendered("\ufeff#!/bin/sh\r\necho \"a: 'b'\"\r\n")
    (file,) = found["write_files"]
    assert file["content"] == "#!/bin/sh\necho \"a: 'b'\"\n"
    assert file["permissions"] == "0700"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("packages: [htop]\n", "begins with #cloud-config"),
        ("https://example.com/x", "begins with #cloud-config"),
        ("#cloud-config\nname: Zoë\n", "Line 2 of the snippet holds characters that are not ASCII"),
        ("#cloud-config\na: \x1b[31m\n", "control character"),
        ("#cloud-config\na: [\n", "no YAML"),
        ("#cloud-config\n- a\n", "a mapping"),
        ("#cloud-config\nbootcmd: reboot\n", "bootcmd is a list"),
        ("#cloud-config\npower_state: {mode: poweroff}\n", "may not set power_state"),
        ("#cloud-config\n" + "#" * 5000, "at most"),
    ],
    ids=[
        "no header", "an address", "not ASCII", "a control character", "broken", "a list",
        "bootcmd as text", "what a node depends on", "too long",
    ],
)  # fmt: skip
def test_b40_what_cannot_be_put_right_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        first_boot.parse_snippet(text)


def test_our_boot_command_stands_before_the_operators() -> None:
    found = rendered("#cloud-config\nbootcmd: [[echo, hello]]\n")
    assert "first-boot" in found["bootcmd"][0]
    assert found["bootcmd"][1] == ["echo", "hello"]


def test_together_too_long_is_refused_with_both_numbers() -> None:
    long = "#cloud-config\nfinal_message: " + "x" * 3900
    with pytest.raises(ValueError, match=r"has \d+ bytes, and providers take 15872"):
        first_boot.render(ticket(), snippet=first_boot.parse_snippet(long))


SCRIPT = b"#!/bin/sh\necho installs\n"
ARCHIVE = b"an archive"


class Served:
    """A bundle port that knows its key and serves what it likes."""

    files: ClassVar[dict[str, bytes]] = {}

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, _method: str, path: str) -> Any:
        answer = io.BytesIO(self.files.get(path, b""))
        answer.status = 200 if path in self.files else 404  # type: ignore[attr-defined]
        return answer


class Quiet:
    """Nobody to tell."""

    def __init__(self, *_: object) -> None:
        pass

    def tell(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("served", [SCRIPT, b"#!/bin/sh\nrm -rf /\n", SCRIPT + b"\n", b""])
def test_an_installer_that_the_ticket_does_not_name_is_not_run(
    served: bytes, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = hashlib.sha256(ARCHIVE).hexdigest()
    path = f"/bundles/sha256/{wanted}"
    monkeypatch.setattr(Served, "files", {path: ARCHIVE, f"{path}/install.sh": served})
    monkeypatch.setattr(program, "Asked", Served)
    monkeypatch.setattr(program, "Teller", Quiet)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    ran: list[bytes] = []
    monkeypatch.setattr(
        program.Boot, "must", lambda _boot, _what, *words: ran.append(_read(words[1]))
    )
    given = ticket(
        bundles={"x86_64": wanted}, installers={"x86_64": hashlib.sha256(SCRIPT).hexdigest()}
    )
    boot = program.Boot({"document": given.document})
    if served == SCRIPT:
        boot.fetch_and_install(tmp_path)
        assert ran == [SCRIPT]
        return
    with pytest.raises(program.Final, match="which the ticket names"):
        boot.fetch_and_install(tmp_path)
    assert ran == []


def _read(path: str) -> bytes:
    return pathlib.Path(path).read_bytes()
