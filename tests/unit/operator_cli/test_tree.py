"""The root: its table, its global options in every place, its mistakes, its help."""

import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import click
import pytest

from operator_cli import global_options, main, root
from tests.support import standin
from tests.support.cli_runs import Enlist
from wire_protocol import product

OURS = [name for name, (place, _) in main.TABLE.items() if place.startswith("operator_cli")]


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, f"{path} {name}")


def _ours() -> list[tuple[str, click.Command]]:
    found = []
    for name in OURS:
        module, _, attribute = main.TABLE[name][0].partition(":")
        command = global_options.attach(getattr(importlib.import_module(module), attribute))
        found += list(_commands(command, name))
    return found


def test_version_is_printed_before_and_after_a_command(enlist: Enlist) -> None:
    for line in (["--version"], ["nodes", "list", "--version"], ["nodes", "--version"]):
        done = enlist(*line)
        assert (done.code, done.out, done.err) == (0, f"enlist {product.VERSION}\n", "")


def test_help_names_every_command_and_loads_none(enlist: Enlist) -> None:
    done = enlist("--help")
    assert done.code == 0
    for name, (_, summary) in main.TABLE.items():
        assert f"{name} " in done.out
        assert summary in done.out


def test_every_command_has_a_sentence_and_an_example() -> None:
    for path, command in _ours():
        text = str(command.help)
        assert text.partition("\n")[0].endswith("."), path
        assert f"enlist {path.split()[0]}" in text, path
        assert "Example" in text, path


def test_the_table_says_what_each_command_says_of_itself() -> None:
    said = {path: str(command.help).partition("\n")[0] for path, command in _ours()}
    for name in OURS:
        if name not in ("nodes", "events", "completion"):
            assert main.TABLE[name][1] == said[name]


GLOBAL = ("--output", "-o", "--platform", "--token-file", "--data-dir", "--yes", "--check",
          "--debug", "--no-color", "--version")  # fmt: skip


def test_every_command_takes_the_global_options() -> None:
    for path, command in _ours():
        known = {spelling for parameter in command.params for spelling in parameter.opts}
        assert known.issuperset(GLOBAL), path


PLACES = {
    "before the command": ["-o", "json", "nodes", "list"],
    "between": ["nodes", "-o", "json", "list"],
    "after": ["nodes", "list", "-o", "json"],
    "glued": ["nodes", "list", "-ojson"],
    "the nearest wins": ["-o", "yaml", "nodes", "list", "--output=json"],
}


@pytest.mark.parametrize("line", PLACES.values(), ids=PLACES)
def test_an_option_is_taken_anywhere(
    line: list[str], enlist: Enlist, platform: standin.StandIn
) -> None:
    del platform
    assert enlist(*line).json == {"nodes": [], "enrollments": []}


