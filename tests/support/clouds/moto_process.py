"""One moto server for all tests of a process: EC2 that holds state and reads tags back.

Started on loopback when first asked for, emptied between tests, ended with the process. Its images
are of our own choosing, under their publishers' account numbers, and it is told to check sizes,
images and keys, which it leaves out by default.
"""

import atexit
import functools
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from tests.support import machine

_STARTS_WITHIN = 60.0
_STOPS_WITHIN = 10.0
_PACE = 0.05
_PUBLISHERS = {
    "debian-12-{build}-20261101-1234": "136693071363",
    "debian-12-{build}-20261015-1200": "136693071363",
    "debian-13-{build}-20261101-1234": "136693071363",
    "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{build}-server-20261101": "099720109477",
}
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}


@functools.cache
def address() -> str:
    """Where moto listens."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="enlist-moto-"))
    images = folder / "images.json"
    images.write_text(json.dumps(_images()))
    port = machine.free_port()
    process = subprocess.Popen(
        [
            pathlib.Path(sys.executable).with_name("moto_server"),
            "-H",
            "127.0.0.1",
            "-p",
            str(port),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "MOTO_AMIS_PATH": str(images),
            "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
            "MOTO_ENABLE_AMI_VALIDATION": "true",
            "MOTO_ENABLE_KEYPAIR_VALIDATION": "true",
        },
    )
    atexit.register(_end, process, images)
    _await(port)
    return f"127.0.0.1:{port}"


def empty() -> None:
    """Forgets everything that earlier tests made."""
    status = _ask(address(), "POST", "/moto-api/reset")
    assert status == 200, status


def _await(port: int) -> None:
    until = time.monotonic() + _STARTS_WITHIN
    while True:
        try:
            if _ask(f"127.0.0.1:{port}", "GET", "/moto-api/data.json") == 200:
                return
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(_PACE)


def _ask(where: str, method: str, path: str) -> int:
    connection = http.client.HTTPConnection(where, timeout=_STARTS_WITHIN)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()


def _end(process: "subprocess.Popen[bytes]", images: pathlib.Path) -> None:
    process.terminate()
    process.wait(_STOPS_WITHIN)
    images.unlink(missing_ok=True)
    images.parent.rmdir()


def _images() -> list[dict[str, object]]:
    return [
        {
            "ami_id": f"ami-{position:08x}{number:09x}",
            "state": "available",
            "public": True,
            "owner_id": publisher,
            "image_location": f"{publisher}/{pattern}",
            "root_device_type": "ebs",
            "root_device_name": "/dev/xvda",
            "description": pattern,
            "image_type": "machine",
            "platform": None,
            "architecture": architecture,
            "name": pattern.format(build=build),
            "virtualization_type": "hvm",
            "hypervisor": "xen",
            "creation_date": _made(pattern),
        }
        for position, (pattern, publisher) in enumerate(_PUBLISHERS.items(), start=1)
        for number, (build, architecture) in enumerate(_ARCHITECTURES.items(), start=1)
    ]


def _made(pattern: str) -> str:
    return "2026-10-15T12:00:00.000Z" if "1015" in pattern else "2026-11-01T12:00:00.000Z"
