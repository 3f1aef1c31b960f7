"""A release laid out on the disk: what a payload may hold, and what is made of odd ones.

The signature has been checked by then; these are what stands between a builder's mistake, or a
stolen key, and files anywhere else on the machine.
"""

import hashlib
import io
import lzma
import pathlib
import platform
import sys
import tarfile
import zipfile

import pytest

from installer import layout as layout_kit
from installer import release as release_format
from installer import tree

PYTHON = tree.this_python()
SUMS = f"wheels/python{PYTHON.version}.sums"
WHEEL = "thing-1.0-py3-none-any.whl"


def wheel(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return content.getvalue()


GOOD_WHEEL = wheel({"thing/__init__.py": "", "thing-1.0.dist-info/LICENSE": "free"})


def sums(content: bytes = GOOD_WHEEL) -> bytes:
    return release_format.sums([(WHEEL, hashlib.sha256(content).hexdigest())])


def good() -> dict[str, bytes]:
    return {
        "code/operator_cli/main.py": b"def main() -> int:\n    return 0\n",
        "systemd/worker/enlist-agent.service": b"[Service]\n",
        SUMS: sums(),
        f"wheels/{WHEEL}": GOOD_WHEEL,
        "wheels/of_another_python-1.0-cp399-cp399-any.whl": b"not looked at",
    }


def packed(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    content = io.BytesIO()
    with (
        lzma.open(content, "wb", preset=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as tar,
    ):
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member in more:
            tar.addfile(member)
    return content.getvalue()


@pytest.fixture
def layout(tmp_path: pathlib.Path) -> layout_kit.Layout:
    return layout_kit.rootless(
        layout_kit.Role.WORKER, prefix=tmp_path / "inside" / "enlist", environment={}
    )


def lay_out(layout: layout_kit.Layout, payload: bytes, *, version: str = "0.1.0") -> pathlib.Path:
    release = release_format.Release(
        role="worker",
        version=version,
        arch="aarch64" if platform.machine() == "aarch64" else "x86_64",
        pythons=(PYTHON.version,),
        commit="0" * 40,
        made_at="2026-01-31T12:00:00Z",
        payload_sha256=hashlib.sha256(payload).hexdigest(),
    )
    made = tree.lay_out(
        layout,
        release=release,
        install_sh=b"#!/bin/sh\n",
        payload=io.BytesIO(payload),
        python=PYTHON,
    )
    return layout.release(made)


def test_a_good_payload_becomes_a_sound_release(layout: layout_kit.Layout) -> None:
    folder = lay_out(layout, packed(good()))
    site = folder / "lib" / f"python{PYTHON.version}" / "site-packages"
    assert tree.faults(folder, python=PYTHON) == []
    assert (site / "thing" / "__init__.py").exists()
    assert not list(site.glob("of_another*"))
    assert (folder / "systemd" / "worker" / "enlist-agent.service").exists()
    assert (folder / "bin" / "python").resolve() == PYTHON.program.resolve()


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.SYMTYPE
    member.linkname = target
    return member


def device(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.CHRTYPE
    return member


def a_wheel_with(files: dict[str, str]) -> dict[str, bytes]:
    content = wheel(files)
    return {**good(), SUMS: sums(content), f"wheels/{WHEEL}": content}


BAD: dict[str, bytes] = {
    "a path that climbs": packed({**good(), "code/../../../outside.py": b""}),
    "an absolute path": packed({**good(), "/outside.py": b""}),
    "an empty part in a path": packed({**good(), "code//outside.py": b""}),
    "a link": packed(good(), link("code/link.py", "/etc/passwd")),
    "a device": packed(good(), device("code/device")),
    "a file with no place": packed({**good(), "notes.txt": b""}),
    "no wheels for this Python": packed(
        {name: data for name, data in good().items() if name != SUMS}
    ),
    "a wheel that is missing": packed(
        {name: data for name, data in good().items() if name != f"wheels/{WHEEL}"}
    ),
    "another wheel than is listed": packed({**good(), f"wheels/{WHEEL}": wheel({"x.py": ""})}),
    "a wheel that is none": packed({**good(), SUMS: sums(b"zip"), f"wheels/{WHEEL}": b"zip"}),
    "a wheel that climbs": packed(a_wheel_with({"../../../outside.py": ""})),
    "a wheel with an absolute path": packed(a_wheel_with({"/outside.py": ""})),
    "a wheel over our own code": packed(a_wheel_with({"operator_cli/main.py": "other"})),
    "no tar inside": lzma.compress(b"text"),
    "half of it": packed(good())[:-40],
    "no compressed file": b"text",
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_payload_leaves_nothing(
    what: str, layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    with pytest.raises((tree.BadPayload, release_format.BadRelease)):
        lay_out(layout, BAD[what])
    assert [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()] == []
    assert list(layout.releases.iterdir()) == []


def test_a_payload_that_unfolds_without_end_is_refused(
    layout: layout_kit.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_MOST_BYTES", 100_000)
    with pytest.raises(tree.BadPayload, match="larger"):
        lay_out(layout, packed({**good(), "code/big.py": bytes(200_000)}))
    # Also where it is a wheel that unfolds.
    with pytest.raises(tree.BadPayload, match="larger"):
        lay_out(layout, packed(a_wheel_with({"big.py": " " * 99_000, "big2.py": " " * 9000})))
    assert list(layout.releases.iterdir()) == []


def test_a_python_that_the_release_does_not_know_is_told(layout: layout_kit.Layout) -> None:
    other = tree.Python(program=PYTHON.program, version="3.99", full_version="3.99.0")
    with pytest.raises(tree.BadPayload, match=r"is for Python .*, and here is 3\.99"):
        tree.lay_out(
            layout,
            release=release_format.Release(
                role="worker", version="0.1.0", arch="x86_64", pythons=(PYTHON.version,),
                commit="0" * 40, made_at="2026-01-31T12:00:00Z", payload_sha256="0" * 64,
            ),
            install_sh=b"",
            payload=io.BytesIO(),
            python=other,
        )  # fmt: skip


def test_a_release_whose_python_is_gone_is_laid_out_anew(layout: layout_kit.Layout) -> None:
    folder = lay_out(layout, packed(good()))
    other = tree.Python(program=PYTHON.program, version="3.99", full_version="3.99.0")
    assert tree.faults(folder, python=other) == [f"{folder} was made for Python {PYTHON.version}"]
    python = folder / "bin" / "python"
    python.unlink()
    python.symlink_to("/usr/bin/python3.99")
    (fault,) = tree.faults(folder, python=PYTHON)
    assert "leads to" in fault
    assert lay_out(layout, packed(good())) == folder
    assert tree.faults(folder, python=PYTHON) == []


def test_what_was_left_aside_is_removed(layout: layout_kit.Layout) -> None:
    for name in (".making-0.0.1-000000000000", ".old-0.0.1-000000000000"):
        (layout.releases / name / "deep").mkdir(parents=True)
    folder = lay_out(layout, packed(good()))
    assert [path.name for path in layout.releases.iterdir()] == [folder.name]


DAMAGES = {
    "a changed file": lambda path: path.write_text("changed\n"),
    "a file that is gone": lambda path: path.unlink(),
    "a file that everybody may write": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damage_is_named(what: str, layout: layout_kit.Layout) -> None:
    folder = lay_out(layout, packed(good()))
    file = folder / "lib" / f"python{PYTHON.version}" / "site-packages" / "thing" / "__init__.py"
    DAMAGES[what](file)
    (fault,) = tree.faults(folder, python=PYTHON)
    assert fault.startswith(str(file))


def test_the_tests_run_under_a_python_that_releases_know() -> None:
    assert PYTHON.version in release_format.PYTHONS, sys.version


def test_a_release_with_a_compiled_file_that_others_may_write_is_made_anew(
    layout: layout_kit.Layout,
) -> None:
    folder = lay_out(layout, packed(good()))
    planted = next(folder.rglob("*.pyc"))
    whole = planted.read_bytes()
    planted.write_bytes(b"planted")
    assert tree.faults(folder, python=PYTHON) == []  # the list does not name it
    planted.chmod(0o666)
    assert lay_out(layout, packed(good())) == folder
    assert planted.read_bytes() == whole
