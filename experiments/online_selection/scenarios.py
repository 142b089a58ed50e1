"""The simulated policies, fixed before any method was run on them.

The commit that added this file precedes those that added the methods.

`SCENARIOS` may be used to choose the library's constants; `HOLD_OUT` is run once, at the end.

Prompt i is solved with probability c + (1 - c) sigmoid(a_i (theta_k - b_i)), k its topic. Slopes
are log-normal with the SD `slope_sd` of the logarithm. `policy` says how the abilities theta move
(`gain`, `rate`, `noise` in logits; u runs from 0 to 1 over the budget of rollouts). Abilities of
topics differ by `topic_sd` at the start; every policy also walks at random, SD `noise` per step.

- trend: theta = start + gain u, whatever is chosen
- plateau: theta = start + gain min(1, u / .3)
- walk: the random walk alone
- learns: each step adds rate / n times the sum over its n groups of a_i sqrt(q_i (1 - q_i)), q_i
  the share of the group's rollouts that are right. This is the size of the expected gradient of
  GRPO's objective with advantages divided by their SD, (d p_i / d theta) / sqrt(p_i (1 - p_i)); a
  group that is all right or all wrong adds nothing
- forgets: learns, topic by topic from the topic's groups alone (times the number of topics); each
  step a topic also loses the share `forget` of what it gained
- reload: learns; at u = .5 the policy goes back to its state at u = .2 (`announced`: the method's
  `reloaded` is called)
- memorises: learns, and a group also lowers the difficulty of its prompt by
  `forget` sqrt(q_i (1 - q_i))

Difficulties: normal (mean, SD), uniform (from `mean` to `sd`), two groups (equal halves at -mean
and mean, SD `sd`), or extremes (normal; a fifth of the prompts 6 logits harder, a fifth 6 easier).
Priors: cold (nothing is known), bank (difficulties with normal errors of SD `bank_error`, which is
stated), features (ten columns whose best linear predictor explains `r2` of the variance of the
difficulties).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One simulated run; see the module's docstring for the fields."""

    name: str
    policy: str
    prior: str = "cold"
    n_prompts: int = 10_000
    batch: int = 256
    steps: int = 200
    group_size: int = 8
    difficulty: str = "normal"
    mean: float = 0.0
    sd: float = 2.0
    slope_sd: float = 0.3
    guessing: float = 0.0
    start: float = -1.5
    gain: float = 3.0
    rate: float = 0.03
    noise: float = 0.01
    forget: float = 0.0
    topics: int = 1
    topic_sd: float = 0.0
    announced: bool = True
    bank_error: float = 0.5
    r2: float = 0.4


SCENARIOS = (
    Scenario(name="trend, cold", policy="trend"),
    Scenario(name="trend, bank", policy="trend", prior="bank"),
    Scenario(name="trend, features", policy="trend", prior="features"),
    Scenario(name="plateau, cold", policy="plateau", difficulty="uniform", mean=-4, sd=4),
    Scenario(name="walk, cold", policy="walk", noise=0.05, start=0.0),
    Scenario(name="learns, cold", policy="learns"),
    Scenario(name="learns, bank", policy="learns", prior="bank"),
    Scenario(name="learns, features", policy="learns", prior="features"),
    Scenario(name="learns, hard prompts", policy="learns", mean=2.0),
    Scenario(name="learns, extremes", policy="learns", difficulty="extremes", sd=1.5),
    Scenario(name="forgets, cold", policy="forgets", topics=5, topic_sd=0.7, forget=0.01),
    Scenario(name="reload, cold", policy="reload"),
    Scenario(
        name="learns, 100,000", policy="learns", n_prompts=100_000, batch=1024, steps=300, rate=0.02
    ),
)

HOLD_OUT = (
    Scenario(
        name="hold-out: two groups, features",
        policy="learns",
        prior="features",
        r2=0.2,
        difficulty="two groups",
        mean=2.5,
        sd=1.0,
        n_prompts=20_000,
        batch=512,
        steps=150,
    ),
    Scenario(
        name="hold-out: flat slopes, guessing",
        policy="learns",
        slope_sd=0.5,
        guessing=0.1,
        sd=3.0,
        start=-2.0,
        rate=0.04,
    ),
    Scenario(name="hold-out: reload, silent", policy="reload", announced=False, rate=0.04),
    Scenario(
        name="hold-out: memorises",
        policy="memorises",
        forget=0.5,
        n_prompts=10_000,
        batch=512,
        steps=120,
        mean=1.0,
    ),
    Scenario(
        name="hold-out: wrong bank",
        policy="learns",
        prior="bank",
        bank_error=1.5,
        sd=1.5,
        start=-2.0,
        n_prompts=30_000,
        batch=512,
        steps=200,
    ),
    Scenario(
        name="hold-out: 12 topics, walk",
        policy="walk",
        topics=12,
        topic_sd=1.0,
        noise=0.08,
        start=0.0,
        sd=1.5,
    ),
    Scenario(
        name="hold-out: 50,000, groups of 4",
        policy="learns",
        n_prompts=50_000,
        batch=1024,
        steps=200,
        group_size=4,
        difficulty="extremes",
        sd=2.0,
    ),
)
