"""Which addresses name a file of the folder of bundles: three forms, and nothing else."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_server.bundles import places

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("/install.sh", "install.sh"),
        ("/worker-x86_64", "worker-x86_64"),
        ("/worker-aarch64", "worker-aarch64"),
        (f"/bundles/sha256/{HEX}", f"sha256/{HEX}"),
    ],
)
def test_the_three_forms_name_a_file(target: str, file: str) -> None:
    assert places.file_of(target.encode()) == pathlib.Path(file)


@pytest.mark.parametrize(
    "target",
    [
        *("/", "", "/install.sh/", "/install.sh?x", "//install.sh", "/./install.sh"),
        *("/../install.sh", "/bundles/../install.sh", "/install%2esh", "/INSTALL.SH"),
        *("/worker-", "/worker-../../master.key", "/worker-arm64", "/worker-x86_64\n"),
        *("/bundles/sha256/", f"/bundles/sha256/{HEX[:-1]}", f"/bundles/sha256/{HEX}0"),
        *(f"/bundles/sha256/{HEX.upper()}", f"/bundles/sha256/{HEX}/../../x"),
        *(f"/bundles/sha256/../{HEX}", "/bundles/sha256/" + "." * 64, f"/sha256/{HEX}"),
        f"http://host/bundles/sha256/{HEX}",
    ],
)
def test_all_else_names_none(target: str) -> None:
    assert places.file_of(target.encode()) is None


@given(st.binary(max_size=120))
def test_no_address_leads_out_of_the_folder(target: bytes) -> None:
    for start in (b"", b"/", b"/bundles/sha256/", b"/worker-"):
        file = places.file_of(start + target)
        assert file is None or (not file.is_absolute() and ".." not in file.parts)
