"""The engine in JavaScript against the engine in Python: 1,000 whole tests, and the time of a step.

Needs Node.js on the path. Every setting has 250 subjects; "different" counts the tests whose items
differ in any place, "theta" is the largest difference of an ability or standard error after any
answer. "median_ms" and "p99_ms" are the time from an answer to the next item in Node.js,
"cpu_p99_ms" is that of its processor time: on a shared machine the others include waiting.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import ItemBank
from irtcat.cat import Config, offline_test, replay

HERE = Path(__file__).parent
N = 250
RUNNER = """
import { readFileSync } from "node:fs";
import { Session, test } from "./test.mjs";
const responses = JSON.parse(readFileSync(0, "utf8")), times = [], processor = [];
const at = new Map(test.items.map(({ id }, i) => [id, i]));
const records = responses.map((row) => {
  const session = new Session(test);
  while (!session.isOver) {
    const response = row[at.get(session.asked)];
    const used = process.cpuUsage(), start = performance.now();
    session.answer(response);
    times.push(performance.now() - start);
    const { user, system } = process.cpuUsage(used);
    processor.push((user + system) / 1000);
  }
  return session.answers;
});
console.log(JSON.stringify({ records, times, processor }));
"""


def banks():
    rng = np.random.default_rng(0)
    n = 500
    a, b = rng.lognormal(0, 0.3, n), rng.standard_normal(n)
    four = ItemBank.from_parameters(a, b, rng.uniform(0, 0.3, n), rng.uniform(0.9, 1, n))
    four.items["topic"] = rng.choice(["x", "y", "z"], n)
    graded = ItemBank.from_thresholds(a, np.sort(rng.standard_normal((n, 3)), axis=1))
    shares = {"x": 0.5, "y": (0.2, 0.3)}
    enemies = tuple(
        tuple(map(str, four.item_ids[four.items["topic"] == name][:20])) for name in shares
    )
    yield "2PL, MFI, SE", ItemBank.from_parameters(a, b), Config(stopping="se<0.25 or n>=40")
    yield "4PL, MPWI, SE and length", four, Config("mpwi", "se<0.35 and n>=10", max_items=30)
    rules = {"group": "topic", "targets": shares, "enemies": enemies}
    yield "4PL, MFI, content", four, Config(max_items=20, **rules)
    yield "graded, MFI", graded, Config(max_items=12)


def compare(bank, config, seed):
    theta = np.random.default_rng(seed).standard_normal(N)
    responses = bank.simulate(theta, seed=seed)
    report = replay(bank, responses, config)
    with tempfile.TemporaryDirectory() as folder:
        offline_test(bank, config).save(Path(folder) / "test.mjs")
        Path(folder, "run.mjs").write_text(RUNNER)
        rows = responses.to_numpy().astype(int).tolist()
        run = subprocess.run(
            ["node", "run.mjs"],
            cwd=folder,
            input=json.dumps(rows),
            capture_output=True,
            text=True,
            check=True,
        )
    result = json.loads(run.stdout)
    different, worst = 0, 0.0
    for k, answers in enumerate(result["records"]):
        n = int(report.n_items[k])
        items = [str(bank.item_ids[i]) for i in report.items[k, :n]]
        if [answer["item"] for answer in answers] != items:
            different += 1
            continue
        for name, values in (("theta", report.thetas[k, :n]), ("se", report.ses[k, :n])):
            worst = max(worst, np.abs(values - [answer[name] for answer in answers]).max())
    median, p99 = np.quantile(result["times"], [0.5, 0.99])
    return {
        "tests": N,
        "different": different,
        "theta": worst,
        "median_ms": median,
        "p99_ms": p99,
        "cpu_p99_ms": np.quantile(result["processor"], 0.99),
    }


def main():
    rows = {name: compare(*case, seed=i) for i, (name, *case) in enumerate(banks())}
    table = pd.DataFrame(rows).T.rename_axis("setting")
    print(irtcat.__version__, table.to_string(), sep="\n")
    table.to_csv(HERE / "offline.csv", float_format="%.3g")


if __name__ == "__main__":
    main()
