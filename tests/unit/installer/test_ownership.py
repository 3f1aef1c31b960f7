"""Nobody but root may have a hand in what root installs, from the top down to what is believed.

The tree is the test's own, and its owner stands for root; a real other account stands in for who
should have no hand where the test may make one (root alone may give a folder away).
"""

import os
import pathlib

import pytest

from installer import failures, install, ownership, uninstall, waiting
from installer import layout as layout_kit
from installer import progress as progress_kit
from installer import release as release_format

UID = os.getuid()
OTHER = 65534
gives_away = pytest.mark.skipif(UID != 0, reason="needs root to give a folder away")


@pytest.fixture
def layout(tmp_path: pathlib.Path) -> layout_kit.Layout:
    made = layout_kit.system(
        layout_kit.Role.WORKER,
        prefix=tmp_path / "opt" / "enlist",
        data_dir=tmp_path / "var" / "enlist" / "worker",
    )
    for folder in (made.releases / "1.0.0-a", made.data_dir):
        folder.mkdir(parents=True)
    for folder in (*made.releases.parents, *made.data_dir.parents):
        if folder.is_relative_to(tmp_path):
            folder.chmod(0o755)
    made.releases.chmod(0o755)
    made.current.symlink_to("releases/1.0.0-a")
    (made.releases / "1.0.0-a").chmod(0o755)
    return made


def require(layout: layout_kit.Layout, tmp_path: pathlib.Path) -> None:
    ownership.require(layout, uid=UID, top=tmp_path)


WRITABLE = {
    "a folder above the prefix": ("opt", 0o775),
    "the prefix": ("opt/enlist", 0o757),
    "the role's folder": ("opt/enlist/worker", 0o775),
    "the releases": ("opt/enlist/worker/releases", 0o777),
    "the release in use": ("opt/enlist/worker/current", 0o775),
    "a sticky folder": ("opt", 0o1777),
    "a folder above the data": ("var", 0o775),
    "the folder of the data directories": ("var/enlist", 0o777),
}


@pytest.mark.parametrize("what", WRITABLE)
def test_a_folder_that_others_may_write_is_refused_and_named(
    what: str, layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    require(layout, tmp_path)
    name, mode = WRITABLE[what]
    (tmp_path / name).chmod(mode)
    with pytest.raises(failures.NeedsOperator) as told:
        require(layout, tmp_path)
    assert f"chown root {tmp_path / name}; chmod go-w {tmp_path / name}" in str(told.value)


@gives_away
@pytest.mark.parametrize(
    "name",
    ["opt", "opt/enlist", "opt/enlist/worker", "opt/enlist/worker/releases", "var", "var/enlist"],
)
def test_a_folder_of_another_account_is_refused(
    name: str, layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    os.chown(tmp_path / name, OTHER, OTHER)
    with pytest.raises(failures.NeedsOperator, match=f"belongs to uid {OTHER}"):
        require(layout, tmp_path)


def test_the_data_directory_itself_is_its_accounts(
    layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    layout.data_dir.chmod(0o777)
    require(layout, tmp_path)
    elsewhere = tmp_path / "disk" / "data"
    elsewhere.mkdir(parents=True)
    elsewhere.parent.chmod(0o755)
    layout.data_dir.rmdir()
    layout.data_dir.symlink_to(elsewhere)
    elsewhere.chmod(0o777)
    require(layout, tmp_path)


def test_the_folders_that_hold_a_links_target_are_looked_at_as_well(
    layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    open_to_all = tmp_path / "home"
    open_to_all.mkdir()
    (open_to_all / "opt").mkdir(mode=0o755)
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("home/opt")
    open_to_all.chmod(0o777)
    linked = layout_kit.system(
        layout_kit.Role.WORKER, prefix=tmp_path / "first" / "enlist", data_dir=layout.data_dir
    )
    with pytest.raises(failures.NeedsOperator, match=f"{open_to_all} belongs to"):
        require(linked, tmp_path)


def test_a_link_that_leads_back_to_itself_ends(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert list(ownership.above(tmp_path / "one" / "more", uid=UID, top=tmp_path)) == []


def test_a_plain_users_installation_is_his_own_affair(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o777)
    own = layout_kit.rootless(layout_kit.Role.WORKER, prefix=tmp_path / "e", environment={})
    ownership.require(own, uid=UID, top=tmp_path.parent)


def test_an_installation_below_a_folder_that_others_may_write_makes_nothing(
    tmp_path: pathlib.Path,
) -> None:
    tmp_path.chmod(0o777)
    layout = layout_kit.system(
        layout_kit.Role.WORKER, prefix=tmp_path / "e", data_dir=tmp_path / "data"
    )
    release = release_format.Release(
        role="worker", version="0.1.0", arch="x86_64", pythons=("3.11",), commit="0" * 40,
        made_at="2026-01-31T12:00:00Z", payload_sha256="0" * 64,
    )  # fmt: skip
    wish = install.Wish(
        layout=layout,
        source=install.Source(release=release, install_sh=b"", payload=tmp_path / "none"),
        release_key=b"",
    )
    with pytest.raises(failures.NeedsOperator):
        install.install(
            wish, progress=progress_kit.Progress(), waits=waiting.SystemWaits(), top=tmp_path
        )
    assert list(tmp_path.iterdir()) == []


def test_a_removal_believes_no_receipt_that_others_may_write(
    layout: layout_kit.Layout, tmp_path: pathlib.Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    layout.root.chmod(0o777)
    layout.receipt.write_text("{}")
    with pytest.raises(failures.NeedsOperator):
        uninstall.uninstall(
            layout, progress=progress_kit.Progress(), waits=waiting.SystemWaits(), top=tmp_path
        )
    assert layout.current.is_symlink()
    assert victim.exists()


def test_what_others_may_write_in_a_release_is_found_wherever_it_lies(
    layout: layout_kit.Layout,
) -> None:
    release = layout.releases / "1.0.0-a"
    (release / "bin").mkdir(mode=0o755)
    compiled = release / "bin" / "x.pyc"
    compiled.write_bytes(b"")
    compiled.chmod(0o644)
    (release / "bin" / "python").symlink_to("/nowhere")
    assert list(ownership.below(release, uid=UID)) == []
    compiled.chmod(0o666)
    assert [one.path for one in ownership.below(release, uid=UID)] == [compiled]
    if UID == 0:
        compiled.chmod(0o644)
        os.chown(compiled, OTHER, OTHER)
        assert [one.uid for one in ownership.below(release, uid=UID)] == [OTHER]
