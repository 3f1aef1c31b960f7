"""Many agents of one Platform in one process, for the session benches: they open, beat and answer.

A process of its own, so that neither its memory nor its CPU is counted. It runs the session's own
words (`wire_protocol.session`) over real links, without an Agent's files and timers. One JSON
document a line on standard input (`open`, `rest`, `quiet`, `arrived`, `stay`, `back`), one a line
back.

Known limit: it shares the machine with the Platform, so openings a second are a floor.
"""

import argparse
import asyncio
import dataclasses
import datetime
import json
import pathlib
import random
import ssl
import sys
import time
from typing import Any

import uvloop

from runtime_kit import descriptors, failures, tls
from runtime_kit.mux import link as links
from runtime_kit.mux import transports
from wire_protocol import health, heartbeats, ids, orders, product, session
from worker_agent.session import pace

IN_FLIGHT = 12  # an address has 16 places for handshakes
EVERY_SECONDS = 30.0
ASK_SECONDS = 60.0
PINGS = 200


@dataclasses.dataclass(slots=True, kw_only=True)
class Crowd:
    """The agents of this process."""

    host: str
    port: int
    address: str
    leaf_der: bytes
    trust_key: str
    nodes: list[dict[str, str]]
    opened: list[links.Link] = dataclasses.field(default_factory=list)
    arrived: dict[str, float] = dataclasses.field(default_factory=dict)
    generations: dict[str, int] = dataclasses.field(default_factory=dict)
    back: list[float] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)
    missed: int = 0
    holders: list[dict[str, str]] = dataclasses.field(default_factory=list)
    staying: list[asyncio.Task[None]] = dataclasses.field(default_factory=list)
    ended: int = 0
    sent: int = 0
    slowest: float = 0.0
    quiet: bool = False

    async def open(self, count: int) -> dict[str, Any]:
        """Opens sessions for the next nodes."""
        waiting = self.nodes[len(self.opened) : len(self.opened) + count]
        began, before = time.perf_counter(), self.sent

        async def work() -> None:
            while waiting:
                node = waiting.pop()
                self.opened.append(await self._open(node))
                self.holders.append(node)

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(work())
        return {
            "open": len(self.opened),
            "sent": self.sent - before,
            "seconds": time.perf_counter() - began,
        }

    async def beat(self) -> None:
        """Lets every open session send its heartbeat once in 30 s, evenly spread. For ever."""
        loop = asyncio.get_running_loop()
        body = heartbeat(self.trust_key)
        going: set[asyncio.Task[None]] = set()
        turn = 0
        due = loop.time()
        while True:
            if self.quiet or not self.opened:
                due = loop.time()
            else:
                turn = (turn + 1) % len(self.opened)
                task = asyncio.create_task(self._beat(self.opened[turn], body))
                going.add(task)
                task.add_done_callback(going.discard)
            due += EVERY_SECONDS / max(len(self.opened), 300)
            await asyncio.sleep(due - loop.time())

    async def rest(self, seconds: float) -> dict[str, Any]:
        """Only heartbeats for so many seconds; says what became of them."""
        before, self.slowest = self.sent, 0.0
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        return {
            "sent": self.sent - before,
            "seconds": time.perf_counter() - began,
            "slowest": self.slowest,
            "ended": self.ended,
        }

    async def _beat(self, link: links.Link, body: bytes) -> None:
        began = time.perf_counter()
        try:
            await link.ask(session.Ask.HEARTBEAT, body, timeout_s=ASK_SECONDS)
        except failures.NetworkFailure as error:
            if not self.staying:
                print(f"A heartbeat failed: {error}", file=sys.stderr)
            return
        self.sent += 1
        self.slowest = max(self.slowest, time.perf_counter() - began)

    async def _open(self, node: dict[str, str]) -> links.Link:
        context = tls.trusting_context(leaf_der=self.leaf_der)
        context.load_cert_chain(node["pem"])
        reader, writer = await asyncio.open_connection(
            self.host,
            self.port,
            ssl=context,
            server_hostname=f"{node['pin'].removeprefix('sha256:')[:32]}.node.enlist.internal",
            local_addr=(self.address, 0),
            limit=4_096,
        )
        node_id = ids.parse_node_id(node["node_id"])

        async def answer(_link: links.Link, method: str, body: bytes) -> bytes:
            if method == session.Ask.ORDER:
                return self._took(body)
            return health.AgentHealth(
                node_id=node_id,
                agent_id=ids.agent_id_of(node_id),
                version=product.VERSION,
                now=datetime.datetime.now(datetime.UTC),
                trust_keys=(ids.parse_key_id(self.trust_key),),
            ).to_bytes()

        link = transports.over_streams(reader, writer, peer="the gateway", answer=answer)
        hello = session.Hello(
            node_id=node_id,
            generation=self.generations.get(node_id, 1),
            epoch=0,
            version=product.VERSION,
            instance=node["node_id"],
            purpose=session.Purpose.SESSION,
            statement=(0, 0),
        )
        said = await link.ask(session.Ask.HELLO, hello.to_bytes(), timeout_s=ASK_SECONDS)
        generation = session.parse_welcome(said).generation
        self.generations[node_id] = generation  # stored before going on, as an Agent does
        confirm = session.Confirm(generation=generation)
        await link.ask(session.Ask.CONFIRM, confirm.to_bytes(), timeout_s=ASK_SECONDS)
        link.on_end = self._ended
        return link

    async def stay(self) -> dict[str, Any]:
        """From now on each session that ends is opened again, in an Agent's own pace."""
        self.staying = [
            asyncio.create_task(self._stay(place, node), name=node["node_id"])
            for place, node in enumerate(self.holders)
        ]
        return {"staying": len(self.staying)}

    async def tell_back(self) -> dict[str, Any]:
        """When sessions were open again, by the clock that all processes share; and what failed."""
        return {"back": self.back, "refused": self.refused, "missed": self.missed}

    async def _stay(self, place: int, node: dict[str, str]) -> None:
        rhythm = pace.Pace(chance=random.SystemRandom())
        while True:
            ended = await self.opened[place].wait_closed()
            asked = ended.retry_after_s
            while True:
                await asyncio.sleep(rhythm.after_passing(time.monotonic(), asked=asked))
                try:
                    self.opened[place] = await self._open(node)
                except links.Refused as refusal:
                    self.refused.append(refusal.code)
                except (failures.NetworkFailure, OSError):
                    self.missed += 1
                else:
                    self.back.append(time.perf_counter())
                    break

    def _took(self, body: bytes) -> bytes:
        """An order has arrived: when, by the clock that all processes here share, and done."""
        now = time.perf_counter()
        order = json.loads(orders.parse_signed(body).content)
        self.arrived.setdefault(f"{order['node_id']}:{order['sequence']}", now)
        return orders.Result(
            epoch=order["epoch"], sequence=order["sequence"], is_done=True
        ).to_bytes()

    async def tell_arrived(self) -> dict[str, Any]:
        """When each order arrived, and how long a question and its answer take on a session."""
        trips = []
        for link in self.opened[:PINGS]:
            began = time.perf_counter()
            await link.ping(timeout_s=ASK_SECONDS)
            trips.append(time.perf_counter() - began)
        return {"arrived": self.arrived, "trips": trips}

    def _ended(self, _link: links.Link, ended: links.Ended) -> None:
        self.ended += 1
        if self.staying:
            return
        print(f"A session ended: {ended}", file=sys.stderr)


