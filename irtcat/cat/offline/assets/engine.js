/**
 * An adaptive test in JavaScript: the same items and abilities as irtcat's Session in Python.
 *
 * A test is the document that irtcat.cat.offline_test makes: item parameters, prior, rules.
 *
 *   const session = new Session(test);
 *   while (!session.isOver) session.answer(codeOf(session.asked));
 *   session.estimate();  // {theta, se, n_items, score, score_sd}
 *
 * Every rule has the name and the formula of its row in Python (irtcat/cat/rules).
 */

const CLOSED = -Infinity;
const SMALLEST = 2.2250738585072014e-308;
const EQUAL = 1e-6;

const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (x, y) => {
  let total = 0;
  for (let i = 0; i < x.length; i++) total += x[i] * y[i];
  return total;
};
const logSigmoid = (z) => Math.min(z, 0) - Math.log1p(Math.exp(-Math.abs(z)));
const logAddExp = (x, y) => {
  const top = Math.max(x, y);
  return top === -Infinity ? top : top + Math.log1p(Math.exp(-Math.abs(x - y)));
};

/** The first position of the greatest value. */
function firstBest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/**
 * Item models: log-probabilities of all categories and Fisher information at an ability.
 * "logistic" has lower and upper asymptotes, "graded" is Samejima's model, and "softmax" holds
 * partial credit and nominal items.
 */
const MODELS = {
  logistic({ a, intercept, c, d }) {
    const logs = [1 - c, 1 - d, c, d].map(Math.log);
    return {
      categories: 2,
      logP(theta) {
        const z = a * theta + intercept;
        const low = logSigmoid(-z), high = logSigmoid(z);
        return [logAddExp(logs[0] + low, logs[1] + high), logAddExp(logs[2] + low, logs[3] + high)];
      },
      information(theta) {
        const z = a * theta + intercept, s = Math.exp(-Math.abs(z));
        const up = z > 0 ? 1 : s, down = z > 0 ? s : 1;
        const both = (c * down + d * up) * ((1 - c) * down + (1 - d) * up) * (1 + s) ** 2;
        return (a * (d - c) * s) ** 2 / Math.max(both, SMALLEST);
      },
    };
  },
  graded({ a, intercept, gaps }) {
    let fallen = 0;
    const falls = gaps.map((gap) => intercept - (fallen += gap));
    const intercepts = [intercept, ...falls, -Infinity];
    const widths = [0, ...gaps.map((gap) => Math.log(-Math.expm1(-gap))), 0];
    return fromCurves(intercepts.length, (theta, visit) => {
      let above = 0, low = 0;
      for (let k = 0; k < intercepts.length; k++) {
        const z = a * theta + intercepts[k], below = logSigmoid(-z), next = logSigmoid(z);
        visit(above + below + widths[k], a * (low - Math.exp(next)));
        above = next;
        low = Math.exp(below);
      }
    });
  },
  softmax({ slopes: later, intercepts }) {
    const slopes = [0, ...later], z = slopes.map(() => 0);
    return fromCurves(slopes.length, (theta, visit) => {
      let top = 0, others = 0, mean = 0;
      for (let k = 1; k < z.length; k++) {
        z[k] = slopes[k] * theta + intercepts[k - 1];
        if (z[k] > z[top]) top = k;
      }
      for (let k = 0; k < z.length; k++) if (k !== top) others += Math.exp(z[k] - z[top]);
      const total = z[top] + Math.log1p(others);
      for (let k = 1; k < z.length; k++) mean += slopes[k] * Math.exp(z[k] - total);
      for (let k = 0; k < z.length; k++) visit(z[k] - total, slopes[k] - mean);
    });
  },
};

/**
 * An item by its curves, which visit every category with its log-probability and the derivative of
 * that. They make no arrays: those of 500 items at every step had the page wait for its memory to
 * be cleared. The information is sum P (ln P)'^2.
 */
function fromCurves(categories, curves) {
  return {
    categories,
    logP(theta) {
      const values = [];
      curves(theta, (value) => values.push(value));
      return values;
    },
    information(theta) {
      let total = 0;
      curves(theta, (value, slope) => { total += Math.exp(value) * slope ** 2; });
      return total;
    },
  };
}

/** Criteria: the value of all items, the best highest. */
const CRITERIA = {
  mfi: (session) => session.items.map((item) => item.information(session.theta)),
  mpwi: (session) => {
    const posterior = session.posterior();
    return onGrid(session).map((information) => dot(information, posterior));
  },
  sequential: (session) => session.items.map((_, i) => -i),
};

/** Stopping rules: whether a session is over. */
const STOPPING = {
  length: (session, { at = 30 }) => session.scored >= at,
  se: (session, { below = 0.3 }) => session.se <= [below].flat()[0],
  information: (session, { below = 0.1 }) =>
    !session.items.some((item, i) =>
      !session.administered.has(i) && item.information(session.theta) >= below),
  time: (session, { seconds = 3600 }) => session.seconds >= seconds,
};

function leaves(rule) {
  return rule.rules ? rule.rules.flatMap(leaves) : [rule];
}

