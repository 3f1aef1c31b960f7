"""No printed form holds a secret: every value class that carries one keeps it out of its repr."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

from enlist import calls
from wire_protocol import admin

SECRET = {
    "authorization", "body", "ca_pem", "command", "content", "enrollment_token", "headers",
    "join_token", "key", "key_pem", "password", "private_key", "secret", "secret_hex", "token",
}  # fmt: skip
"""Names of fields that hold a secret, or whatever a caller sends."""
PRINTS_BY_ITSELF = {"Secret", "SecretStr", "EnrollmentToken"}
NO_SECRET = {
    ("wire_protocol.statements", "SignedStatement", "content"),  # a public statement
    ("enlist.exchange", "Reply", "headers"),  # what the Platform answers
    ("runtime_kit.http1.messages", "Response", "headers"),
    ("runtime_kit.http1.messages", "Answer", "headers"),
    ("wire_protocol.findings", "Finding", "command"),  # what to type, for a person
    ("wire_protocol.admin", "CheckupFinding", "command"),
    ("runtime_kit.file_rules", "Fault", "command"),
    ("worker_agent.identity.replacing", "Candidate", "key"),  # a file's path
    ("worker_agent.settings.join_file", "JoinFile", "ca_pem"),  # certificates, which are public
    ("worker_agent.enrollment.wish", "Wish", "ca_pem"),
    ("worker_agent.enrollment.wish", "Given", "ca_pem"),
    ("worker_agent.enrollment.plan", "Join", "ca_pem"),
}


def classes() -> Iterator[type[Any]]:
    """Every class of the client's, the worker's and the shared packages."""
    for root in ("enlist", "wire_protocol", "runtime_kit", "worker_agent"):
        package = importlib.import_module(root)
        for found in pkgutil.walk_packages(package.__path__, f"{root}."):
            if found.name.endswith("__main__"):
                continue
            module = importlib.import_module(found.name)
            for _, one in inspect.getmembers(module, inspect.isclass):
                if one.__module__ == found.name:
                    yield one


def printed(one: type[Any]) -> Iterator[tuple[str, str]]:
    """The fields that its printed form shows, each with its type as written."""
    if dataclasses.is_dataclass(one):
        if hasattr(one.__repr__, "__wrapped__"):  # the one that dataclasses make
            yield from (
                (field.name, str(field.type)) for field in dataclasses.fields(one) if field.repr
            )
    elif issubclass(one, pydantic.BaseModel):
        fields = one.model_fields.items()
        yield from ((name, str(info.annotation)) for name, info in fields if info.repr)


@pytest.mark.timeout(30)  # imports every module
def test_every_field_that_holds_a_secret_stays_out_of_the_printed_form() -> None:
    shown = {
        (one.__module__, one.__name__, name)
        for one in classes()
        for name, kind in printed(one)
        if name in SECRET and not any(wrapped in kind for wrapped in PRINTS_BY_ITSELF)
    }
    assert shown == NO_SECRET


@pytest.mark.parametrize("model", [admin.IssueAnswer, admin.CreateApiTokenAnswer])
def test_the_answers_that_show_a_secret_once_do_not_print_it(
    model: type[pydantic.BaseModel],
) -> None:
    secret: dict[str, Any] = dict.fromkeys(("token", "join_token", "command"), "hunter2")
    answer = model.model_construct(**secret)
    assert "hunter2" not in repr(answer)
    assert answer.model_dump()["token"] == "hunter2"


def test_a_call_does_not_print_what_it_sends() -> None:
    call: calls.Call[None] = calls.Call(
        method="POST", path="/x", answer="", body={"token": "hunter2"}
    )
    assert "hunter2" not in repr(call)
