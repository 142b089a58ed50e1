/** The page around the engine: a start, one question after the other, and the results. */

const { test, title, address, questions } = JSON.parse(document.getElementById("test").textContent);
const stage = document.getElementById("stage");
const STORED = `irtcat ${test.bank} ${test.config}`;

/** An element with attributes and children; texts are never read as HTML. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children);
  return made;
}

/** The answers so far survive a reload of the page, and end with its tab. */
const storage = {
  read() {
    try {
      return JSON.parse(sessionStorage.getItem(STORED));
    } catch {
      return null;
    }
  },
  write(state) {
    try {
      if (state === null) sessionStorage.removeItem(STORED);
      else sessionStorage.setItem(STORED, JSON.stringify(state));
    } catch {
      // The browser stores nothing: a reload begins again.
    }
  },
};

let subject = "", started = "", ended = "", isSent = false, session = null, shown = 0;

function show(heading, ...children) {
  stage.replaceChildren(...children);
  document.title = heading ? `${heading} · ${title}` : title;
  stage.querySelector("[tabindex='-1']")?.focus();
  window.scrollTo(0, 0);
}

function save() {
  const answers = session.answers.map(({ response, seconds }) => ({ response, seconds }));
  storage.write({ subject, started, ended, isSent, answers });
}

function begin(stored) {
  ({ subject, started, ended, isSent } = stored);
  session = new Session(test);
  for (const { response, seconds } of stored.answers) session.answer(response, seconds);
  save();
  next();
}

function welcome() {
  const name = element("input", {
    id: "subject", name: "subject", autocomplete: "off", maxlength: 80,
    pattern: "[\\p{L}\\p{N}][\\p{L}\\p{N} ._@\\-]*",
    title: "Letters, digits, spaces and . _ @ -",
    value: new URLSearchParams(location.search).get("subject") ?? "",
  });
  const form = element("form", { onsubmit: (event) => {
    event.preventDefault();
    begin({
      subject: name.value.trim(), started: new Date().toISOString(), ended: "", isSent: false,
      answers: [],
    });
  } },
  element("p", {}, `At most ${test.max_items} questions are asked, one after the other. You cannot `
    + "go back"
    + (test.criterion === "sequential" ? "." : ", since the next one depends on your answers.")),
  element("label", { class: "field", for: "subject" }, "Your name or code (may be empty)", name),
  element("button", {}, "Start"));
  show("", form);
}

function next() {
  if (session.isOver) {
    finish();
    return;
  }
  const { prompt, choices } = questions[session.asked];
  const number = session.answers.length + 1;
  const where = `Question ${number} of at most ${test.max_items}`;
  const warning = element("p", { role: "alert" });
  const form = element("form", { novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    const chosen = form.querySelector("input:checked");
    if (!chosen) {
      warning.textContent = "Choose an answer first.";
      form.querySelector("input").focus();
      return;
    }
    session.answer(Number(chosen.dataset.response), (performance.now() - shown) / 1000);
    save();
    next();
  } },
  element("fieldset", {},
    element("legend", { tabindex: "-1" }, prompt),
    ...choices.map(({ label, response }, i) => element("label", { class: "choice" },
      element("input", { type: "radio", name: "answer", value: i, "data-response": response }),
      element("span", {}, label)))),
  warning,
  element("button", {}, "Next"));
  show(where,
    element("p", { class: "soft", id: "where" }, where),
    element("progress", { max: test.max_items, value: number - 1, "aria-labelledby": "where" }),
    form);
  shown = performance.now();
}

function results() {
  return {
    format: "irtcat-offline-result",
    version: 1,
    title,
    bank: test.bank,
    config: test.config,
    subject,
    started,
    ended,
    reason: session.reason,
    ...session.estimate(),
    answers: session.answers,
  };
}

function table() {
  const cell = (value) => /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  const columns = ["item", "response", "seconds", "theta", "se"];
  const rows = session.answers.map((answer) =>
    [subject || "subject", ...columns.map((name) => String(answer[name]))].map(cell).join(","));
  return [["subject", ...columns].join(","), ...rows, ""].join("\r\n");
}

function download(ending, type, text) {
  const link = element("a", {
    href: URL.createObjectURL(new Blob([text], { type })),
    download: `${(subject || "results").replaceAll(/[^\p{L}\p{N}_-]+/gu, "-")}.${ending}`,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function send(status, again) {
  again.hidden = true;
  if (isSent) {
    status.textContent = "The results have been sent.";
    return;
  }
  status.textContent = "Sending the results…";
  try {
    const reply = await fetch(address, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(results()),
      credentials: "omit",
    });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    isSent = true;
    save();
    status.textContent = "The results have been sent.";
  } catch (error) {
    status.textContent = `The results could not be sent (${error.message}). `
      + "Download them and pass them on, or try again.";
    again.hidden = false;
  }
}

function finish() {
  ended ||= new Date().toISOString();
  save();
  const { theta, se, score } = session.estimate();
  const facts = {
    Answers: session.answers.length,
    Ability: theta.toFixed(2).replace("-", "−"),
    "Standard error": se.toFixed(2),
    "Expected score on all items": `${(100 * score).toFixed(0)} %`,
  };
  const status = element("p", { role: "status" });
  const again = element("button", { class: "second", type: "button", hidden: true,
    onclick: () => send(status, again) }, "Send again");
  show("Finished",
    element("h2", { tabindex: "-1" }, "The test is over"),
    element("dl", {}, ...Object.entries(facts).map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    ...(address ? [status, again] : []),
    element("button", { type: "button", onclick: () =>
      download("csv", "text/csv", table()) }, "Download the answers (CSV)"),
    element("button", { type: "button", class: "second", onclick: () =>
      download("json", "application/json", JSON.stringify(results(), null, 1)) },
    "Download all (JSON)"),
    element("p", { class: "soft" }, "Nothing is kept once this tab is closed: download first."),
    element("button", { type: "button", class: "second", onclick: () => {
      storage.write(null);
      welcome();
    } }, "New test"));
  if (address) send(status, again);
}

const stored = storage.read();
if (stored) begin(stored);
else welcome();
