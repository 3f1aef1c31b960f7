"""EC2 for the contract suite: moto behind a proxy of ours that adds what moto leaves out.

Added: client tokens, the filter `client-token`, lags, pages, launches that fail after they were
accepted, the 16 KB limit of first-boot data, quotas, ending twice, groups in use. Everything else
is moto's own answer. The proxy keeps the ledger.

Known limits: signatures and rights are not judged here (ministack does that, in a suite of its
own); moto takes no tags for the snapshots of an image, which are left out on the way to it.
"""

import base64
import datetime
import http.client
import re
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Final

from provisioning.aws import calls, values
from runtime_kit import clock as clock_kit
from tests.support.clouds import client_tokens, moto_process, server
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
_NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15"
_MOST_USER_DATA: Final = 16_384
_STATUSES: Final = {
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "AuthFailure": 401,
    "UnauthorizedOperation": 403,
}
_HELD: Final = {  # what a call makes beside a machine: where its id stands, and its kind
    "ec2:CreateVolume": ("volumeId", "volume"),
    "ec2:AllocateAddress": ("allocationId", "address"),
    "ec2:CreateSnapshot": ("snapshotId", "snapshot"),
    "ec2:CreateImage": ("imageId", "snapshot"),
    "ec2:CreateSecurityGroup": ("groupId", "security-group"),
    "ec2:ImportKeyPair": ("keyName", "ssh-key"),
}
_ENDED: Final = {
    "ec2:DeleteVolume": "VolumeId",
    "ec2:ReleaseAddress": "AllocationId",
    "ec2:DeleteSnapshot": "SnapshotId",
    "ec2:DeregisterImage": "ImageId",
    "ec2:DeleteSecurityGroup": "GroupId",
    "ec2:DeleteKeyPair": "KeyName",
}
_QUOTA: Final = {"Quota": {"QuotaCode": "L-1216C47A", "Value": 64.0}}

ET.register_namespace("", _NAMESPACE)


