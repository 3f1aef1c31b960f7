"""One machine of one account: ordered, active, deleted, and nothing left of it at the provider.

Everything is done by `enlist` as a person does it, against a Platform of its own in a folder of its
own. Whatever happens the machine is deleted before this ends; where even that fails, the folder
stays, with the Platform that can still delete it.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from scripts.live import accounts

NODE: Final = "live-check"
CONNECTION: Final = "live"
_ENLIST: Final = (sys.executable, "-m", "operator_cli")
_START_SECONDS: Final = 300.0  # a bundle may have to be built first
_STOP_SECONDS: Final = 30.0
_COMMAND_SECONDS: Final = 3600.0
_BUILD_SECONDS: Final = 900.0
_LOOK_SECONDS: Final = 5.0

Say = Callable[[str], None]


class Failed(Exception):
    """It did not work; the message says what, and what is left."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A Platform of its own, and the account beside it."""

    data_dir: pathlib.Path
    account: accounts.Account
    say: Say
    environ: Mapping[str, str]

    def run(self, *arguments: str) -> Any:
        """One command; its document. Raises `Failed`."""
        self.say(f"$ enlist {' '.join(arguments)}")
        done = subprocess.run(
            [*_ENLIST, "--data-dir", str(self.data_dir), "--yes", "-o", "json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
            env=dict(self.environ),
        )
        if done.returncode:
            raise Failed(f"enlist {' '.join(arguments)} ended with {done.returncode}.")
        return json.loads(done.stdout)


def try_machine(account: accounts.Account, *, say: Say, environ: Mapping[str, str]) -> str:
    """Gives a sentence about what was proved; raises `Failed`."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="enlist-live-"))
    clean = {name: value for name, value in environ.items() if not name.startswith("ENLIST_")}
    with _platform(folder, account=account, environ=clean) as data_dir:
        trial = Trial(data_dir=data_dir, account=account, say=say, environ=clean)
        try:
            told = _there_and_back(trial)
        except BaseException:
            _clean_up(trial)
            raise
    shutil.rmtree(folder)
    return told


def _there_and_back(trial: Trial) -> str:
    _wait_for_a_bundle(trial)
    name = _connect(trial)
    checked = trial.run("cloud", "connections", "check", name)["check"]
    if not checked["ok"]:
        raise Failed(f"The credential lacks rights: {', '.join(checked['missing'])}.")
    order = ("cloud", "machines", "create", NODE, "--provider", trial.account.provider)
    ordered = trial.run(*order, "--connection", name, "--wait")
    if ordered["operation"]["state"] != "active":
        raise Failed(f"The order came to {ordered['operation']['state']} alone.")
    nodes = trial.run("nodes", "list")["nodes"]
    if [node["state"] for node in nodes if node["node_id"] == NODE] != ["ready"]:
        raise Failed("The machine is active and its node is not ready.")
    trial.run("cloud", "machines", "delete", NODE, "--wait")
    _require_nothing_left(trial, name=name)
    machine = ordered["machine"]
    return (
        f"{machine['size']} in {machine['region']} ({machine['provider_ref']}) became a ready node "
        "and is gone; the provider holds nothing of this installation."
    )


def _wait_for_a_bundle(trial: Trial) -> None:
    """A Platform without one builds it from its own installation when it starts."""
    until = time.monotonic() + _BUILD_SECONDS
    while not trial.run("platform", "bundles", "list")["bundles"]:
        if time.monotonic() >= until:
            raise Failed("The Platform has built nothing that a machine could install.")
        time.sleep(_LOOK_SECONDS)


def _connect(trial: Trial) -> str:
    account = trial.account
    if account.kind == "none" and account.provider == accounts.LOCAL:
        return accounts.LOCAL
    line = ["cloud", "connections", "save", CONNECTION, "--provider", account.provider]
    line += ["--credential", account.kind]
    if account.secret_file is not None:
        line += ["--secret-file", str(account.secret_file)]
    for option, pairs in (("--field", account.fields), ("--setting", account.settings)):
        for key, value in pairs.items():
            line += [option, f"{key}={value}"]
    trial.run(*line)
    return CONNECTION


def _require_nothing_left(trial: Trial, *, name: str) -> None:
    """By our records, by a list of all that carries our id, and by what a connection holds."""
    machines = trial.run("cloud", "machines", "list")["machines"]
    if machines:
        raise Failed(f"Machines are left: {[one['node_id'] for one in machines]}.")
    found = trial.run("cloud", "connections", "inventory", name)
    if not found["complete"] or found["held"]:
        left = [f"{one['kind']} {one['provider_ref']}" for one in found["held"]]
        raise Failed(f"The provider still shows: {', '.join(left) or 'not everything it has'}.")
    if name != accounts.LOCAL:
        trial.run("cloud", "connections", "forget", name)


def _clean_up(trial: Trial) -> None:
    """Deletes the machine after a failure; says where the Platform stays if that fails too."""
    try:
        if not trial.run("cloud", "machines", "list")["machines"]:
            return
        trial.run("cloud", "machines", "delete", NODE, "--wait")
    except Failed as fault:
        raise Failed(
            f"{fault} A MACHINE MAY BE LEFT and costs money. Its Platform's folder stays: "
            f"enlist serve --data-dir {trial.data_dir} --enrollment-port --bundle-port, then: "
            f"enlist --data-dir {trial.data_dir} cloud machines delete {NODE} --wait"
        ) from fault


@contextlib.contextmanager
def _platform(
    folder: pathlib.Path, *, account: accounts.Account, environ: Mapping[str, str]
) -> Iterator[pathlib.Path]:
    """`enlist serve` in that folder, on the usual ports, for the length of the `with`."""
    data_dir = folder / "platform"
    settings = {"ENLIST_CLOUD__CREDENTIAL_POLICY": "compat"}
    if account.policy is not None:
        policy = folder / "policy.json"
        policy.write_text(
            json.dumps({"version": 1, "providers": {account.provider: account.policy}})
        )
        policy.chmod(0o600)
        settings["ENLIST_CLOUD_POLICY"] = str(policy)
    if "endpoint" in account.settings:
        settings["ENLIST_CLOUD__ALLOW_ENDPOINTS"] = "true"
    where = () if account.address is None else ("--enrollment-address", account.address)
    ports = ("--enrollment-port", "0", "--gateway-port", "0", "--bundle-port", "0")
    process = subprocess.Popen(
        [
            *(*_ENLIST, "serve", "-o", "json", "--data-dir", str(data_dir)),
            *("--listen", "127.0.0.1:0", *ports, *where),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**environ, **settings},
        start_new_session=True,
    )
    try:
        _wait_until_it_listens(process)
        yield data_dir
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def _wait_until_it_listens(process: "subprocess.Popen[bytes]") -> None:
    """Its first line says so."""
    if process.stdout is None:
        raise TypeError("The Platform's output is a pipe.")
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(_START_SECONDS) or not process.stdout.readline():
            raise Failed("The Platform did not start; its log is above.")
