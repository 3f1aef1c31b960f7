"""What stands in the Platform's log while EC2 is asked, at its most talkative level."""

import base64
import io
import logging
import sys
from collections.abc import Iterator

import pytest

from platform_server.app import logs
from tests.support.clouds import aws_bench


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    logs.configure(level="debug", form="json", process="engine")
    yield log
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_at_debug_the_log_holds_neither_first_boot_data_nor_what_calls_are_signed_with(
    written: io.StringIO,
) -> None:
    with aws_bench.AwsBench() as bench:
        driver = bench.driver()
        request = bench.request()
        await driver.create(request)
        await driver.close()
    logging.getLogger("enlist.test").debug("The level is debug")
    log = written.getvalue()
    assert "The level is debug" in log
    encoded = base64.b64encode(request.first_boot.encode()).decode()
    for secret in (encoded, encoded[:40], request.first_boot, aws_bench.SECRET_KEY):
        assert secret not in log
