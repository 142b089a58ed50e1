"""Load on the service: many takers at once, a rate of answers, and what became of every answer.

    python experiments/service/load.py [--postgresql] [--takers 100] [--rate 10] [--seconds 30]
                                       [--workers 2] [--out load.csv]

Server, database and takers run on this machine and talk over the loopback interface, so that the
takers' own processor time is part of the load. Answers are due at random times of the given rate,
whether or not earlier ones have come back: the time of an answer counts from when it was due
(without that, a slow server would slow its own load down). Each is given by a taker who has none
under way; a taker whose test is over goes on with another ticket. Afterwards every acknowledged
answer is looked up in the logs of the database, which are verified.

Printed: answers, errors, p50 / p95 / p99 in milliseconds (also of every minute), processor time of
the workers for an answer ("cpu_ms": with beginning a test, and free of what else the machine does),
and memory of the workers after.
PostgreSQL is started as the tests do it (tests/service/conftest.py).
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import httpx
import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from irtcat import ItemBank  # noqa: E402
from irtcat.service.assembly import open_service  # noqa: E402
from irtcat.service.attempts import library, people, proctoring  # noqa: E402
from irtcat.service.content import Choice, Item, ItemSet, Key  # noqa: E402
from irtcat.service.definition import TestDefinition  # noqa: E402
from irtcat.service.operations import maintenance  # noqa: E402
from irtcat.service.operations.server import STARTED, Settings  # noqa: E402
from irtcat.service.storage.context import Service  # noqa: E402

LENGTH = 40
"""Items of a test."""
ITEMS = 300
"""Items of the bank."""
KEEP_ALIVE = 60.0
"""Seconds for which a taker's device keeps its connection, as browsers do."""
LEVELS = (0.5, 0.95, 0.99)
"""Quantiles of the times that are printed."""
PATIENCE = 30.0
"""Seconds that a taker waits for a response."""
LOOKS = 200
"""How often a taker looks again for the page that it is on, every half a second."""


def publish(service: Service) -> str:
    """Publish a test of one adaptive section with right/wrong items of four choices."""
    rng = np.random.default_rng(0)
    ids = [f"q{i}" for i in range(ITEMS)]
    bank = ItemBank.from_parameters(
        a=rng.lognormal(0.2, 0.2, ITEMS), b=rng.normal(size=ITEMS), item_ids=ids
    )
    choices = tuple(Choice(letter, f"Choice {letter}") for letter in "ABCD")
    items = [Item(id=i, kind="choice", prompt=f"<p>{i}</p>", choices=choices) for i in ids]
    keys = [Key(item=i, kind="match", correct=("B",)) for i in ids]
    config = {"max_items": LENGTH, "exposure": {"name": "randomesque", "k": 5}}
    definition = TestDefinition.from_json(
        {"title": "Load", "sections": [{"kind": "adaptive", "config": config}]}
    )
    files = (definition, bank, ItemSet(items, keys))
    return library.publish(service, *files, actor="load", n_simulated=50)[0]


@contextmanager
def databases(postgresql: bool):
    """The address of an empty database, and the server of PostgreSQL or None."""
    with tempfile.TemporaryDirectory(prefix="load", dir="/tmp") as folder:
        if not postgresql:
            yield f"{folder}/tests.db", None
            return
        from tests.service.conftest import Server

        Path(folder).chmod(0o755)
        server = Server(Path(folder))
        try:
            yield server.create(), server
        finally:
            server.stop("immediate")