class Aws:
    """The proxy; `refuse` names calls that the account's policy does not allow."""

    def __init__(self, *, clock: clock_kit.Clock) -> None:
        self.clock = clock
        self.script = script_kit.Script()
        self.ledger = ledger_kit.Ledger()
        self.tokens = client_tokens.Tokens()
        self.refuse: set[str] = set()
        self.elsewhere: dict[str, str] = {}  # service to host:port, in place of moto
        self._failing: dict[str, str] = {}

    def settle(self) -> None:
        """Nothing is under way here: what moto accepts it has done."""

    # --- what the server asks -------------------------------------------------------------------

    def name_of(self, asked: server.Asked) -> str:
        """`SERVICE:Operation`, with a mark where it is a rehearsal."""
        target = asked.headers.get("x-amz-target", "")
        if target:
            return f"service-quotas:{target.partition('.')[2]}"
        form, service = _form(asked), _service(asked)
        if not form.get("Action"):
            return ""
        rehearsed = calls.DRY_RUN if form.get("DryRun") == "true" else ""
        return f"{service}:{form['Action']}{rehearsed}"

    def answer(
        self, asked: server.Asked, *, name: str, async_fail: script_kit.Armed | None
    ) -> server.Reply:
        """Does the work, by moto."""
        plain = name.removesuffix(calls.DRY_RUN)
        own = self._own_answer(asked, plain)
        if own is not None:
            return own
        if plain == "ec2:RunInstances":
            return self._run(asked, rehearsed=name != plain, async_fail=async_fail)
        reply = self._forward(asked)
        if reply.status == 200 and name == plain:
            self._book(name, asked, reply)
        return reply

    def _own_answer(self, asked: server.Asked, plain: str) -> server.Reply | None:
        if plain in self.refuse:
            return self.error(status=None, code="UnauthorizedOperation", message="not allowed")
        if plain == "service-quotas:GetServiceQuota":
            return server.Reply(document=_QUOTA)
        if plain == "iam:SimulatePrincipalPolicy" and "iam" not in self.elsewhere:
            return self.error(status=403, code="AccessDenied", message="not allowed")
        if plain == "ec2:DescribeInstances":
            return self._described(asked)
        if plain == "ec2:DeleteSecurityGroup" and self._is_used(asked):
            return self.error(status=None, code="DependencyViolation", message="in use")
        return self._ended(asked) if plain == "ec2:TerminateInstances" else None

    def _is_used(self, asked: server.Asked) -> bool:
        """Whether an interface has this group; moto deletes it all the same."""
        question = {
            "Action": "DescribeNetworkInterfaces",
            "Version": "2016-11-15",
            "Filter.1.Name": "group-id",
            "Filter.1.Value.1": _form(asked).get("GroupId", ""),
        }
        return bool(_text(_parsed(self._forward(asked, form=question)), "networkInterfaceId"))

    def error(self, *, status: int | None, code: str, message: str) -> server.Reply:
        """EC2's form of an error."""
        root = ET.Element("Response")
        one = ET.SubElement(ET.SubElement(root, "Errors"), "Error")
        ET.SubElement(one, "Code").text = code
        ET.SubElement(one, "Message").text = message
        ET.SubElement(root, "RequestID").text = "00000000-0000-0000-0000-000000000000"
        return _xml(root, status=status or _STATUSES.get(code, 400))

    def unauthorized(self) -> server.Reply:
        """How a credential that is none any more is refused."""
        return self.error(status=None, code="AuthFailure", message="AWS was not able to validate")

    def rate_limited(self) -> server.Reply:
        """How a call too many is refused: with 503."""
        return self.error(status=None, code="RequestLimitExceeded", message="Request limit")

    # --- machines -------------------------------------------------------------------------------

    def _ended(self, asked: server.Asked) -> server.Reply | None:
        """The answer for one that is terminated already: at EC2 ending is idempotent."""
        refs = [value for name, value in _form(asked).items() if name.startswith("InstanceId.")]
        held = [self.ledger.machines.get(ref) for ref in refs]
        if not refs or any(one is None or one.died is None for one in held):
            return None
        root = ET.Element(_tag("TerminateInstancesResponse"))
        some = ET.SubElement(root, _tag("instancesSet"))
        for ref in refs:
            item = ET.SubElement(some, _tag("item"))
            ET.SubElement(item, _tag("instanceId")).text = ref
            for place in ("currentState", "previousState"):
                state = ET.SubElement(item, _tag(place))
                ET.SubElement(state, _tag("code")).text = "48"
                ET.SubElement(state, _tag("name")).text = "terminated"
        return _xml(root)

    def _run(
        self,
        asked: server.Asked,
        *,
        rehearsed: bool,
        async_fail: script_kit.Armed | None,
    ) -> server.Reply:
        form = _form(asked)
        user_data = base64.b64decode(form.get("UserData", ""), validate=True)
        if len(user_data) > _MOST_USER_DATA:
            return self.error(
                status=None, code="InvalidParameterValue", message="User data is limited to 16384"
            )
        token = form.get("ClientToken", "")
        scope = self._scope(asked, form)
        held = self.tokens.find(token, scope=scope) if token and not rehearsed else None
        if held is not None:
            return self._replayed(form, held)
        reply = self._forward(asked)
        if reply.status != 200 or rehearsed:
            return reply
        root = _parsed(reply)
        ref = _text(root, "instanceId")
        self.tokens.keep(token, scope=scope, form=form, ref=ref, reply=reply)
        tags = _tags(form, "instance")
        self.ledger.machines[ref] = ledger_kit.Machine(
            ref=ref,
            name=tags.get("Name", ""),
            tags=tags,
            region=_region(asked),
            size=form["InstanceType"],
            born=self._now(),
            user_data=user_data,
            hourly_micros=20_000,
        )
        if async_fail is not None:
            self._fail(asked, ref, code=async_fail.code)
        return reply

    def _replayed(self, form: Mapping[str, str], held: client_tokens.Remembered) -> server.Reply:
        if held.parameters != client_tokens.compared(form):
            return self.error(
                status=None, code="IdempotentParameterMismatch", message="Arguments differ"
            )
        if self.ledger.machines[held.ref].died is not None:
            return self.error(
                status=None, code="IdempotentInstanceTerminated", message="It was terminated"
            )
        return held.reply

    def _fail(self, asked: server.Asked, ref: str, *, code: str) -> None:
        form = {"Action": "TerminateInstances", "Version": "2016-11-15", "InstanceId.1": ref}
        ended = self._forward(asked, form=form)
        assert ended.status == 200, ended.raw
        self.ledger.machines[ref].died = self._now()
        self._failing[ref] = code

    def _described(self, asked: server.Asked) -> server.Reply:
        form = dict(_form(asked))
        refs = {value for name, value in form.items() if name.startswith("InstanceId.")}
        offset = int(form.pop("NextToken", 0) or 0)
        late = self.script.describe_lag if refs else self.script.list_lag
        hidden = {ref for ref, one in self.ledger.machines.items() if self._age(one) < late}
        if refs & hidden:
            return self.error(
                status=None, code="InvalidInstanceID.NotFound", message="does not exist"
            )
        self._resolve_token_filter(form)
        form.pop("MaxResults", None)
        reply = self._forward(asked, form=form)
        if reply.status != 200:
            return reply
        root = _parsed(reply)
        some = root.find(_tag("reservationSet"))
        if some is None:
            return reply
        for reservation in list(some):
            instances = reservation.find(_tag("instancesSet"))
            for one in list(instances if instances is not None else []):
                ref = _text(one, "instanceId")
                if ref in hidden and instances is not None:
                    instances.remove(one)
                self._tell_failure(one, ref)
                self._lend_addresses(one)
            if instances is None or not len(instances):
                some.remove(reservation)
        self._cut_page(root, some, offset=offset)
        return _xml(root)

    def _lend_addresses(self, one: ET.Element) -> None:
        """Says whose an address is as EC2 does: Amazon's, unless one of ours was reserved."""
        reserved = any(thing.kind == "address" for thing in self.ledger.living_things())
        for owner in [] if reserved else one.iter(_tag("ipOwnerId")):
            owner.text = "amazon"

    def _tell_failure(self, one: ET.Element, ref: str) -> None:
        if ref in self._failing:
            told = one.find(_tag("stateReason"))
            if told is None:
                told = ET.SubElement(one, _tag("stateReason"))
            for child in list(told):
                told.remove(child)
            ET.SubElement(told, _tag("code")).text = f"Server.{self._failing[ref]}"
            ET.SubElement(told, _tag("message")).text = f"Server.{self._failing[ref]}: sold out"

    def _cut_page(self, root: ET.Element, some: ET.Element, *, offset: int) -> None:
        size = self.script.page_size
        if size is None:
            return
        everything = list(some)
        for one in everything[:offset] + everything[offset + size :]:
            some.remove(one)
        if offset + size < len(everything):
            ET.SubElement(root, _tag("nextToken")).text = str(offset + size)

    def _resolve_token_filter(self, form: dict[str, str]) -> None:
        for name, value in list(form.items()):
            if value == "client-token" and re.fullmatch(r"Filter\.\d+\.Name", name):
                prefix = name.removesuffix("Name")
                wanted = [v for k, v in form.items() if k.startswith(f"{prefix}Value.")]
                for key in [k for k in form if k.startswith(prefix)]:
                    del form[key]
                refs = [ref for token in wanted for ref in self.tokens.refs(token)]
                form[name] = "instance-id"
                for number, ref in enumerate(refs or ["i-00000000000000000"], start=1):
                    form[f"{prefix}Value.{number}"] = ref

    # --- what else is written down --------------------------------------------------------------

    def _book(self, name: str, asked: server.Asked, reply: server.Reply) -> None:
        form = _form(asked)
        if name == "ec2:TerminateInstances":
            for key, ref in form.items():
                if key.startswith("InstanceId.") and ref in self.ledger.machines:
                    self.ledger.machines[ref].died = self._now()
        elif name in _HELD:
            place, kind = _HELD[name]
            ref = _text(_parsed(reply), place)
            tags = next((t for t in (_tags(form, k) for k in _KINDS) if t), {})
            if tags.get(values.MARK) == values.SHARED:
                return  # it stays, and is nobody's
            self.ledger.things[ref] = ledger_kit.Thing(
                ref=ref,
                kind=kind,
                name=form.get("GroupName", tags.get("Name", "")),
                tags=tags,
                region=_region(asked),
                born=self._now(),
            )
        elif name in _ENDED and (gone := self.ledger.things.get(form.get(_ENDED[name], ""))):
            gone.died = self._now()

    def _scope(self, asked: server.Asked, form: Mapping[str, str]) -> str:
        subnet = form.get("NetworkInterface.1.SubnetId") or form.get("SubnetId")
        if not subnet:
            return form.get("Placement.AvailabilityZone") or _region(asked)
        question = {
            "Action": "DescribeSubnets",
            "Version": "2016-11-15",
            "SubnetId.1": subnet,
        }
        reply = self._forward(asked, form=question)
        return _text(_parsed(reply), "availabilityZone") if reply.status == 200 else subnet

    def _forward(
        self, asked: server.Asked, *, form: Mapping[str, str] | None = None
    ) -> server.Reply:
        body = asked.body
        if form is None and b"Action=CreateImage" in body:
            form = _without_snapshot_tags(_form(asked))
        if form is not None:
            body = urllib.parse.urlencode(form).encode()
        service = _service(asked)
        where = self.elsewhere.get(service) or moto_process.address()
        dropped = {"content-length", "connection", "expect"}
        headers = {k: v for k, v in asked.headers.items() if k not in dropped}
        connection = http.client.HTTPConnection(where, timeout=60)
        try:
            connection.request(asked.method, asked.path, body=body, headers=headers)
            answer = connection.getresponse()
            raw, kind = answer.read(), answer.getheader("content-type", "text/xml")
            return server.Reply(status=answer.status, raw=raw, headers={"content-type": str(kind)})
        finally:
            connection.close()

    def _now(self) -> datetime.datetime:
        return self.script.now(self.clock)

    def _age(self, one: ledger_kit.Machine) -> float:
        return (self._now() - one.born).total_seconds()