def test_the_environment_stands_behind_the_options(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    del platform
    monkeypatch.setenv("ENLIST_OUTPUT", "json")
    assert enlist("nodes", "list").json["nodes"] == []
    assert enlist("nodes", "list", "-o", "table").out.startswith("No nodes yet")


def test_a_bad_environment_is_invalid_input(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    del platform
    monkeypatch.setenv("ENLIST_OUTPUT", "xml")
    done = enlist("nodes", "list")
    assert (done.code, done.out) == (2, "")
    assert "ENLIST_OUTPUT" in done.err


MISTAKES = {
    "a command with a letter missing": (["node"], "Did you mean nodes?"),
    "a sub-command with letters swapped": (["nodes", "lsit"], "Did you mean list?"),
    "an unknown option": (["nodes", "list", "--lable", "a=b"], "--label"),
    "an unknown output": (["nodes", "list", "-o", "xml"], "'table', 'json', 'yaml'"),
    "a missing argument": (["nodes", "show"], "Missing argument"),
    "an id out of shape": (["nodes", "show", "Web_1"], "not well formed"),
    "a ttl out of range": (["nodes", "enroll-token", "a", "--ttl-minutes", "0"], "1<=x<=1440"),
    "a label without a value": (["nodes", "enroll-token", "a", "--label", "x"], "KEY=VALUE"),
    "a label both set and taken away": (["nodes", "label", "a", "x=1", "x-"], "both set"),
    "an address without https": (["--platform", "http://example.org", "nodes", "list"], "https"),
    "a token that is no token": (
        ["nodes", "enroll", "a", "--enrollment-token", "ent_1", "--cert-file", __file__],
        "starts with ent_",
    ),
    "a span that is no span": (["tokens", "create", "--permission", "p", "--expires", "x"], "30m"),
    "a time that is no time": (["audit", "list", "--since", "yesterday"], "2026-01-31"),
}


@pytest.mark.parametrize("case", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_nothing_is_sent(
    case: tuple[list[str], str], enlist: Enlist, platform: standin.StandIn
) -> None:
    line, hint = case
    done = enlist(*line)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err
    assert "Traceback" not in done.err
    assert platform.seen == []


def test_without_a_command_the_help_is_shown_as_a_mistake(enlist: Enlist) -> None:
    done = enlist()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


def _foreign(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> dict[str, Any]:
    module = types.ModuleType("foreign_package")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foreign_package", module)
    return {"foreign": ("foreign_package:command", "Another package's.")}


def test_a_foreign_command_inherits_what_was_typed_before_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, str]] = []

    @click.command("foreign")
    @click.option("--data-dir", default="own")
    def foreign(data_dir: str) -> None:
        seen.append((data_dir, global_options.current().output))

    table = _foreign(monkeypatch, foreign)
    for line in (
        ["--data-dir", "typed", "-o", "json", "foreign"],
        ["foreign", "--data-dir", "nearer", "-o", "json"],
        ["foreign", "-o", "json"],
    ):
        assert root.run(line, table=table) == 0
    assert seen == [("typed", "json"), ("nearer", "json"), ("own", "json")]


def test_a_foreign_commands_own_flag_hears_what_was_typed_before_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[bool, str | None]] = []

    @click.group("foreign")
    def foreign() -> None: ...

    @foreign.command("join")
    @click.option("--check", is_flag=True)
    @click.option("--platform")
    def join(*, check: bool, platform: str | None) -> None:
        seen.append((check, platform))

    table = _foreign(monkeypatch, foreign)
    for line in (
        ["foreign", "join"],
        ["--check", "foreign", "join"],
        ["foreign", "--platform", "x", "join", "--check"],
    ):
        assert root.run(line, table=table) == 0
    assert seen == [(False, None), (True, None), (True, "x")]


def test_a_foreign_command_that_does_not_know_check_is_refused_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.group("foreign")
    def foreign() -> None: ...

    @foreign.command("change")
    def change() -> None:
        raise AssertionError("It must not run.")

    table = _foreign(monkeypatch, foreign)
    for line in (["--check", "foreign", "change"], ["foreign", "change", "--check"]):
        assert root.run(line, table=table) == 2
        assert "does not know --check" in capsys.readouterr().err


def test_an_exception_with_an_exit_code_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Revoked(Exception):
        """The node was revoked: enroll it again."""

        exit_code = 6

    @click.command("foreign")
    def foreign() -> None:
        raise Revoked("The node was revoked. Run: enlist worker join")

    assert root.run(["foreign"], table=_foreign(monkeypatch, foreign)) == 6
    assert capsys.readouterr().err == "Error: The node was revoked. Run: enlist worker join\n"


def test_a_fault_of_ours_leaves_a_private_report_without_values(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch, home: Any
) -> None:
    del platform

    value = 42

    def fail(*_arguments: Any, **_more: Any) -> None:
        raise RuntimeError(f"secret{value}")

    monkeypatch.setattr("operator_cli.printing.show", fail)
    done = enlist("nodes", "list")
    assert (done.code, done.out) == (1, "")
    assert "secret42" not in done.err
    assert "Traceback" not in done.err
    (report,) = (home / ".local/state/enlist/reports").iterdir()
    assert report.stem in done.err
    assert report.stat().st_mode & 0o777 == 0o600
    assert "secret42" not in report.read_text()
    assert "Traceback" in enlist("nodes", "list", "--debug").err


def test_the_platforms_packages_missing_is_said_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(_name: str) -> Any:
        raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")

    monkeypatch.setattr(importlib, "import_module", absent)
    assert root.run(["serve"], table=main.TABLE) == 6
    assert capsys.readouterr().err.rstrip().endswith("pip install 'enlist[platform]'")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(shell: str, enlist: Enlist) -> None:
    done = enlist("completion", shell)
    assert done.code == 0
    assert f"_ENLIST_COMPLETE={shell}_complete" in done.out


def test_completion_offers_commands_and_near_options(
    enlist: Enlist, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_ENLIST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "enlist nodes enr")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert enlist().out.split() == ["plain,enroll-token", "plain,enroll"]