class Running:
    """A server of the service as a process, with its workers."""

    def __init__(self, settings: Settings, workers: int, folder: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.base, self.log = f"http://127.0.0.1:{port}", folder / "server.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", STARTED], stdin=subprocess.PIPE, stderr=log, text=True
            )
        with self.process.stdin as stream:
            json.dump([vars(settings), {"port": port, "workers": workers}], stream)
        while self.process.poll() is None:
            try:
                if httpx.get(f"{self.base}/health/ready", trust_env=False).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(0.2)
        while len(self.workers()) < workers:
            time.sleep(0.2)

    def workers(self) -> list[int]:
        """Process ids of the workers that are running."""
        found = re.findall(r"Started server process \[(\d+)\]", self.log.read_text())
        return [int(pid) for pid in found if Path(f"/proc/{pid}").exists()]

    def memory(self) -> float:
        """Memory of the workers in MB (resident, with what they share)."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.workers()]
        return sum(pages) * 4096 / 1e6

    def processor(self) -> float:
        """Seconds of processor time that the workers have used."""
        fields = [Path(f"/proc/{pid}/stat").read_text().split() for pid in self.workers()]
        return sum(int(it[13]) + int(it[14]) for it in fields) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Stop it as systemd would."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(90)


class Taker:
    """A taker's device with a connection of its own: its token and the item that it sees."""

    def __init__(self, base: str):
        self.client = aiohttp.ClientSession(
            base,
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=KEEP_ALIVE),
            timeout=aiohttp.ClientTimeout(PATIENCE),
        )
        self.token, self.number, self.busy = "", 0, False

    async def request(
        self, method: str, path: str, body: dict | None = None, **headers: str
    ) -> tuple[int, dict]:
        """Status and document of a response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            named["Authorization"] = f"Bearer {self.token}"
        async with self.client.request(method, path, json=body, headers=named) as response:
            return response.status, await response.json(content_type=None)


@dataclass
class Load:
    """Takers of one test, and what they sent and got.

    Attributes:
        base: address of the service.
        tickets: tickets that are left.
        retry: seconds for which a request that failed is sent again with the same id.
        seconds: times of answers.
        given: when they were due, in seconds from the start.
        acknowledged: ids of requests that were acknowledged.
        errors: what went wrong, by kind.
    """

    base: str
    tickets: list[str]
    retry: float = 0.0
    takers: list[Taker] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    given: list[float] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    errors: Counter = field(default_factory=Counter)
    late: int = 0
    started: float = 0.0

    def by_minute(self) -> pd.DataFrame:
        """Answers and their times in milliseconds, by minute: a stall is no slow server."""
        times = pd.Series(np.multiply(self.seconds, 1000))
        of_minute = times.groupby(np.floor_divide(self.given, 60).astype(int))
        columns = {f"p{100 * level:.0f}_ms": of_minute.quantile(level) for level in LEVELS}
        table = pd.DataFrame({"answers": of_minute.size(), **columns, "most_ms": of_minute.max()})
        return table.round(1).rename_axis("minute")

    async def post(self, taker: Taker, path: str, body: dict, key: str) -> dict | None:
        """The document of a response; None if there was none in time, or a refusal."""
        until = time.monotonic() + self.retry
        while True:
            try:
                status, document = await taker.request("POST", path, body, Idempotency_Key=key)
                kind = f"{path.rsplit('/', 1)[0]} {status}"
            except (aiohttp.ClientError, TimeoutError) as error:
                status, kind = 500, type(error).__name__
            if status < 300:
                return document
            self.errors[kind] += 1
            if status < 500 or time.monotonic() > until:
                return None
            await asyncio.sleep(0.5)

    async def begin(self, taker: Taker) -> bool:
        """Begin a test with the next ticket; whether it worked."""
        path, taker.token = f"/api/v1/take/{self.tickets.pop()}", ""
        key = f"{random.getrandbits(96):024x}"
        begun = await self.post(taker, path, {"credential": "bearer"}, key)
        if begun is None:
            return False
        taker.token, taker.number = begun["token"], begun["view"]["item"]["number"]
        return True

    async def answer(self, taker: Taker, due: float) -> None:
        """Answer the item that a taker sees."""
        request = f"{random.getrandbits(96):024x}"
        body = {"number": taker.number, "response": f"c{random.randint(1, 4)}"}
        view = await self.post(taker, "/api/v1/take/answers", body, request)
        if view is None:
            await self.look(taker)
        else:
            self.seconds.append(time.monotonic() - due)
            self.given.append(due - self.started)
            self.acknowledged.append(request)
            if view["page"] == "item":
                taker.number = view["item"]["number"]
            elif not await self.begin(taker):
                return  # stays busy: out of the game
        taker.busy = False

    async def look(self, taker: Taker) -> None:
        """Find out what a taker sees: an answer without a reply may have been stored."""
        for _ in range(LOOKS):
            with suppress(aiohttp.ClientError, TimeoutError):
                status, view = await taker.request("GET", "/api/v1/take/current")
                if status == 200 and view["page"] == "item":
                    taker.number = view["item"]["number"]
                    return
                if status == 200:
                    await self.begin(taker)
                    return
            await asyncio.sleep(0.5)

    async def run(self, n: int, rate: float, seconds: float, beside=None) -> None:
        """Begin with all takers, then answer at the rate for so long, and until ``beside`` ends."""
        gate = asyncio.Semaphore(20)
        async with AsyncExitStack() as stack:
            takers = [Taker(self.base) for _ in range(n)]
            for taker in takers:
                await stack.enter_async_context(taker.client)

            async def begin(taker: Taker) -> bool:
                async with gate:
                    return await self.begin(taker)

            began = await asyncio.gather(*map(begin, takers))
            self.takers = [
                taker for taker, has_begun in zip(takers, began, strict=True) if has_begun
            ]
            other = asyncio.create_task(beside()) if beside is not None else None
            await self._answers(rate, seconds, other)

    async def _answers(self, rate: float, seconds: float, other: asyncio.Task | None) -> None:
        under_way, due = set(), time.monotonic()
        self.started, end = due, due + seconds
        while due < end or (other is not None and not other.done()):
            due += random.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            idle = [taker for taker in self.takers if not taker.busy]
            if not idle:
                self.late += 1
                continue
            taker = random.choice(idle)
            taker.busy = True
            task = asyncio.create_task(self.answer(taker, due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)


def account(service: Service, acknowledged: list[str]) -> dict[str, int]:
    """What became of acknowledged answers, by the verified logs of all attempts."""
    stored = Counter()
    for (name,) in service.rows(library.sa.select(library.tables.attempts.c.id)):
        for event in proctoring.attempt_events(service, name):
            if event["kind"] == "answer":
                stored[event["request"]] += 1
    return {
        "stored": sum(stored.values()),
        "lost": sum(stored[request] == 0 for request in acknowledged),
        "twice": sum(count > 1 for count in stored.values()),
        "faults": len(maintenance.check(service).faults),
    }


def prepared(address: str, takers: int, answers: float) -> list[str]:
    """Publish the test, and issue tickets for so many answers."""
    with open_service(address, create=True) as service:
        test = publish(service)
        with service.database.writing():
            n = takers + int(1.5 * answers / LENGTH) + takers
            return [people.issue_ticket(service, test, actor="load").token for _ in range(n)]


def report(row: dict, out: str | None) -> None:
    print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if out:
        pd.DataFrame([row]).to_csv(out, mode="a", header=not Path(out).exists(), index=False)


def arguments(**more: dict) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--takers", type=int, default=100)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out")
    for name, options in more.items():
        parser.add_argument(f"--{name}", **options)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with ExitStack() as stack:
        address, _ = stack.enter_context(databases(options.postgresql))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tickets = prepared(address, options.takers, options.rate * options.seconds)
        running = Running(Settings(address=address, secure=False), options.workers, folder)
        stack.callback(running.stop)
        before, used = running.memory(), running.processor()
        load = Load(running.base, tickets)
        asyncio.run(load.run(options.takers, options.rate, options.seconds))
        after, used = running.memory(), running.processor() - used
        with open_service(address) as service:
            accounted = account(service, load.acknowledged)
    p50, p95, p99 = 1000 * np.quantile(load.seconds, LEVELS)
    row = {
        "database": "postgresql" if options.postgresql else "sqlite",
        "takers": len(load.takers),
        "rate": options.rate,
        "workers": options.workers,
        "answers": len(load.acknowledged),
        "per_second": round(len(load.acknowledged) / options.seconds, 1),
        "p50_ms": round(p50, 1),
        "p95_ms": round(p95, 1),
        "p99_ms": round(p99, 1),
        "cpu_ms": round(1000 * used / max(len(load.acknowledged), 1), 2),
        "errors": sum(load.errors.values()),
        "not_sent": load.late,
        **accounted,
        "workers_mb": round(after),
        "kb_per_taker": round(1000 * (after - before) / max(len(load.takers), 1)),
    }
    report(row, options.out)
    print(load.by_minute().to_string())
    if load.errors:
        print(dict(load.errors))


if __name__ == "__main__":
    main()