_KINDS: Final = (
    "instance",
    "volume",
    "elastic-ip",
    "snapshot",
    "image",
    "security-group",
    "key-pair",
)


def _form(asked: server.Asked) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(asked.body.decode(), keep_blank_values=True))


def _service(asked: server.Asked) -> str:
    found = _SCOPE.search(asked.headers.get("authorization", ""))
    return found[2] if found else "sts"  # only STS is asked without a signature


def _region(asked: server.Asked) -> str:
    found = _SCOPE.search(asked.headers.get("authorization", ""))
    return found[1] if found else ""


def _tags(form: Mapping[str, str], kind: str) -> dict[str, str]:
    for name, value in form.items():
        if value == kind and re.fullmatch(r"TagSpecification\.\d+\.ResourceType", name):
            prefix = name.removesuffix("ResourceType")
            numbers = {
                key.removeprefix(f"{prefix}Tag.").partition(".")[0]
                for key in form
                if key.startswith(f"{prefix}Tag.")
            }
            return {form[f"{prefix}Tag.{n}.Key"]: form[f"{prefix}Tag.{n}.Value"] for n in numbers}
    return {}


def _without_snapshot_tags(form: dict[str, str]) -> dict[str, str]:
    for name, value in list(form.items()):
        if value == "snapshot" and name.endswith(".ResourceType"):
            prefix = name.removesuffix("ResourceType")
            return {key: value for key, value in form.items() if not key.startswith(prefix)}
    return form


def _parsed(reply: server.Reply) -> ET.Element:
    return ET.fromstring(reply.body())  # noqa: S314 - our own process's answer


def _tag(name: str) -> str:
    return f"{{{_NAMESPACE}}}{name}"


def _text(root: ET.Element, name: str) -> str:
    found = root.find(f".//{_tag(name)}")
    return (found.text or "") if found is not None else ""


def _xml(root: ET.Element, *, status: int = 200) -> server.Reply:
    raw = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return server.Reply(status=status, raw=raw, headers={"content-type": "text/xml;charset=UTF-8"})
