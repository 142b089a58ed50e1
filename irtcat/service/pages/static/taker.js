// The test taker's page: sends its forms without leaving it, keeps an answer while the network is
// down and sends it once, and counts the time down. The server decides everything; without this
// script the same forms work.

const PREFIX = "irtcat.";
const RETRY = [1000, 2000, 4000, 8000, 15000];
const PATIENCE = 20000;

const live = document.getElementById("live");
const connection = document.getElementById("connection");

let clocks = [];
let busy = false;
let touched = false;
let polled = performance.now();
let lastExpiry = 0;

// What is kept in the browser

// Without a step for this long an attempt is abandoned: until then the server takes an answer that
// was kept, afterwards never. What takers wrote does not stay longer in a browser that others use.
const lifetime = () => 1000 * Number(document.body.dataset.keep);

const name = (part) => `${PREFIX}${document.body.dataset.storage}.${part}`;

function keep(part, value) {
  try {
    if (value === null) localStorage.removeItem(name(part));
    else localStorage.setItem(name(part), JSON.stringify({ value, expires: Date.now() + lifetime() }));
  } catch {
    // A browser may forbid storage: answers then are kept only while the page is open.
  }
}

function kept(part) {
  try {
    return JSON.parse(localStorage.getItem(name(part)))?.value ?? null;
  } catch {
    return null;
  }
}

// Other tabs may have other tests, whose answers are not sent yet.
function forgetAll() {
  try {
    for (const key of Object.keys(localStorage))
      if (key.startsWith(name(""))) localStorage.removeItem(key);
  } catch {
    // Nothing was stored.
  }
}

// Of all tests: nobody may open the page of an abandoned one again.
function forgetExpired() {
  try {
    for (const key of Object.keys(localStorage))
      if (key.startsWith(PREFIX) && !(expiryOf(localStorage.getItem(key)) > Date.now()))
        localStorage.removeItem(key);
  } catch {
    // Nothing was stored.
  }
}

function expiryOf(text) {
  try {
    return JSON.parse(text)?.expires;
  } catch {
    return undefined; // written by something else
  }
}

// Messages

function message(which) {
  const found = document.getElementById("messages").content.querySelector(`[data-name="${which}"]`);
  return found ? found.textContent : "";
}

function say(text) {
  live.textContent = "";
  // Screen readers announce changes: the same text again has to be one.
  setTimeout(() => (live.textContent = text), 60);
}

function tell(which) {
  const text = which ? message(which) : "";
  if (connection.textContent !== text) connection.textContent = text;
  connection.dataset.state = which || "";
}

// Talking with the server

async function ask(url, options = {}) {
  const response = await fetch(url, {
    credentials: "same-origin",
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE),
    ...options,
    headers: { "X-Irtcat-Page": "1", ...options.headers },
  });
  return { status: response.status, text: await response.text() };
}

const isBusy = (status) => status === 429 || status >= 500;

function pause(milliseconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    window.addEventListener("online", done, { once: true });
    function done() {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      resolve();
    }
  });
}

// Sends until there is a reply that is not "try again".
async function untilAnswered(url, options, offline) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const reply = await ask(url, options);
      if (!isBusy(reply.status)) {
        if (connection.dataset.state && connection.dataset.state !== "sending") say(message("online"));
        tell("");
        return reply;
      }
      tell("busy");
    } catch {
      tell(offline);
    }
    await pause(RETRY[Math.min(attempt, RETRY.length - 1)]);
  }
}

async function deliver(pending) {
  busy = true;
  const form = document.getElementById("answer");
  form?.setAttribute("aria-busy", "true");
  const body = new URLSearchParams(pending.body);
  const token = document.querySelector('input[name="token"]');
  if (token) body.set("token", token.value);
  // A reply within a moment needs no message.
  const slow = setTimeout(() => tell("sending"), 500);
  const offline = pending.answer ? "offline" : "waiting";
  const reply = await untilAnswered(pending.url, { method: "POST", body }, offline);
  clearTimeout(slow);
  if (connection.dataset.state === "sending") tell("");
  keep("pending", null);
  busy = false;
  show(reply.text, pending.answer && reply.status < 400 ? message("saved") : "");
}

function send(form, submitter) {
  if (busy) return;
  const data = new FormData(form);
  if (submitter?.name) data.append(submitter.name, submitter.value);
  const body = new URLSearchParams(data);
  const answer = form.id === "answer";
  if (body.has("request")) body.set("request", randomId());
  const pending = { url: form.getAttribute("action"), body: body.toString(), answer };
  if (answer) keep("pending", pending);
  deliver(pending);
}

function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(15)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}

async function refresh() {
  if (busy) return;
  busy = true;
  const reply = await untilAnswered(document.body.dataset.address, {}, "waiting");
  busy = false;
  show(reply.text, "");
}

// Showing another page

