"""Faults under load: workers and the database are killed; no acknowledged answer may be lost.

    python experiments/service/faults.py [--postgresql] [--kills 20] [--every 4] [--takers 50]
                                         [--rate 10] [--workers 2] [--out faults.csv]

While takers answer (see load.py), every few seconds one of the workers is killed by SIGKILL, or
with PostgreSQL, every other time, the whole database server (``pg_ctl stop -m immediate``, which
ends all its processes without a checkpoint, and a start with recovery). Takers send what failed
again, with the same id, as the pages do. Afterwards every acknowledged answer is looked up in the
verified logs, no answer may be there twice, and every attempt that is under way must go on.
"""

import asyncio
import os
import random
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from load import Load, Running, Taker, account, arguments, databases, prepared, report

from irtcat.service.assembly import open_service
from irtcat.service.operations.server import Settings

RETRY = 90.0
"""Seconds for which takers send again: a worker that starts is warm after some seconds."""
DATABASE_EVERY = 2
"""With PostgreSQL every so many kills are of the database: it starts within a second.

A worker needs a processor for some 7 s until its engine is warm.
"""


class Killer:
    """Kills workers, and sometimes the database."""

    def __init__(self, running: Running, server, kills: int, every: float):
        self.running, self.server = running, server
        self.kills, self.every = kills, every
        self.of_workers = self.of_database = 0

    async def __call__(self) -> None:
        """Kill until the number is reached."""
        for at in range(self.kills):
            await asyncio.sleep(self.every * random.uniform(0.5, 1.5))
            if self.server is not None and at % DATABASE_EVERY == DATABASE_EVERY - 1:
                await asyncio.to_thread(self.server.stop, "immediate")
                await asyncio.to_thread(self.server.start)
                self.of_database += 1
                continue
            workers = self.running.workers()
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)
                self.of_workers += 1


async def resumed(load: Load) -> int:
    """Number of takers whose attempt goes on where it was."""
    n = 0
    for known in load.takers:
        taker = Taker(load.base)
        taker.token = known.token
        async with taker.client:
            status, view = await taker.request("GET", "/api/v1/take/current")
            n += status == 200 and view["page"] in ("item", "finished")
    return n


def main() -> None:
    options = arguments(kills={"type": int, "default": 20}, every={"type": float, "default": 4.0})
    seconds = options.kills * options.every
    with ExitStack() as stack:
        address, server = stack.enter_context(databases(options.postgresql))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tickets = prepared(address, options.takers, options.rate * seconds)
        running = Running(Settings(address=address, secure=False), options.workers, folder)
        stack.callback(running.stop)
        load = Load(running.base, tickets, retry=RETRY)
        killer = Killer(running, server, options.kills, options.every)
        asyncio.run(load.run(options.takers, options.rate, seconds, killer))
        going_on = asyncio.run(resumed(load))
        with open_service(address) as service:
            accounted = account(service, load.acknowledged)
    row = {
        "database": "postgresql" if options.postgresql else "sqlite",
        "kills_of_workers": killer.of_workers,
        "kills_of_database": killer.of_database,
        "takers": len(load.takers),
        "resumed": going_on,
        "answers": len(load.acknowledged),
        "sent_again": sum(load.errors.values()),
        **accounted,
    }
    report(row, options.out)
    print(dict(load.errors))


if __name__ == "__main__":
    main()
