"""EC2 in the contract suite: see `aws` for what stands behind it."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self, cast

import boto3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from provisioning import contract, credentials, providers
from runtime_kit import secret as secret_kit
from tests.support.clouds import aws, bench, moto_process, server
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

ACCESS_KEY: Final = "AKIAENLISTCONTRACT00"
SECRET_KEY: Final = "x7WJ0example0secret0of0a0made0up0account"


PUBLIC_KEY: Final = (
    ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    .public_key()
    .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    .decode()
)


def with_ssh(request: contract.Request) -> contract.Request:
    """The order with a person's key, let in from one network until two in the afternoon."""
    until = datetime.datetime(2026, 12, 1, 14, tzinfo=datetime.UTC)
    ssh = contract.Ssh(public_key=PUBLIC_KEY, sources=("192.0.2.0/28",), until=until)
    return dataclasses.replace(request, ssh=ssh)


class AwsBench(bench.Bench):
    """moto behind the proxy, with an access key that moto does not judge."""

    provider: ClassVar[str] = "aws"
    steps: ClassVar[Mapping[bench.Step, str]] = {
        bench.Step.CREATE: "ec2:RunInstances",
        bench.Step.FIND: "ec2:DescribeInstances",
        bench.Step.DESCRIBE: "ec2:DescribeInstances",
        bench.Step.DELETE: "ec2:TerminateInstances",
        bench.Step.LIST: "ec2:DescribeInstances",
        bench.Step.POLL: "ec2:DescribeInstances",
    }
    codes: ClassVar[bench.Codes] = bench.Codes(
        quota="VcpuLimitExceeded",
        capacity="InsufficientInstanceCapacity",
        catalogue="InvalidAMIID.NotFound",
        locked="IncorrectInstanceState",
        async_capacity="InsufficientInstanceCapacity",
    )
    region: ClassVar[str] = "eu-west-1"
    other_region: ClassVar[str] = "us-east-1"
    size: ClassVar[str] = "t3.small"
    image: ClassVar[str] = "debian-12"
    signs_time: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.cloud = aws.Aws(clock=self.clock)
        self._served = server.Served(self.cloud)
        self.secrets = [SECRET_KEY]

    def __enter__(self) -> Self:
        moto_process.empty()
        self._served.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._served.__exit__()
        if self._served.broken:
            raise BaseExceptionGroup("the proxy broke", self._served.broken)

    @property
    def ledger(self) -> ledger_kit.Ledger:
        """What the proxy was asked and moto holds."""
        return self.cloud.ledger

    @property
    def script(self) -> script_kit.Script:
        """What it does wrong."""
        return self.cloud.script

    @property
    def address(self) -> str:
        """Where the proxy listens."""
        return self._served.address

    def opening(self) -> providers.Opening:
        """What a driver on it is opened with."""
        return providers.Opening(
            settings={"region": self.region, "regions": f"{self.region},{self.other_region}"},
            credential=credentials.AwsKeys(
                access_key_id=ACCESS_KEY, secret_access_key=secret_kit.Secret(SECRET_KEY)
            ),
            observer=self.told,
            clock=self.clock,
            endpoints={"": self._served.address},
        )

    def admin(self, service: str = "ec2", *, region: str | None = None) -> Any:
        """Somebody else with the account, straight at moto."""
        return boto3.client(
            cast("Any", service),
            endpoint_url=f"http://{moto_process.address()}",
            region_name=region or self.region,
            aws_access_key_id="other",
            aws_secret_access_key="other",
        )

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        """A machine made by somebody else."""
        client = self.admin()
        images = client.describe_images(Owners=["136693071363"])["Images"]
        made = client.run_instances(
            ImageId=images[0]["ImageId"],
            InstanceType=self.size,
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [
                        {"Key": key, "Value": value}
                        for key, value in {**tags, "Name": name}.items()
                    ],
                }
            ],
        )
        ref = str(made["Instances"][0]["InstanceId"])
        self.ledger.machines[ref] = ledger_kit.Machine(
            ref=ref,
            name=name,
            tags=dict(tags),
            region=self.region,
            size=self.size,
            born=self.clock.now(),
        )
        return ref

    def ports_open(self, ref: str) -> list[str]:
        """What moto's security groups let in from anywhere or somewhere."""
        client = self.admin()
        (held,) = client.describe_instances(InstanceIds=[ref])["Reservations"]
        ids = [one["GroupId"] for one in held["Instances"][0]["SecurityGroups"]]
        groups = client.describe_security_groups(GroupIds=ids)["SecurityGroups"]
        return [str(rule.get("FromPort")) for one in groups for rule in one["IpPermissions"]]

    def settle(self) -> None:
        """A minute: moto's machines run, and end, at once, and only lags take time."""
        self.clock.advance(60)


BENCH = AwsBench