function show(html, said) {
  const next = new DOMParser().parseFromString(html, "text/html");
  if (!next.getElementById("main") || !next.body.dataset.page) {
    // The page of an error is one of its own.
    document.open();
    document.write(html);
    document.close();
    return;
  }
  for (const id of ["bar", "main", "foot", "messages"])
    document.getElementById(id).replaceWith(next.getElementById(id));
  document.title = next.title;
  document.documentElement.lang = next.documentElement.lang;
  document.documentElement.dir = next.documentElement.dir;
  for (const key of Object.keys(document.body.dataset)) delete document.body.dataset[key];
  Object.assign(document.body.dataset, next.body.dataset);
  if (!document.getElementById("error")) keep("draft", null);
  begin();
  const goal = document.getElementById("error") ?? document.querySelector("#main h1");
  window.scrollTo(0, 0);
  goal?.focus({ preventScroll: true });
  goal?.scrollIntoView({ block: "nearest" });
  if (said) say(said);
}

function begin() {
  touched = false;
  clocks = Array.from(document.querySelectorAll(".clock"), (element) => ({
    element,
    time: element.querySelector(".time"),
    scope: element.dataset.scope,
    warnings: element.dataset.warnings.split(" ").filter(Boolean).map(Number),
    end: performance.now() + 1000 * Number(element.dataset.left),
    before: Number(element.dataset.left),
  }));
  document.querySelectorAll("ol.order").forEach(makeMovable);
  document.querySelectorAll("svg.areas").forEach(makeSelectable);
  makeScrollable();
  restoreDraft();
  showAreas();
  countWords();
  if ("over" in document.body.dataset) forgetAll();
}

// Drafts: what was entered and not sent yet survives a reload

const isAnswer = (key) => /^(p\d+\.)?(response$|position\.|pairs?\.|join\.)/.test(key ?? "");

function draftOf(form) {
  return [...new FormData(form)].filter(([key]) => isAnswer(key));
}

function saveDraft() {
  const form = document.getElementById("answer");
  if (form && !busy) keep("draft", { number: form.dataset.number, fields: draftOf(form) });
}

function restoreDraft() {
  const form = document.getElementById("answer");
  const draft = kept("draft");
  if (!form || !draft || draft.number !== form.dataset.number) return;
  if (document.getElementById("error") || form.elements.namedItem("answered")) return;
  for (const field of form.elements) {
    const values = draft.fields.filter(([key]) => key === field.name).map(([, value]) => value);
    if (!isAnswer(field.name)) continue;
    if (["radio", "checkbox"].includes(field.type)) field.checked = values.includes(field.value);
    else if (values.length) field.value = values[0];
  }
  document.querySelectorAll("ol.order").forEach(sortByPositions);
  touched = draft.fields.some(([, value]) => value !== "");
}

// Entries in order: buttons that move an entry, in place of the fields for positions

