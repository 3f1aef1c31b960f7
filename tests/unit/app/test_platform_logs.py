"""The Platform's log shows no local variables, in either form."""

import io
import logging
import sys
from collections.abc import Iterator
from typing import Literal

import pytest

from platform_server.app import logs


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_shows_no_local_variable(
    form: Literal["console", "json"], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    logs.configure(level="info", form=form, process="engine")
    with pytest.raises(ValueError, match="no secret") as caught:
        _fail_with("ent_" + "secret"[::-1])
    logging.getLogger("test").error("A fault of ours", exc_info=caught.value)
    assert "no secret, 10 characters" in written.getvalue()
    assert "terces" not in written.getvalue()


def _fail_with(token: str) -> None:
    raise ValueError(f"no secret, {len(token)} characters")
