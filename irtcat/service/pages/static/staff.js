// The staff's pages work without this script. It refreshes the live board, prints, fills in the
// browser's time zone, and writes times in it.

function localTimes(root) {
  const two = (n) => String(n).padStart(2, "0");
  for (const element of root.querySelectorAll("time[data-local]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    element.title = element.textContent; // in UTC
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const seconds = element.dataset.local === "second" ? `:${two(at.getSeconds())}` : "";
    element.textContent = `${day} ${two(at.getHours())}:${two(at.getMinutes())}${seconds}`;
    delete element.dataset.local;
  }
}

localTimes(document);

function announce(text) {
  const region = document.getElementById("announce");
  if (region && region.textContent !== text) region.textContent = text;
}

function refreshing(region) {
  const pause = document.querySelector("[data-pause]");
  let stopped = false;
  let alarms = region.querySelectorAll(".alarm").length;

  async function refresh() {
    if (stopped || document.hidden) return;
    const response = await fetch(region.dataset.refresh, { redirect: "error" });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
    region.replaceChildren(...page.body.childNodes);
    localTimes(region);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    const now = region.querySelectorAll(".alarm").length;
    if (now > alarms) announce(now === 1 ? "1 alarm on the board." : `${now} alarms on the board.`);
    alarms = now;
  }

  async function again() {
    try {
      await refresh();
    } catch {
      announce("The board could not be refreshed.");
    }
    setTimeout(again, 1000 * Number(region.dataset.seconds));
  }

  setTimeout(again, 1000 * Number(region.dataset.seconds));
  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      stopped = !stopped;
      pause.setAttribute("aria-pressed", String(stopped));
    });
  }
}

for (const region of document.querySelectorAll("[data-refresh]")) refreshing(region);

for (const button of document.querySelectorAll("[data-print]")) {
  button.hidden = false;
  button.addEventListener("click", () => window.print());
}

for (const field of document.querySelectorAll("[data-zone]")) {
  if (field.value === "UTC") field.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
}
