"""Kill processes that answer live sessions, at random moments, and look for what was lost.

    python experiments/cat/kills.py [KILLS] [PROCESSES]

A worker resumes the sessions that are left over (its own share of them), answers item by item and
prints every acknowledged answer; it is killed (SIGKILL) after a random time. At the end every
acknowledged answer must be in the store, no session may hold an item twice or ask one again, every
log's digests must hold, and each session must equal one that ran without interruption.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import ItemBank
from irtcat.cat import Config, Session, Store

HERE = Path(__file__).parent
CONFIG = Config(stopping="n>=12", max_items=12, criterion="mepv")

WORKER = """
import sys
from irtcat.cli._command import use_compilation_cache
use_compilation_cache()
from irtcat import ItemBank
from irtcat.cat import Config, Session, Store
bank = ItemBank.load(sys.argv[2])
config = Config(stopping="n>=12", max_items=12, criterion="mepv")
store = Store(sys.argv[1])
mine = sys.argv[3] + "-"
warm = Session.begin(bank, config)  # compiled, or read from the cache
warm.answer(warm.asked[0], 1)
print("ready", flush=True)
while True:
    table = store.sessions()
    table = table[table.index.str.startswith(mine)]
    left = table[table["over"] == ""].index.tolist()
    name = left[0] if left else f"{mine}{len(table)}"
    session = store.resume(name) if left else store.begin(bank, config, name, seed=0)
    while not session.is_over:
        item = session.asked[0]
        session.answer(item, (int(item[1:]) + len(name)) % 2)
        print(name, item, flush=True)
"""


def spawn(store, bank, share):
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, store, bank, share], stdout=subprocess.PIPE, text=True
    )
    return worker


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(rng.uniform(0.7, 2, 60), rng.normal(size=60))
    folder = Path(tempfile.mkdtemp())
    store, file = str(folder / "s.db"), str(bank.save(folder / "bank.npz"))
    Store(store).close()
    acknowledged, begin, done = [], time.time(), 0
    running = {}
    while done < kills:
        for share in map(str, range(processes)):
            if share not in running:
                running[share] = spawn(store, file, share)
        for share, worker in list(running.items()):
            assert worker.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.3, 1.2))
            worker.send_signal(signal.SIGKILL)
            lines = worker.stdout.read().split("\n")[:-1]
            worker.wait()
            acknowledged += [tuple(line.split()) for line in lines]
            del running[share]
            done += 1
            running[share] = spawn(store, file, share)
    for worker in running.values():
        worker.kill()
        lines = worker.stdout.read().split("\n")[1:-1]
        worker.wait()
        acknowledged += [tuple(line.split()) for line in lines]
    lost = twice = different = 0
    with Store(store) as opened:
        opened.check()
        names = opened.sessions().index.tolist()
        for name in names:
            session = opened.resume(name)
            given = session.to_frame().index.tolist()
            twice += len(given) - len(set(given)) + len(set(given) & set(session.asked))
            lost += len({item for n, item in acknowledged if n == name} - set(given))
            alone = Session.begin(bank, CONFIG, seed=0, pool=session._pool)
            for item in given:
                alone.answer(item, (int(item[1:]) + len(name)) % 2)
            different += alone.asked != session.asked
    row = {
        "kills": done,
        "processes": processes,
        "sessions": len(names),
        "acknowledged": len(acknowledged),
        "lost": lost,
        "given_twice": twice,
        "resumed_otherwise": different,
        "seconds": round(time.time() - begin),
    }
    path = HERE / f"kills_{processes}.csv"
    pd.DataFrame([row]).to_csv(path, index=False)
    print(row, os.path.getsize(store))


if __name__ == "__main__":
    main()
