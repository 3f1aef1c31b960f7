"""What a machine wrote to its console reaches a person as plain lines, and not without end."""

import pytest

from platform_server.cloud import console
from provisioning import abilities, contract


def test_what_a_terminal_would_obey_is_taken_out() -> None:
    raw = "\x1b[2J\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07next\x07\rlast\u202egnp.exe\x9b31m\n"
    shown = console.harmless(raw)
    assert shown == "red\nnext\ufffd\nlast\ufffdgnp.exe\ufffd31m\n"


def test_a_long_console_is_shown_by_its_end_and_from_a_whole_line() -> None:
    raw = "".join(f"line {number}\n" for number in range(100_000))
    shown = console.harmless(raw)
    assert console.MOST_CHARACTERS - 20 < len(shown) <= console.MOST_CHARACTERS
    assert raw.endswith(f"\n{shown}")
    assert shown.startswith("line ")


def test_one_line_without_an_end_is_cut_as_well() -> None:
    shown = console.harmless("x" * 10_000_000)
    assert len(shown) == console.MOST_CHARACTERS


@pytest.mark.parametrize(
    ("provider", "capability", "said"),
    [
        ("vultr", contract.Capability.VOLUMES, "Enlist has no volumes at vultr, only at: hetzner,"),
        ("hetzner", contract.Capability.CONSOLE, "Enlist has no console that can be read at "),
    ],
)
def test_what_is_lacking_is_named_with_who_has_it(
    provider: str, capability: contract.Capability, said: str
) -> None:
    with pytest.raises(abilities.Lacking, match=said):
        abilities.require(provider, capability)
