"""A real Platform orders at EC2's stand-in through a role, set up from what it printed alone.

STS and IAM are ministack's, which judge the trust policy; EC2 is moto's. The machine is played by
the product's own join and Agent, with the ticket in the first-boot data that EC2 was given.
"""

import contextlib
import json
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from runtime_kit import clock as clock_kit
from tests.support import faked_hetzner, operators, real_platform
from tests.support.clouds import aws_bench, ministack_process
from tests.support.clouds.ministack_process import ACCOUNT, Ministack

ROLE = f"arn:aws:iam::{ACCOUNT}:role/enlist"
pytestmark = [pytest.mark.timeout(240), pytest.mark.long]


class Place:
    """The Platform, EC2's stand-in and the account's IAM."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        platform: real_platform.RealPlatform,
        bench: aws_bench.AwsBench,
        iam: Ministack,
    ) -> None:
        self.folder = folder
        self.platform = platform
        self.bench = bench
        self.iam = iam

    def run(self, *arguments: str, expect: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*real_platform.ENLIST, "--data-dir", str(self.platform.data_dir), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=real_platform.clean_environment(),
            cwd=self.folder,
        )
        log = real_platform.tail(self.platform.log)
        assert done.returncode == expect, (arguments, done.returncode, done.stderr, log)
        return done

    def state_of(self, node: str) -> str:
        shown = self.run("cloud", "machines", "show", node, "-o", "json").stdout
        return str(json.loads(shown)["state"])

    def save(self) -> str:
        addresses = {
            "endpoint": self.bench.address,
            "endpoint_sts": self.iam.address,
            "endpoint_iam": self.iam.address,
        }
        settings = [f"--setting={name}={value}" for name, value in addresses.items()]
        return self.run(
            *("cloud", "connections", "save", "aws", "--provider", "aws"),
            *("--credential", "aws-role", "--field", f"role_arn={ROLE}"),
            *("--setting=region=eu-west-1", "--setting=regions=eu-west-1", *settings),
        ).stdout


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        iam = stack.enter_context(ministack_process.started(tmp_path))
        bench = aws_bench.AwsBench()
        bench.cloud.clock = clock_kit.SystemClock()
        stack.enter_context(bench)
        made = iam.client("iam")
        made.create_user(UserName="platform")
        may = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}
        made.put_user_policy(
            UserName="platform",
            PolicyName="assume",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [may]}),
        )
        keys = made.create_access_key(UserName="platform")["AccessKey"]
        platform = stack.enter_context(
            real_platform.running(
                tmp_path / "platform",
                *("--bundle-port", "0"),
                environment={
                    **faked_hetzner.QUICK,
                    "ENLIST_CLOUD_POLICY": str(a_policy(tmp_path)),
                    "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
                    "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
                },
            )
        )
        faked_hetzner.offer_bundle(platform, tmp_path)
        yield Place(tmp_path, platform=platform, bench=bench, iam=iam)


def a_policy(folder: pathlib.Path) -> pathlib.Path:
    file = folder / "cloud.json"
    rules = {
        "regions": ["eu-west-1"],
        "image": "debian-12",
        "classes": [{"name": "starter", "size": "t3.small"}],
        "most_machines": 2,
        "most_hourly": "0.10",
        "currency": "USD",
    }
    file.write_text(json.dumps({"version": 1, "providers": {"aws": rules}}))
    file.chmod(0o600)
    return file


def printed(text: str, after: str) -> Any:
    """The JSON that stands in the text after these words."""
    rest = text[text.index(after) :]
    return json.JSONDecoder().raw_decode(rest[rest.index("{") :])[0]


def test_a_role_is_set_up_from_what_was_printed_and_a_machine_lives_and_ends(
    place: Place,
) -> None:
    saved = place.save()
    trust = printed(saved, "The trust policy of the role")
    [statement] = trust["Statement"]
    assert statement["Principal"] == {"AWS": f"arn:aws:iam::{ACCOUNT}:user/platform"}
    assert re.fullmatch(
        r"enlist-[0-9a-f]{32}", statement["Condition"]["StringEquals"]["sts:ExternalId"]
    )
    policy = printed(saved, "The policy of the role or user")
    for one in policy["Statement"]:
        one.pop("Condition", None)  # this simulation does not look at tags
    iam = place.iam.client("iam")
    iam.create_role(RoleName="enlist", AssumeRolePolicyDocument=json.dumps(trust))
    iam.put_role_policy(RoleName="enlist", PolicyName="enlist", PolicyDocument=json.dumps(policy))
    checked = place.run("cloud", "connections", "check", "aws", "-o", "json")
    assert json.loads(checked.stdout)["check"]["ok"]
    order = ("cloud", "machines", "create", "web-1", "--provider", "aws")
    place.run(*order, "--check")
    assert place.bench.ledger.machines == {}
    place.run(*order)
    operators.wait_until(lambda: bool(place.bench.ledger.living()), what="a machine is bought")
    (bought,) = place.bench.ledger.living()
    with faked_hetzner.booted(place.folder, bought=bought):
        place.run("cloud", "machines", "show", "web-1", "--refresh")
        operators.wait_until(
            lambda: place.state_of("web-1") == "active", what="the machine is active"
        )
        place.run("cloud", "machines", "delete", "web-1", "--wait", "--yes")
    assert place.bench.ledger.living() == []
    assert place.bench.ledger.living_things() == []
    assert place.bench.ledger.count("ec2:RunInstances") == 1
    place.run("cloud", "connections", "forget", "aws", "--yes")