/** Whether a rule is met. */
function holds(session, rule) {
  if (!rule.rules) return STOPPING[rule.name](session, rule);
  const met = rule.rules.map((member) => holds(session, member));
  return rule.name === "any-of" ? met.some(Boolean) : met.every(Boolean);
}

/** Content rules that prefer some of the open items. */
const CONTENT = {
  bounds: (plan, counts, values) => values,
  "kingsbury-zara": (plan, counts, values) => {
    const total = sum(plan.planned), asked = Math.max(sum(counts), 1);
    const gaps = plan.planned.map((planned, g) => {
      if (!values.some((value, i) => value > CLOSED && plan.group[i] === g)) return CLOSED;
      const target = planned / total;
      return target - counts[g] / asked + (counts[g] === 0 && target > 0 ? 2 : 0);
    });
    const greatest = Math.max(...gaps);
    const chosen = gaps.findIndex((gap) => gap >= greatest - EQUAL);
    return values.map((value, i) => (plan.group[i] === chosen ? value : CLOSED));
  },
  penalties: (plan, counts, values, { weight = 1 }) => {
    const left = Math.max(plan.length - sum(counts), 1);
    const shift = counts.map((count, g) =>
      (weight * Math.max(plan.least[g] - count, 0)) / left - (count >= plan.most[g] ? weight : 0));
    const usable = values.filter((value) => value > CLOSED);
    const smallest = Math.min(...usable), span = Math.max(Math.max(...usable) - smallest, 1e-30);
    return values.map((value, i) =>
      value > CLOSED ? (value - smallest) / span + shift[plan.group[i]] : value);
  },
};

/** Open only items after which a full test can still satisfy the plan; else relax its bounds. */
function keepingPlan({ plan, enemies = [] }, counts, values) {
  const usable = values.map((value) => value > CLOSED);
  const tied = new Set(enemies.flat());
  const supply = counts.map(() => 0);
  usable.forEach((open, i) => {
    if (open && !tied.has(i)) supply[plan.group[i]] += 1;
  });
  for (const set of enemies) {
    const open = set.find((i) => usable[i]);
    if (open !== undefined) supply[plan.group[open]] += 1;
  }
  const sumOf = (value) => sum(counts.map((count, g) => value(count, g)));
  const least = plan.least.map((value, g) => Math.min(value, counts[g] + supply[g]));
  const most = plan.most.map((value, g) => Math.max(value, counts[g]));
  const requested = Math.max(plan.length, sum(counts) + 1);
  const length = Math.min(
    Math.max(requested, sumOf((count, g) => Math.max(count, least[g]))),
    sumOf((count, g) => Math.min(most[g], count + supply[g])),
  );
  const completable = (of) => {
    const after = (g) => counts[g] + (g === of), left = (g) => supply[g] - (g === of);
    const inBounds = counts.every((_, g) =>
      after(g) <= most[g] && after(g) + left(g) >= least[g]);
    return inBounds && sumOf((_, g) => Math.max(after(g), least[g])) <= length
      && sumOf((_, g) => Math.min(most[g], after(g) + left(g))) >= length;
  };
  const groups = counts.map((_, g) => completable(g));
  const open = usable.map((is, i) => is && groups[plan.group[i]]);
  const isSatisfied = open.some(Boolean) && length === requested
    && least.every((value, g) => value === plan.least[g])
    && most.every((value, g) => value === plan.most[g]);
  const kept = open.some(Boolean) ? values.map((v, i) => (open[i] ? v : CLOSED)) : values;
  return [kept, isSatisfied];
}

const GRIDS = new WeakMap();

/** Information of all items at the nodes, computed once for all sessions of a test. */
function onGrid({ test, items, nodes }) {
  if (!GRIDS.has(test)) GRIDS.set(test, items.map((item) =>
    Float64Array.from(nodes, (node) => item.information(node))));
  return GRIDS.get(test);
}

/** An adaptive test of one subject. */
export class Session {
  /**
   * @param test the document of irtcat.cat.offline_test.
   * @param options.prior {mean, sd} of this subject's Normal prior; by default that of the test.
   */
  constructor(test, { prior } = {}) {
    if (test.format !== "irtcat-offline-test" || test.version !== 1)
      throw new Error("The test must be a document that irtcat.cat.offline_test made (version 1).");
    const { low, high, n } = test.nodes, step = (high - low) / (n - 1);
    this.test = test;
    this.items = test.items.map((item) => MODELS[item.model](item));
    this.nodes = Array.from({ length: n }, (_, i) => (i < n - 1 ? low + i * step : high));
    const weights = this.nodes.map((_, i) =>
      Math.log((this.nodes[1] - this.nodes[0]) * (i === 0 || i === n - 1 ? 0.5 : 1)));
    const logPrior = prior
      ? this.nodes.map((node) => -0.5 * ((node - prior.mean) / prior.sd) ** 2)
      : test.log_prior;
    this.logPrior = weights.map((weight, i) => weight + logPrior[i]);
    this.logLike = this.nodes.map(() => 0);
    this.theta = prior ? Math.min(Math.max(prior.mean, low), high) : test.theta;
    this.se = prior ? prior.sd : test.se ?? Infinity;
    this.administered = new Set();
    this.scored = 0;
    this.seconds = 0;
    /** The answers so far: {item, response, seconds, theta, se, relaxed}. */
    this.answers = [];
    /** Name of the rule that ended the session; empty while it is running. */
    this.reason = "";
    this._ask(this._choose());
  }