function makeMovable(list) {
  list.classList.add("movable");
  for (const entry of list.children) {
    const id = entry.querySelector(".content").id;
    const buttons = document.createElement("span");
    buttons.className = "moves";
    for (const [way, step] of [["up", -1], ["down", 1]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.id = `${way}-${id}`;
      button.className = way;
      button.textContent = way === "up" ? "↑" : "↓";
      button.setAttribute("aria-label", `${message(way)}:`);
      button.setAttribute("aria-labelledby", `${button.id} ${id}`);
      button.addEventListener("click", () => move(list, entry, step, button));
      buttons.append(button);
    }
    entry.append(buttons);
  }
  sortByPositions(list);
}

function sortByPositions(list) {
  const at = (entry) => Number(entry.querySelector("select").value) || Infinity;
  const sorted = [...list.children].sort((a, b) => at(a) - at(b) || 0);
  if (sorted.some((entry) => at(entry) < Infinity)) list.append(...sorted);
  limitMoves(list);
}

function move(list, entry, step, button) {
  const other = step < 0 ? entry.previousElementSibling : entry.nextElementSibling;
  if (!other || busy) return;
  if (step < 0) other.before(entry);
  else other.after(entry);
  touched = true;
  setPositions(list);
  limitMoves(list);
  button.focus();
  const position = [...list.children].indexOf(entry) + 1;
  say(message("moved").replace("{position}", position).replace("{count}", list.children.length));
  saveDraft();
}

function limitMoves(list) {
  // aria-disabled keeps the focus, which a disabled button would lose.
  for (const entry of list.children) {
    entry.querySelector(".up")?.setAttribute("aria-disabled", String(!entry.previousElementSibling));
    entry.querySelector(".down")?.setAttribute("aria-disabled", String(!entry.nextElementSibling));
  }
}

function setPositions(list) {
  [...list.children].forEach((entry, at) => {
    entry.querySelector("select").value = String(at + 1);
  });
}

// Areas of a picture: they select their choice, or go to its field, and show what is selected

function choiceOf(area) {
  const [prefix, id] = [area.closest("svg").dataset.prefix, area.dataset.choice];
  const box = `input[name="${prefix}response"][value="${id}"]`;
  const field = `select:is([name="${prefix}pair.${id}"], [name="${prefix}position.${id}"])`;
  return document.querySelector(`#answer :is(${box}, ${field})`);
}

function makeSelectable(picture) {
  picture.classList.add("active");
  for (const area of picture.children)
    area.addEventListener("click", () => {
      const field = choiceOf(area);
      if (field?.type === "checkbox" || field?.type === "radio") field.click();
      else field?.focus();
    });
}

function showAreas() {
  for (const area of document.querySelectorAll("svg.areas > g")) {
    const field = choiceOf(area);
    const chosen = field?.matches("select") ? field.closest("ol") === null && field.value : field?.checked;
    area.classList.toggle("chosen", Boolean(chosen));
  }
}

// Formulas, tables and listings that are wider than the page are scrolled, also by keyboard

function makeScrollable() {
  for (const formula of document.querySelectorAll('.content math[display="block"]')) {
    const around = document.createElement("div");
    around.className = "wide";
    formula.replaceWith(around);
    around.append(formula);
  }
  for (const element of document.querySelectorAll(".content :is(pre, table, .wide)"))
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
}

// Words of an essay

function countWords() {
  for (const field of document.querySelectorAll("#answer textarea"))
    countWordsOf(field, field.parentElement.querySelector(".words"));
}

function countWordsOf(field, place) {
  let n = 0;
  if (globalThis.Intl?.Segmenter) {
    const segmenter = new Intl.Segmenter(field.lang || undefined, { granularity: "word" });
    for (const segment of segmenter.segment(field.value)) n += segment.isWordLike ? 1 : 0;
  } else n = field.value.split(/\s+/).filter(Boolean).length;
  place.textContent = message("words").replace("{n}", n);
}

// Time

function clockText(seconds) {
  const two = (n) => String(n).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

function tick() {
  const now = performance.now();
  let least = Infinity;
  for (const clock of clocks) {
    const exact = (clock.end - now) / 1000;
    const left = Math.max(Math.ceil(exact), 0);
    least = Math.min(least, exact);
    const text = clockText(left);
    if (clock.time.textContent !== text) clock.time.textContent = text;
    for (const at of clock.warnings)
      if (clock.before > at && left <= at) say(message(`${clock.scope}.${at}`));
    clock.element.classList.toggle("low", left <= Math.min(...clock.warnings, 60) && !isPage("break"));
    clock.before = left;
  }
  if (least <= 0.3 && now - lastExpiry > 1500 && !busy) expire(least);
  const every = 1000 * Number(document.body.dataset.poll) / (isPage("paused") ? 3 : 1);
  if (now - polled > every && document.visibilityState === "visible") poll();
}

const isPage = (name) => document.body.dataset.page === name;

// The time is over: what is entered is sent, and the server decides whether it is in time.
function expire(left) {
  const form = document.getElementById("answer");
  if (!form || !touched) {
    if (left > 0) return;
    lastExpiry = performance.now();
    say(message("over"));
    refresh();
    return;
  }
  lastExpiry = performance.now();
  touched = false;
  send(form, form.querySelector('button[value="next"]'));
}

async function poll() {
  polled = performance.now();
  if (busy || "over" in document.body.dataset) return;
  const status = document.body.dataset.status;
  try {
    const reply = await ask(`${document.body.dataset.address}/time`);
    if (busy || status !== document.body.dataset.status || isBusy(reply.status)) return;
    if (connection.dataset.state) say(message("online"));
    tell("");
    const known = reply.status === 200 ? JSON.parse(reply.text) : null;
    if (!known || known.status !== status) return refresh();
    for (const clock of clocks)
      if (known.time[clock.scope] !== null)
        clock.end = performance.now() + 1000 * known.time[clock.scope];
  } catch {
    tell("waiting");
    polled = performance.now() - 1000 * Number(document.body.dataset.poll) + 3000;
  }
}

// Events

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.hasAttribute("data-send")) return;
  event.preventDefault();
  if (touched || event.submitter?.value === "next")
    form.querySelectorAll("ol.order").forEach(setPositions);
  send(form, event.submitter);
});

// Over the greatest number of choices: of one, the new choice takes the place of the other; of more,
// it is not taken, and the hint is read out.
function limitChoices(box) {
  const most = Number(box.closest("[data-most]")?.dataset.most);
  if (!most || box.type !== "checkbox" || !box.checked) return;
  const others = [...box.form.elements].filter((it) => it.name === box.name && it.checked && it !== box);
  if (others.length < most) return;
  if (most === 1) others.forEach((it) => (it.checked = false));
  else {
    box.checked = false;
    say(message("most").replace("{n}", most));
  }
}

document.addEventListener("input", (event) => {
  if (!event.target.closest("#answer")) return;
  limitChoices(event.target);
  showAreas();
  touched = true;
  saveDraft();
  countWords();
});

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") poll();
});

window.addEventListener("online", poll);

window.addEventListener("beforeunload", (event) => {
  if (busy && connection.dataset.state === "offline") event.preventDefault();
});

forgetExpired();
begin();
const pending = kept("pending");
if (pending) deliver(pending);
setInterval(tick, 250);
