"""Online selection on simulated policies: predicted success, useful groups, rollouts to an ability.

Every method spends the same budget of rollouts, those thrown away included. Results are means over
tenths of the budget; a method's choice changes what the policy learns, so that its predictions are
compared on a sample of 2,000 prompts drawn at random for the run (expected log loss under the true
probability, Spearman with the true probability), on its batches, and, as rows named `... on uniform
batches`, by methods that only watch the uniform run: the same groups for all.

    python experiments/online_selection/simulated.py [--seeds 8] [--scenarios all|hold-out|NAME,...]
        [--methods ...] [--first-seed 0] [--quick] [--out FOLDER]
"""

import argparse
import subprocess
import time
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from anchors import GRESO, AdaRFT, BalancedFilter, DynamicSampling, Method, MoPPS, Ours, step
from scenarios import HOLD_OUT, SCENARIOS, Scenario
from scipy.special import expit
from scipy.stats import rankdata

TENTHS = 10
SAMPLE = 2000
LOOKS = 5  # predictions on the sample per tenth


class World:
    """The prompts and the policy of one run."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        s = self.scenario = scenario
        root = np.random.default_rng([zlib.crc32(s.name.encode()), seed])
        n = s.n_prompts
        if s.difficulty == "uniform":
            self.b = root.uniform(s.mean, s.sd, n)
        elif s.difficulty == "two groups":
            self.b = root.normal(np.where(root.random(n) < 0.5, s.mean, -s.mean), s.sd)
        else:
            self.b = root.normal(s.mean, s.sd, n)
        if s.difficulty == "extremes":
            self.b += root.choice([0, 6, -6], n, p=[0.6, 0.2, 0.2])
        self.a = np.exp(root.normal(0, s.slope_sd, n))
        self.topic = root.integers(s.topics, size=n)
        self.theta = s.start + s.topic_sd * root.normal(size=s.topics)
        self.start = self.theta.copy()
        self.sample = root.choice(n, min(SAMPLE, n), replace=False)
        self.bank = self.features = None
        if s.prior == "bank":
            noise = root.normal(0, s.bank_error, n)
            self.bank = pd.DataFrame({"b": self.b + noise, "se_b": s.bank_error})
        if s.prior == "features":
            # Columns that carry the difficulty through one direction, plus noise, rotated.
            standard = (self.b - self.b.mean()) / self.b.std()
            columns = root.normal(size=(n, 10))
            columns[:, 0] = np.sqrt(s.r2) * standard + np.sqrt(1 - s.r2) * columns[:, 0]
            self.features = columns @ np.linalg.qr(root.normal(size=(10, 10)))[0]
        self.answers = np.random.default_rng([zlib.crc32(s.name.encode()), seed, 1])
        self.saved: tuple[np.ndarray, np.ndarray] | None = None
        self.jumped = False
        self.u = 0.0

    def p(self, ids: np.ndarray) -> np.ndarray:
        """Probability of success now."""
        s = self.scenario
        p = expit(self.a[ids] * (self.theta[self.topic[ids]] - self.b[ids]))
        return s.guessing + (1 - s.guessing) * p

    def answer(self, ids: np.ndarray) -> np.ndarray:
        """Successes of one group per prompt."""
        return self.answers.binomial(self.scenario.group_size, self.p(ids))

    def learn(self, ids: np.ndarray, successes: np.ndarray, n: int, u: float) -> bool:
        """Moves the policy by one step; True where it went back to an older state."""
        s = self.scenario
        q = successes / s.group_size
        signal = np.sqrt(q * (1 - q))
        walk = self.answers.normal(0, s.noise, s.topics)
        du, self.u = u - self.u, u
        if s.policy == "trend":
            self.theta = self.theta + s.gain * du
        elif s.policy == "plateau":
            self.theta = self.theta + s.gain * (min(1, u / 0.3) - min(1, (u - du) / 0.3))
        elif s.policy == "forgets":
            add = np.bincount(self.topic[ids], self.a[ids] * signal, s.topics)
            gained = self.theta - self.start
            self.theta = self.theta + s.rate * s.topics * add / n - s.forget * gained
        elif s.policy != "walk":
            self.theta = self.theta + s.rate * np.sum(self.a[ids] * signal) / n
        if s.policy == "memorises":
            np.add.at(self.b, ids, -s.forget * signal)
        self.theta = self.theta + walk
        if s.policy == "reload":
            if self.saved is None and u >= 0.2:
                self.saved = (self.theta.copy(), self.b.copy())
            if not self.jumped and u >= 0.5:
                self.theta, self.jumped = self.saved[0].copy(), True
                return True
        return False


def reference_difficulty(world: World) -> np.ndarray | None:
    """What AdaRFT needs: failure rates in % of a reference model, from what is known beforehand."""
    if world.bank is not None:
        known = world.bank["b"].to_numpy()
    elif world.features is not None:
        # The best linear prediction, which a user could not have before the first rollout.
        design = np.column_stack([np.ones(len(world.b)), world.features])
        known = design @ np.linalg.lstsq(design, world.b, rcond=None)[0]
    else:
        return None
    return 100 * expit(known - np.median(known))


def ours(world: World, seed: int, **options: object) -> Ours:
    """The selector with everything that is known of the prompts."""
    return Ours(
        len(world.b),
        seed,
        bank=world.bank,
        features=world.features,
        group_size=world.scenario.group_size,
        **options,
    )


def adarft(world: World, seed: int) -> Method | None:
    """AdaRFT where difficulties are known."""
    difficulty = reference_difficulty(world)
    return None if difficulty is None else AdaRFT(len(world.b), seed, difficulty=difficulty)


class Oracle(Method):
    """The prompts with the greatest expected step, a sqrt(p (1 - p)), of the true p: a bound."""

    def __init__(self, world: World) -> None:
        super().__init__(len(world.b))
        self.world = world

    def next(self, n: int) -> np.ndarray:
        """The n best."""
        everyone = np.arange(self.n_items)
        p = self.world.p(everyone)
        return np.argsort(-self.world.a * np.sqrt(p * (1 - p)))[:n]


class OracleOfP(Oracle):
    """The prompts with the greatest p (1 - p), of the true p; slopes are unknown to it."""

    def next(self, n: int) -> np.ndarray:
        """The n best."""
        p = self.world.p(np.arange(self.n_items))
        return np.argsort(-p * (1 - p))[:n]


# The last six are not in the tables of the README.
METHODS = {
    "uniform": lambda w, s: Method(len(w.b), s),
    "dynamic sampling": lambda w, s: DynamicSampling(len(w.b), s),
    "MoPPS": lambda w, s: MoPPS(len(w.b), s),
    "AdaRFT": adarft,
    "GRESO": lambda w, s: GRESO(len(w.b), s),
    "irtcat": lambda w, s: ours(w, s),
    "oracle": lambda w, s: Oracle(w),
    "balanced filter": lambda w, s: BalancedFilter(len(w.b), s),
    "MoPPS, no decay": lambda w, s: MoPPS(len(w.b), s, decay=1.0),
    "irtcat, mixed": lambda w, s: ours(w, s, rule="mixed"),
    "irtcat, thompson": lambda w, s: ours(w, s, rule="thompson"),
    "irtcat, no rest": lambda w, s: ours(w, s, rest=0),
    "oracle of p": lambda w, s: OracleOfP(w),
}
# These watch the uniform run and learn from its groups, so that predictions are compared on the
# same groups.
WATCHERS = ("MoPPS", "irtcat")


COLUMNS = [
    "scenario",
    "seed",
    "method",
    "tenth",
    "theta",
    "inside",
    "useful",
    "log_loss",
    "best_log_loss",
    "spearman",
    "batch_log_loss",
    "batch_best_log_loss",
    "batch_spearman",
    "seconds",
]


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation; 0 where one side is constant."""
    rx, ry = rankdata(x) - (len(x) + 1) / 2, rankdata(y) - (len(y) + 1) / 2
    scale = np.sqrt((rx @ rx) * (ry @ ry))
    return float(rx @ ry / scale) if scale > 0 else 0.0


