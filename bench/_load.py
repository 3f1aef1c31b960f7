"""The client of the enrollment benches: many new TLS 1.3 connections, a fixed number in flight.

It runs as a process of its own, so that its CPU is not counted, and uses the same code against
openssl and against the Platform. One JSON document in, one out.

Known limit: on a machine with two cores the client takes about one of them, so rates are a floor;
the CPU per connection is what the ratios are made of.
"""

import asyncio
import dataclasses
import json
import ssl
import statistics
import sys
import time


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to send to whom. An empty body means: handshake and close."""

    host: str
    port: int
    trusted_pem: str
    in_flight: int
    path: str
    bodies: list[str]


def main() -> None:
    """Reads a job from standard input and prints what came of it."""
    job = Job(**json.load(sys.stdin))
    print(json.dumps(asyncio.run(_run(job))))


async def _run(job: Job) -> dict[str, object]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the one trusted certificate below is the check
    context.load_verify_locations(cadata=job.trusted_pem)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    waiting = list(reversed(job.bodies))
    seconds: list[float] = []
    statuses: dict[str, int] = {}

    async def worker() -> None:
        while waiting:
            body = waiting.pop()
            began = time.perf_counter()
            status = await _once(job, context, body)
            seconds.append(time.perf_counter() - began)
            statuses[status] = statuses.get(status, 0) + 1

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(job.in_flight):
            group.create_task(worker())
    took = time.perf_counter() - began
    cuts = statistics.quantiles(seconds, n=100)
    return {"seconds": took, "p50": cuts[49], "p99": cuts[98], "statuses": statuses}


async def _once(job: Job, context: ssl.SSLContext, body: str) -> str:
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(
            job.host, job.port, ssl=context, server_hostname=""
        )
        try:
            if not body:
                return "handshake"
            content = body.encode()
            writer.write(
                f"POST {job.path} HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
                + content
            )
            head = await reader.readline()
            await reader.read(1_000_000)
            return head.split(b" ")[1].decode()
        finally:
            writer.close()


if __name__ == "__main__":
    main()
