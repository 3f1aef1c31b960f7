"""Moto's S3 over real TLS, with authentication on: it judges every signature by botocore.

A stranger's implementation on the other side, where `object_store` is our own. A bucket, a user and
his keys are made before authentication sets in.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import boto3

from tests.support import certificates, machine, waits

BUCKET = "enlist-box"
REGION = "eu-west-1"
_CALLS_BEFORE_AUTHENTICATION = 4
_STOP_SECONDS = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moto:
    """A running store, and who may use it."""

    url: str
    ca_file: pathlib.Path
    access_key: str = "anybody"
    secret_key: str = "anything"

    def client(self, service: str) -> Any:
        session: Any = boto3  # its stubs know a form for each service by name, not for any
        return session.client(
            service,
            endpoint_url=self.url,
            verify=str(self.ca_file),
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
        }

    def held(self) -> dict[str, bytes]:
        """Every object by its key, read with boto3."""
        client = self.client("s3")
        return {
            found["Key"]: client.get_object(Bucket=BUCKET, Key=found["Key"])["Body"].read()
            for found in client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        }


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path) -> AsyncIterator[Moto]:
    """A store on a free port of 127.0.0.1, for one test."""
    issued = certificates.issue()
    ca_file, key_file = folder / "moto-ca.pem", folder / "moto.key"
    ca_file.write_text(issued.pem)
    key_file.touch(mode=0o600)
    key_file.write_text(issued.key_pem)
    port = machine.free_port()
    log = folder / "moto.log"
    with _server(port, ca_file=ca_file, key_file=key_file, log=log):
        await waits.until(lambda: b"Running on" in log.read_bytes())
        yield _prepared(Moto(url=f"https://127.0.0.1:{port}", ca_file=ca_file))


@contextlib.contextmanager
def _server(
    port: int, *, ca_file: pathlib.Path, key_file: pathlib.Path, log: pathlib.Path
) -> Iterator[None]:
    program = pathlib.Path(sys.executable).with_name("moto_server")
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port), "-c", ca_file, "-k", key_file],
            stdout=written,
            stderr=subprocess.STDOUT,
            env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(_CALLS_BEFORE_AUTHENTICATION)},
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)


def _prepared(moto: Moto) -> Moto:
    """Four calls, as many as are let through unsigned."""
    moto.client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    iam = moto.client("iam")
    iam.create_user(UserName="releaser")
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    iam.put_user_policy(
        UserName="releaser",
        PolicyName="releasing",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
    )
    made = iam.create_access_key(UserName="releaser")["AccessKey"]
    return dataclasses.replace(
        moto, access_key=made["AccessKeyId"], secret_key=made["SecretAccessKey"]
    )