def log_loss(share: np.ndarray, p: np.ndarray) -> float:
    """Mean log loss of predicted p for shares (or true probabilities)."""
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return float(-np.mean(share * np.log(p) + (1 - share) * np.log1p(-p)))


def run(
    scenario: Scenario, name: str, seed: int, watchers: tuple[str, ...] = ()
) -> tuple[pd.DataFrame, dict] | None:
    """One run of one method: a row per tenth for it and for those who watch, and its curve."""
    world = World(scenario, seed)
    method = METHODS[name](world, seed)
    if method is None:
        return None
    watching = {f"{w} on uniform batches": METHODS[w](world, seed) for w in watchers}
    everyone = {name: method, **watching}
    n, group = scenario.batch, scenario.group_size
    budget = scenario.steps * n * group
    spent, looked = 0, -1
    records: list[dict] = []
    seconds = dict.fromkeys(everyone, 0.0)
    while spent < budget:
        tenth = min(TENTHS - 1, TENTHS * spent // budget)
        look = LOOKS * TENTHS * spent // budget
        if look != looked:
            looked = look
            truth = world.p(world.sample)
            for label, one in everyone.items():
                row = {
                    "method": label,
                    "tenth": tenth,
                    "theta": world.theta.mean(),
                    "inside": np.mean((truth > 0.1) & (truth < 0.9)),
                    "best_log_loss": log_loss(truth, truth),
                }
                predicted = one.predict(world.sample)
                if predicted is not None:
                    row["log_loss"] = log_loss(truth, predicted)
                    row["spearman"] = spearman(truth, predicted)
                records.append(row)

        def answer(ids: np.ndarray, tenth: int = tenth) -> np.ndarray:
            before = {label: one.predict(ids) for label, one in everyone.items()}
            p, successes = world.p(ids), world.answer(ids)
            useful = np.mean((successes > 0) & (successes < group))
            for label, predicted in before.items():
                row = {"method": label, "tenth": tenth, "useful": useful, "groups": len(ids)}
                row["batch_best_log_loss"] = log_loss(successes / group, p)
                if predicted is not None:
                    row["batch_log_loss"] = log_loss(successes / group, predicted)
                    row["batch_spearman"] = spearman(successes, predicted)
                records.append(row)
            return successes

        start = time.perf_counter()
        done = step(method, n, group, answer)
        seconds[name] += time.perf_counter() - start
        for one in watching.values():
            one.update(done.ids, done.successes, group)
        spent += len(done.ids) * group
        jumped = world.learn(
            done.ids[done.used], done.successes[done.used], n, min(1.0, spent / budget)
        )
        records.append({"method": name, "tenth": tenth, "spent": spent, "now": world.theta.mean()})
        if jumped and scenario.announced:
            for one in everyone.values():
                one.reloaded()
    frame = pd.DataFrame(records)
    rows = frame.groupby(["method", "tenth"]).mean().reset_index()
    rows = rows.drop(columns=["spent", "now", "groups"])
    curve = frame.loc[frame["method"] == name, ["spent", "now"]].dropna()
    for method_name in everyone:
        rows.loc[rows["method"] == method_name, "seconds"] = seconds[method_name]
    rows = rows.assign(scenario=scenario.name, seed=seed).reindex(columns=COLUMNS)
    return rows, {
        "scenario": scenario.name,
        "seed": seed,
        "method": name,
        "curve": curve.to_numpy(),
    }


def rollouts_to(curves: list[dict]) -> pd.DataFrame:
    """Rollouts until the ability that the uniform run of the seed ends with, relative to it."""
    out = []
    uniform = {(c["scenario"], c["seed"]): c["curve"] for c in curves if c["method"] == "uniform"}
    for one in curves:
        base = uniform.get((one["scenario"], one["seed"]))
        if base is None:
            continue
        reached = np.flatnonzero(one["curve"][:, 1] >= base[-1, 1])
        share = one["curve"][reached[0], 0] / base[-1, 0] if len(reached) else np.inf
        keys = {k: one[k] for k in ("scenario", "seed", "method")}
        out.append({**keys, "share": share, "final_theta": one["curve"][-1, 1]})
    return pd.DataFrame(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--scenarios", default="all", help="all, hold-out or names, by semicolons")
    parser.add_argument("--methods", default=";".join(METHODS), help="divided by semicolons")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    table = {s.name: s for s in (*SCENARIOS, *HOLD_OUT)}
    groups = {"all": SCENARIOS, "hold-out": HOLD_OUT}
    chosen = groups.get(arguments.scenarios) or [
        table[name.strip()] for name in arguments.scenarios.split(";")
    ]
    names = [m.strip() for m in arguments.methods.split(";")]
    seeds = 1 if arguments.quick else arguments.seeds
    kind = arguments.scenarios.replace("-", "_") if arguments.scenarios in groups else "some"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    arguments.out.mkdir(parents=True, exist_ok=True)
    # Seed by seed, so that a run that is stopped leaves whole seeds.
    for seed in range(arguments.first_seed, arguments.first_seed + seeds):
        for scenario in chosen:
            watchers = tuple(w for w in WATCHERS if w in names)
            done = [
                run(scenario, name, seed, watchers if name == "uniform" else ()) for name in names
            ]
            done = [result for result in done if result is not None]
            tenths = pd.concat([rows for rows, _ in done], ignore_index=True)
            reached = rollouts_to([curve for _, curve in done])
            for table, file in (
                (tenths, f"simulated_{kind}.csv"),
                (reached, f"rollouts_{kind}.csv"),
            ):
                path = arguments.out / file
                table.assign(commit=commit).round(5).to_csv(
                    path, index=False, mode="a", header=not path.exists()
                )
            print(seed, scenario.name, flush=True)
            if not reached.empty:
                print(reached.set_index("method")["share"].round(2).to_dict(), flush=True)


if __name__ == "__main__":
    main()
