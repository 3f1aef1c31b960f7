"""The operator's policy file: no defaults, nothing hidden, nobody else's to change."""

import json
import os
import pathlib
from typing import Any

import pytest

from platform_server.cloud import policy

HETZNER: dict[str, Any] = {
    "regions": ["fsn1"],
    "image": "debian-12",
    "classes": [{"name": "starter", "size": "cx23"}],
    "most_machines": 5,
    "most_hourly": "0.50",
    "currency": "EUR",
}


def _write(folder: pathlib.Path, content: str | dict[str, Any]) -> policy.Source:
    path = folder / "policy.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text)
    path.chmod(0o600)
    return policy.Source(path)


def _file(**sections: Any) -> dict[str, Any]:
    return {"version": 1, "providers": sections}


def test_says_what_may_be_ordered(tmp_path: pathlib.Path) -> None:
    rules = _write(tmp_path, _file(hetzner=HETZNER)).find("hetzner")
    assert rules is not None
    assert (rules.regions, rules.image) == (["fsn1"], "debian-12")
    assert rules.sizes == frozenset({"cx23"})
    assert (rules.most_machines, rules.most_hourly_micros) == (5, 500_000)
    found = rules.find_class("starter")
    assert found is not None
    assert found.size == "cx23"
    assert rules.find_class("growth") is None


@pytest.mark.parametrize(
    ("amount", "micros"),
    [("0.000001", 1), (0.000001, 1), (1, 1_000_000), ("12.5", 12_500_000), ("0.1", 100_000)],
)
def test_money_is_read_exactly(tmp_path: pathlib.Path, amount: object, micros: int) -> None:
    rules = _write(tmp_path, _file(hetzner={**HETZNER, "most_hourly": amount})).find("hetzner")
    assert rules is not None
    assert rules.most_hourly_micros == micros


@pytest.mark.parametrize("missing", sorted(HETZNER))
def test_has_no_defaults(tmp_path: pathlib.Path, missing: str) -> None:
    section = {name: value for name, value in HETZNER.items() if name != missing}
    source = _write(tmp_path, _file(hetzner=section))
    with pytest.raises(policy.Unavailable, match=f"hetzner.{missing}"):
        source.find("hetzner")


BROKEN: dict[str, tuple[Any, str]] = {
    "an unknown key": (_file(hetzner={**HETZNER, "most_machine": 9}), "most_machine"),
    "an unknown provider": (_file(hetzer=HETZNER), "no provider 'hetzer'"),
    "one provider twice": (
        {"version": 1, "providers": {"local": HETZNER, "local-nspawn": HETZNER}},
        "two sections",
    ),
    "a key twice": (
        '{"version": 1, "providers": {}, "providers": {}}',
        "a key stands twice",
    ),
    "another version": ({"version": 2, "providers": {}}, "version"),
    "no JSON": ("{", "is not JSON"),
    "a number in quotes": (_file(hetzner={**HETZNER, "most_machines": "5"}), "most_machines"),
    "money below nothing": (_file(hetzner={**HETZNER, "most_hourly": "-1"}), "most_hourly"),
    "endless money": (_file(hetzner={**HETZNER, "most_hourly": "Infinity"}), "most_hourly"),
    "a class twice": (
        _file(hetzner={**HETZNER, "classes": HETZNER["classes"] * 2}),
        "two classes",
    ),
    "a list": ([], "the file"),
    "depth": ("[" * 100_000, "is not JSON"),
}


@pytest.mark.parametrize("what", sorted(BROKEN))
def test_what_is_broken_stops_orders(tmp_path: pathlib.Path, what: str) -> None:
    content, sentence = BROKEN[what]
    text = content if isinstance(content, str) else json.dumps(content)
    source = _write(tmp_path, text)
    with pytest.raises(policy.Unavailable, match=sentence):
        source.find("hetzner")
    with pytest.raises(policy.Unavailable):
        source.find("local")


def test_one_that_others_can_change_decides_about_no_money(tmp_path: pathlib.Path) -> None:
    source = _write(tmp_path, _file(hetzner=HETZNER))
    assert source.path is not None
    source.path.chmod(0o664)
    with pytest.raises(policy.Unavailable, match="chmod go-w"):
        source.find("hetzner")


def test_only_a_provider_that_costs_money_needs_one(tmp_path: pathlib.Path) -> None:
    none = policy.Source(None)
    assert none.find("local") is None
    with pytest.raises(policy.Unavailable, match="policy_file"):
        none.find("hetzner")
    source = _write(tmp_path, _file())
    assert source.find("local-nspawn") is None
    with pytest.raises(policy.Unavailable, match="no section"):
        source.find("aws")


def test_a_section_for_this_host_is_obeyed(tmp_path: pathlib.Path) -> None:
    source = _write(tmp_path, _file(local={**HETZNER, "regions": ["here"]}))
    rules = source.find("local")
    assert rules is not None
    assert rules.regions == ["here"]


def test_one_that_is_away_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(policy.Unavailable, match="cannot be read: No such file"):
        policy.Source(tmp_path / "none.json").find("hetzner")
    with pytest.raises(policy.Unavailable, match="cannot be read"):
        policy.Source(tmp_path).find("hetzner")


def test_what_is_no_file_is_refused_at_once_and_leaves_nothing_open(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    before = sorted(pathlib.Path("/proc/self/fd").iterdir())
    for path in (pipe, folder):
        with pytest.raises(policy.Unavailable, match="cannot be read"):
            policy.Source(path).find("hetzner")
    assert sorted(pathlib.Path("/proc/self/fd").iterdir()) == before


def test_an_edit_counts_at_once(tmp_path: pathlib.Path) -> None:
    source = _write(tmp_path, _file(hetzner=HETZNER))
    assert source.find("hetzner") is not None
    _write(tmp_path, _file(hetzner={**HETZNER, "most_machines": 1}))
    rules = source.find("hetzner")
    assert rules is not None
    assert rules.most_machines == 1
