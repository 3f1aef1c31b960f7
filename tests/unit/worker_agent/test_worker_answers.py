"""Which trust set an answer to an enroll request may bring: rule 6, joined before or not."""

import datetime
import json
import pathlib

import pytest

from tests.support import held_sets
from wire_protocol import enrollment_token, ids, trust
from worker_agent.enrollment import answers, plan
from worker_agent.settings import agent_file, failures, join_file, paths

NOW = held_sets.START + 30 * held_sets.DAY
WHERE = paths.Paths(folder=pathlib.Path("/var/lib/enlist/worker"))
KEY, OTHER = held_sets.Key(), held_sets.Key()


def planned(*, held: trust.Held | None, named: tuple[held_sets.Key, ...]) -> plan.Join:
    return plan.Join(
        url="https://p.example:8444",
        node_id=ids.NodeId("web-1"),
        token=enrollment_token.new(),
        mode=join_file.Mode.PINS,
        pins=(held_sets.PIN,),
        ca_pem=None,
        trust_key_ids=tuple(key.public.key_id for key in named),
        expires_at=None,
        connectivity=agent_file.Connectivity.DIAL_OUT,
        addresses=(),
        port=8443,
        labels={},
        held=held,
    )


def judged(offered: trust.Held, *, on: plan.Join, now: datetime.datetime = NOW) -> trust.Held:
    body = {
        "node_id": "web-1",
        "agent_id": "agent-web-1",
        "generation": 1,
        "gateway_pins": [],
        **offered.signed.to_wire(),
    }
    return answers.judge(json.dumps(body).encode(), planned=on, where=WHERE, now=now).held


REFUSED: dict[str, tuple[trust.Held, tuple[held_sets.Key, ...]]] = {
    "an older set, though the join token names its key": (
        held_sets.held(KEY, serial=3),
        (KEY,),
    ),
    "a set that no held key signed, though the join token names its key": (
        held_sets.held(OTHER, serial=10),
        (OTHER,),
    ),
    "a set that no held key signed, and no key is named": (held_sets.held(OTHER, serial=10), ()),
    "another set under the number held": (held_sets.held(KEY, OTHER, serial=9), (KEY, OTHER)),
    "another Platform's": (held_sets.held(KEY, serial=10, platform_id="plt_2"), (KEY,)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_machine_that_holds_a_set_does_not_take(case: str) -> None:
    offered, named = REFUSED[case]
    held = held_sets.held(KEY, serial=9)
    with pytest.raises(failures.NeedsOperator, match="or that was rebuilt") as raised:
        judged(offered, on=planned(held=held, named=named))
    assert raised.value.exit_code == 6
    assert "enlist worker refresh-trust" in str(raised.value)
    assert str(raised.value).endswith(f"mv {WHERE.folder} {WHERE.folder}.old")


def test_a_machine_that_holds_a_set_takes_what_its_keys_lead_to_whatever_the_token_names() -> None:
    held, offered = held_sets.held(KEY, serial=9), held_sets.held(KEY, OTHER, serial=10)
    assert judged(offered, on=planned(held=held, named=(OTHER,))).signed == offered.signed
    assert judged(held, on=planned(held=held, named=())) is held


def test_the_first_set_rests_on_the_key_ids_of_the_join_token() -> None:
    offered = held_sets.held(KEY)
    assert judged(offered, on=planned(held=None, named=(KEY,))).signed == offered.signed
    with pytest.raises(failures.NeedsOperator, match="enroll-token web-1 --replace"):
        judged(offered, on=planned(held=None, named=(OTHER,)))