def heartbeat(trust_key: str) -> bytes:
    """As an Agent on a small server sends it."""
    return heartbeats.Heartbeat(
        version=product.VERSION,
        now=datetime.datetime.now(datetime.UTC),
        uptime_seconds=86_400,
        load_milli=(120, 340, 560),
        capacity=heartbeats.Capacity(
            cpu_count=4, memory_bytes=8_000_000_000, disk_bytes=80_000_000_000
        ),
        memory_available_bytes=4_000_000_000,
        disk_free_bytes=40_000_000_000,
        trust_keys=(ids.parse_key_id(trust_key),),
        statement=(0, 1),
    ).to_bytes()


async def _run(crowd: Crowd) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    beating = asyncio.create_task(crowd.beat(), name="heartbeats")
    while line := await lines.readline():
        order = json.loads(line)
        if "open" in order:
            said = await crowd.open(order["open"])
        elif "stay" in order:
            said = await crowd.stay()
        elif "back" in order:
            said = await crowd.tell_back()
        elif "arrived" in order:
            said = await crowd.tell_arrived()
        else:
            crowd.quiet = "quiet" in order
            said = await crowd.rest(order.get("quiet") or order["rest"])
            crowd.quiet = False
        print(json.dumps(said), flush=True)
    beating.cancel()


def main() -> None:
    """Reads who is in the crowd from the file named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    content = json.loads(parser.parse_args().file.read_text())
    leaf = ssl.PEM_cert_to_DER_cert(content.pop("leaf_pem"))
    descriptors.raise_limit(len(content["nodes"]) + 100)
    uvloop.run(_run(Crowd(leaf_der=leaf, **content)))


if __name__ == "__main__":
    main()