  get isOver() {
    return this.reason !== "";
  }

  /** Id of the item to be answered; null when the session is over. */
  get asked() {
    return this.isOver ? null : this.test.items[this._at].id;
  }

  /**
   * Record the answer to the item asked.
   * @param response in the codes of the bank (0 and 1 for right/wrong items); null if skipped.
   * @param seconds time taken, which the rule "time" sums.
   * @returns id of the next item; null when the session is over.
   */
  answer(response, seconds = 0) {
    if (this.isOver) throw new Error("The session is over.");
    const { id } = this.test.items[this._at], item = this.items[this._at];
    const code = response === null ? -1 : response - this.test.first_code;
    if (response !== null && !(Number.isInteger(code) && code >= 0 && code < item.categories))
      throw new Error(`The response to ${id} must be a whole number from ${this.test.first_code} `
        + `to ${this.test.first_code + item.categories - 1}, or null. Got ${response}.`);
    if (code >= 0) {
      this.scored += 1;
      this.logLike = this.logLike.map((value, q) => value + item.logP(this.nodes[q])[code]);
      const posterior = this.posterior();
      this.theta = dot(posterior, this.nodes);
      this.se = Math.sqrt(dot(posterior, this.nodes.map((node) => (node - this.theta) ** 2)));
    }
    this.seconds += seconds;
    const { theta, se, _relaxed: relaxed } = this;
    this.answers.push({ item: id, response, seconds, theta, se, relaxed });
    const next = this._choose();
    this.reason = this._ended(next);
    if (!this.isOver) this._ask(next);
    return this.asked;
  }

  /** Posterior probabilities of the nodes. */
  posterior() {
    const logs = this.logLike.map((value, q) => value + this.logPrior[q]);
    const top = Math.max(...logs), powers = logs.map((value) => Math.exp(value - top));
    const total = sum(powers);
    return powers.map((power) => power / total);
  }

  /** Ability, its standard error, and the expected score on all items of the bank (0 to 1). */
  estimate() {
    const posterior = this.posterior(), weight = 1 / this.items.length;
    const answered = new Map(this.answers.map(({ item, response }) => [item, response]));
    const mean = this.nodes.map(() => 0), spread = this.nodes.map(() => 0);
    let observed = 0;
    this.items.forEach((item, i) => {
      const response = answered.get(this.test.items[i].id) ?? null, top = item.categories - 1;
      if (response !== null) {
        observed += (weight * (response - this.test.first_code)) / top;
        return;
      }
      this.nodes.forEach((node, q) => {
        const p = item.logP(node).map(Math.exp);
        const first = sum(p.map((value, k) => (value * k) / top));
        mean[q] += weight * first;
        spread[q] += weight ** 2
          * Math.max(sum(p.map((value, k) => value * (k / top) ** 2)) - first ** 2, 0);
      });
    });
    const centre = dot(posterior, mean);
    const variance = dot(posterior, mean.map((value, q) => (value - centre) ** 2 + spread[q]));
    return {
      theta: this.theta,
      se: this.se,
      n_items: this.answers.length,
      score: observed + centre,
      score_sd: Math.sqrt(Math.max(variance, 0)),
    };
  }

  /** The position of the next item by all rules, -1 if none is left, and whether rules held. */
  _choose() {
    const { test, administered } = this, { plan, first = [], enemies = [] } = test;
    let isSatisfied = true;
    let values = CRITERIA[test.criterion](this).map((value, i) =>
      administered.has(i) || Number.isNaN(value) ? CLOSED : Math.max(value, -1e30));
    for (const set of enemies)
      if (set.some((i) => administered.has(i))) for (const i of set) values[i] = CLOSED;
    if (plan) {
      const counts = plan.least.map(() => 0);
      for (const i of administered) counts[plan.group[i]] += 1;
      [values, isSatisfied] = keepingPlan(test, counts, values);
      for (const rule of test.content)
        values = CONTENT[rule.name](plan, counts, values, rule);
    }
    const start = first[administered.size];
    if (start !== undefined && !administered.has(start)) return [start, true];
    const best = firstBest(values);
    return [values[best] > CLOSED ? best : -1, isSatisfied];
  }

  _ask([position, isSatisfied]) {
    this._at = position;
    this._relaxed = !isSatisfied;
    this.administered.add(position);
  }

  /** Name of the rule that ends the session; empty if none does. */
  _ended([position]) {
    const { stopping, min_items: least, max_items: most } = this.test;
    if (this.scored >= least && holds(this, stopping))
      return leaves(stopping).find((rule) => holds(this, rule)).name;
    if (this.answers.length >= most) return "max_items";
    return position < 0 ? "no item left" : "";
  }
}
