"""The examples of the cloud commands' help, run as they stand there at a faked Hetzner.

What needs another provider's account, or names an id that only a person has, is listed as left out,
so that a new example is either run or left out on purpose.
"""

import contextlib
import pathlib
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from operator_cli.commands import cloud, operations
from tests.support import faked_hetzner, operators

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("cloud-examples")]
_EXAMPLE = re.compile(r"^ *enlist (.*(?:\n +--.*)*)", re.MULTILINE)
SAVE = "cloud connections save hetzner --provider hetzner --secret-file token.txt"
ORDER = "cloud machines create web-1 --provider hetzner --region fsn1 --tier starter --wait"
BEFORE = (
    "cloud connections list",
    "cloud connections show hetzner",
    "cloud connections check hetzner",
    "cloud connections check hetzner --wanted 20",
    "cloud connections inventory hetzner",
    "cloud connections consent hetzner --most-machines 5 --most-hourly 0.10",
    "cloud connections consent hetzner --withdraw",
    "cloud catalog --provider hetzner",
    "cloud catalog --provider hetzner --region fsn1",
    "cloud providers",
    "cloud providers -o json",
    "cloud issuer show",
    "cloud issuer show -o json",
)
ACTIVE = (
    "operations watch web-1",
    "operations show web-1",
    "operations list --open",
    "operations list --state failed",
    "operations list --node web-1 --limit 10 -o json",
    "cloud machines list",
    "cloud machines list --state failed",
    "cloud machines list -l tier=web",
    "cloud machines list --ended -o json",
    "cloud machines show web-1",
    "cloud machines show web-1 --refresh",
    "cloud machines console web-1",
    "cloud volumes create data --connection hetzner --region fsn1 --size-gigabytes 50 --wait",
    "cloud volumes list",
    "cloud volumes show data",
    "cloud volumes attach data web-1 --wait",
    "cloud volumes detach data --wait",
    "cloud volumes delete data --wait",
    "cloud addresses create front --connection hetzner --region fsn1 --wait",
    "cloud addresses list",
    "cloud addresses show front",
    "cloud addresses attach front web-1 --wait",
    "cloud snapshots create before-update web-1 --wait",
    "cloud snapshots list",
    "cloud snapshots show before-update",
    "cloud snapshots delete before-update --wait",
    "cloud machines reboot web-1 --wait",
    "cloud costs",
    "cloud costs -o json",
    "cloud orphans list",
    "cloud orphans list --connection hetzner",
    "cloud machines delete web-1 --wait",
    # Only now: Hetzner takes an address from no machine that runs.
    "cloud addresses detach front --wait",
    "cloud addresses delete front --wait",
)
FORGET = "cloud connections forget hetzner"
ENDS = {  # any other ends with 0
    "cloud connections consent hetzner --most-machines 5 --most-hourly 0.10": 4,  # policy: 0.05
    "cloud machines console web-1": 4,  # Hetzner has none
}
LEFT_OUT = {
    "cloud catalog --provider aws --nested-virt -o json": "another provider",
    "cloud connections save aws --provider aws --credential aws-role --field "
    "role_arn=arn:aws:iam::111122223333:role/enlist --setting region=eu-central-1": "another "
    "provider",
    "cloud connections save hetzner --provider hetzner": "asks a person for the token",
    "cloud machines create demo --provider local --wait": "boots a machine: test_85",
    "cloud machines create web-2 --provider aws --ssh-key ~/.ssh/id_ed25519.pub --ssh-from "
    "203.0.113.7/32 --ssh-for 2h": "another provider",
    "cloud machines create web-2 --provider hetzner --image before-update": "a second machine",
    "cloud machines delete demo --wait": "boots a machine: test_85",
    "cloud machines delete web-1 --keep-machine": "another end",
    'cloud machines forget web-1 --reason "deleted by hand, the account is closed"': "another end",
    "cloud machines resume-template 0f3a5c7e9b1d2468": "an id",
    'cloud volumes forget data --reason "the account is closed"': "another end",
    'cloud snapshots forget before-update --reason "the account is closed"': "another end",
    'cloud addresses forget front --reason "the account is closed"': "another end",
    "cloud orphans delete hetzner machine 4711 --wait": "an id",
    "cloud orphans adopt hetzner 4711 web-1": "an id",
    "cloud issuer export /var/www/issuer": "an issuer: test_issuer_outside",
    "cloud issuer export ./public": "an issuer: test_issuer_outside",
    "cloud issuer rotate": "an issuer: test_issuer_outside",
    "cloud issuer rotate --at-once && enlist cloud issuer export /var/www/issuer": "an issuer",
    "operations show 0123456789abcdef": "an id",
    "operations watch 0123456789abcdef": "an id",
    "operations retry 0123456789abcdef --wait": "an id",
    "operations cancel 0123456789abcdef --wait": "an id",
    "operations resolve 0123456789abcdef adopt --ref 4711": "an id",
    "operations resolve 0123456789abcdef give-up": "an id",
}


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _commands(found)


def _examples() -> set[str]:
    return {
        " ".join(example.split())
        for group in (cloud.cloud, operations.operations)
        for command in _commands(group)
        for example in _EXAMPLE.findall(command.help or "")
    }


def test_each_example_is_run_or_left_out_on_purpose() -> None:
    run = {SAVE, ORDER, FORGET, *BEFORE, *ACTIVE}
    assert run.isdisjoint(LEFT_OUT)
    assert _examples() == run | set(LEFT_OUT)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[faked_hetzner.Place]:
    with faked_hetzner.running(tmp_path) as running:
        yield running


@pytest.mark.long
def test_the_helps_examples_run_as_typed(place: faked_hetzner.Place) -> None:
    def typed(line: str) -> None:
        place.run(*shlex.split(line), expect=ENDS.get(line, 0))

    (place.folder / "token.txt").write_text(f"{faked_hetzner.TOKEN}\n")
    place.run(*shlex.split(SAVE), "--setting", f"endpoint={place.address}")
    for line in BEFORE:
        typed(line)
    with contextlib.ExitStack() as stack:
        ordering = stack.enter_context(place.started(*shlex.split(ORDER)))
        operators.wait_until(lambda: bool(place.fake.ledger.living()), what="a machine is bought")
        (bought,) = place.fake.ledger.living()
        stack.enter_context(place.booted(bought.ref))
        _, err = ordering.communicate(timeout=120)
        assert ordering.returncode == 0, err
        for line in ACTIVE:
            typed(line)
    assert place.fake.ledger.living() == []
    assert place.fake.ledger.living_things() == []
    typed(FORGET)
