"""Signature Version 4 against the worked examples that its maker publishes."""

import datetime
import hashlib

from installer.build import sigv4
from runtime_kit.secret import Secret

# The documentation's own example keys; they open nothing.
KEYS = sigv4.Keys(
    access_key="AKIAIOSFODNN7EXAMPLE",
    secret_key=Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    region="us-east-1",
)
HOST = "examplebucket.s3.amazonaws.com"
NOW = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)


def test_the_published_example_of_a_put_has_the_published_signature() -> None:
    found = sigv4.headers(
        "PUT",
        host=HOST,
        path=sigv4.path_of("test$file.text"),
        payload_sha256=hashlib.sha256(b"Welcome to Amazon S3.").hexdigest(),
        keys=KEYS,
        now=NOW,
        extra={
            "Date": "Fri, 24 May 2013 00:00:00 GMT",
            "x-amz-storage-class": "REDUCED_REDUNDANCY",
        },
    )
    assert found["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, "
        "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    )


def test_the_published_example_of_a_get_has_the_published_signature() -> None:
    found = sigv4.headers(
        "GET",
        host=HOST,
        path=sigv4.path_of("test.txt"),
        payload_sha256=hashlib.sha256(b"").hexdigest(),
        keys=KEYS,
        now=NOW,
        extra={"Range": "bytes=0-9"},
    )
    assert found["authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_a_session_token_is_signed_with_the_rest() -> None:
    keys = sigv4.Keys(access_key="a", secret_key=Secret("s"), region="r", session_token=Secret("t"))
    found = sigv4.headers("GET", host="h", path="/", payload_sha256="0", keys=keys, now=NOW)
    assert found["x-amz-security-token"] == "t"
    assert "x-amz-date;x-amz-security-token" in found["authorization"]


def test_a_path_is_escaped_once_and_its_slashes_stay() -> None:
    assert sigv4.path_of("bucket", "a b", "c+d~e.tar") == "/bucket/a%20b/c%2Bd~e.tar"
