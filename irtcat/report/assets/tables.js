// Tables with sorting, search, filters and pages; rows open to show details.
const PAGES = [10, 25, 50, 100, 500];
const PHONE = 560; // below this width of a table only the columns that matter are shown

function digitsOf(column) {
  // The same number of decimals in a column: none for whole numbers, fewer for large ones.
  if (column.digits !== undefined) return column.digits === null ? undefined : column.digits;
  const values = column.v.filter(isNumber);
  const sizes = values.map(Math.abs).sort((p, q) => p - q);
  const usual = sizes[Math.floor(sizes.length / 2)];
  column.digits = values.every(Number.isInteger) ? null : usual >= 1000 ? 0 : usual >= 20 ? 1 : 3;
  return column.digits === null ? undefined : column.digits;
}

function cellText(column, row) {
  const value = column.v[row];
  if (column.kind === "num") return show(value, column.percent, digitsOf(column));
  return column.levels ? column.levels[value] : value;
}

function makeTable(spec) {
  const columns = spec.cols;
  const byKey = Object.fromEntries(columns.map((column) => [column.k, column]));
  for (const [key, name] of Object.entries(spec.curves || {})) { // a name refers to a column of the table
    if (["a", "b", "c", "d", "times"].includes(key) && typeof name === "string") spec.curves[key] = byKey[name].v;
  }
  const state = { sort: spec.sort || null, size: spec.page, page: 0, query: "", filters: {}, ranges: {}, open: new Set() };
  const long = spec.n > 10;
  let order = Array.from({ length: spec.n }, (_, i) => i);
  let searchable = null;

  const head = el("tr", {});
  const body = el("tbody", {});
  const id = newId("table");
  const caption = el("caption", { id }, spec.caption);
  const grid = el("table", { class: spec.texts ? "texts" : null }, caption, el("thead", {}, head), body);
  const scroll = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": id }, grid);
  const more = el("p", { class: "more" });
  let current = [];
  const tools = el("div", { class: "tools" });
  const status = el("span", {});
  const pager = el("div", { class: "pager" });
  const longest = (column) => (column.levels || column.v).reduce((most, text) => Math.max(most, String(text).length), 0);
  const widths = new Map(columns.filter((column) => column.kind === "text" && !column.long)
    .map((column) => [column.k, longest(column) > 30 ? "wide" : "brief"]));
  const usual = columns.filter((column) => !column.hidden && (!column.long || !rowOpens(spec)));
  const texts = spec.texts && byKey[spec.texts];
  const paper = columns.filter((column) => usual.includes(column) || column.printed);
  let base = usual; // on paper also columns that are otherwise in the details
  let shown = usual;
  const opens = () => rowOpens(spec) || shown.length < columns.length;

  for (const column of paper) {
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const classes = column.kind === "num" || column.plain ? "num" : null;
    const cell = el("th", { scope: "col", class: classes, "data-label": column.kind === "bar" ? null : column.label });
    if (column.kind === "bar") cell.append(column.mark ? `${column.label} (◆ ${byKey[column.mark].label.toLowerCase()})` : column.label);
    else cell.append(el("button", { type: "button", onclick: () => sortBy(column) }, column.label, arrow));
    column.cell = cell;
    column.arrow = arrow;
    if (column.kind === "bar") column.range = extent(column.of.map((key) => byKey[key].v).concat(column.mark ? [byKey[column.mark].v] : []));
  }

  function sortBy(column) {
    const first = column.kind === "num" && column.k !== "rank" && column.k !== "place" && column.k !== "step" ? -1 : 1;
    const same = state.sort && state.sort[0] === column.k;
    state.sort = [column.k, same ? -state.sort[1] : first];
    state.page = 0;
    update(`Sorted by ${column.label}, ${state.sort[1] > 0 ? "ascending" : "descending"}.`);
  }

  // Columns that do not fit move to the details of the rows: minor ones first, and the last of them
  // first. A phone shows the name and the two numbers that matter.
  function fit() {
    const width = scroll.clientWidth;
    if (!width) return;
    const open = opens();
    put(width < PHONE && base === usual ? phoneColumns() : base);
    const leaves = base.slice(1).map((column, i) => [column.main ? 2 : column.minor ? 0 : 1, -i, column])
      .sort((p, q) => p[0] - q[0] || p[1] - q[1]);
    while (scroll.scrollWidth > scroll.clientWidth + 1 && leaves.length && shown.length > 2) {
      const [, , column] = leaves.shift();
      if (shown.includes(column)) put(shown.filter((one) => one !== column));
    }
    if (open !== opens()) put(shown);
    const away = base.filter((column) => !shown.includes(column) && column.kind !== "bar").map((column) => column.label);
    more.textContent = away.length ? `Open a row for more: ${away.join(", ")}.` : "";
  }

  function phoneColumns() {
    const numbers = usual.slice(1).filter((column) => column.kind !== "bar");
    const main = numbers.filter((column) => column.main);
    const rest = numbers.filter((column) => !column.main && !column.minor);
    const two = main.concat(rest).slice(0, 2);
    return usual.filter((column, i) => i === 0 || two.includes(column));
  }

  function put(chosen) {
    shown = chosen;
    head.replaceChildren(...shown.map((column) => column.cell));
    fill();
  }

  function matches(row) {
    if (state.query && !searchable[row].includes(state.query)) return false;
    for (const [key, wanted] of Object.entries(state.filters)) {
      if (wanted !== "" && cellText(byKey[key], row) !== wanted) return false;
    }
    for (const [key, [low, high]] of Object.entries(state.ranges)) {
      const value = byKey[key].v[row];
      if ((isNumber(low) || isNumber(high)) && !isNumber(value)) return false;
      if ((isNumber(low) && value < low) || (isNumber(high) && value > high)) return false;
    }
    return true;
  }

  function compute() {
    if (state.query && !searchable) {
      const texts = columns.filter((column) => column.kind !== "num" && column.kind !== "bar");
      searchable = Array.from({ length: spec.n }, (_, row) =>
        texts.map((column) => cellText(column, row)).join("\n").toLowerCase());
    }
    order = Array.from({ length: spec.n }, (_, i) => i).filter(matches);
    if (!state.sort || !byKey[state.sort[0]]) return;
    const column = byKey[state.sort[0]];
    const way = state.sort[1];
    const value = column.kind === "num" ? (row) => column.v[row] : (row) => cellText(column, row);
    const compare = column.kind === "num" ? (p, q) => p - q : new Intl.Collator("en", { numeric: true }).compare;
    order.sort((p, q) => {
      const [x, y] = [value(p), value(q)];
      const [noX, noY] = [x === null || x === "", y === null || y === ""];
      if (noX || noY) return noX - noY || p - q; // missing values are last in both directions
      return way * compare(x, y) || p - q;
    });
  }

  function update(message) {
    compute();
    const last = Math.max(Math.ceil(order.length / state.size) - 1, 0);
    state.page = Math.min(state.page, last);
    for (const column of usual) {
      const sorted = state.sort && state.sort[0] === column.k;
      if (column.kind === "bar") continue;
      if (sorted) column.cell.setAttribute("aria-sort", state.sort[1] > 0 ? "ascending" : "descending");
      else column.cell.removeAttribute("aria-sort");
      column.arrow.textContent = sorted ? (state.sort[1] > 0 ? "▲" : "▼") : "";
    }
    const from = state.page * state.size;
    const rows = order.slice(from, from + state.size);
    current = rows;
    fill();
    if (scroll.scrollWidth > scroll.clientWidth + 1) fit();
    const of = order.length === spec.n ? "" : ` (of ${spec.n.toLocaleString("en")})`;
    status.textContent = rows.length
      ? `Rows ${(from + 1).toLocaleString("en")}–${(from + rows.length).toLocaleString("en")} of ${order.length.toLocaleString("en")}${of}` : "No rows";
    back.disabled = state.page === 0;
    forward.disabled = state.page === last;
    if (message) announce(`${spec.caption}: ${message} ${status.textContent}.`);
  }

  function fill() {
    body.replaceChildren(...current.flatMap(makeRow));
    if (!current.length) body.append(el("tr", {}, el("td", { class: "none", colspan: shown.length }, spec.n ? "No matching rows." : "No rows.")));
  }

  function makeRow(row) {
    const line = el("tr", { "data-row": row });
    shown.forEach((column, index) => {
      const classes = [column.kind === "num" || column.plain ? "num" : "", column.long ? "long" : "", column.kind === "flag" ? "flags" : "", widths.get(column.k) ?? ""].join(" ").trim();
      let content;
      if (column.kind === "bar") {
        const values = column.of.map((key) => byKey[key].v[row]);
        content = intervalCell(...values, column.range, column.mark ? byKey[column.mark].v[row] : undefined);
      } else {
        content = cellText(column, row);
        if (column.kind === "flag" && content) content = el("span", { class: "flag" }, content);
      }
      if (index > 0) line.append(el("td", { class: classes || null }, content));
      else {
        const name = (texts && cellText(texts, row)) || content || "—";
        line.append(el("th", { scope: "row" }, opens() ? opener(row, name) : name));
      }
    });
    return state.open.has(row) ? [line, detailRow(row)] : [line];
  }

  function opener(row, content) {
    const open = state.open.has(row);
    return el("button", { type: "button", class: "button", "aria-expanded": String(open), "data-row": row, onclick: () => {
      if (!state.open.delete(row)) state.open.add(row);
      update();
      const button = body.querySelector(`button[data-row="${row}"]`);
      if (button) button.focus({ preventScroll: true });
    } }, content);
  }

  function detailRow(row) {
    return el("tr", { class: "details" }, el("td", { colspan: shown.length }, rowDetails(spec, row)));
  }

  const back = el("button", { type: "button", class: "button", onclick: () => { state.page--; update("Page turned."); } }, "Back");
  const forward = el("button", { type: "button", class: "button", onclick: () => { state.page++; update("Page turned."); } }, "Next");
  if (long) addTools(spec, tools, state, byKey, update);
  pager.append(status);
  if (spec.n > spec.page) {
    const sizes = el("select", { onchange: (event) => { state.size = Number(event.target.value); state.page = 0; update("Page size changed."); } },
      ...PAGES.map((size) => el("option", { value: size, selected: size === spec.page }, String(size))));
    pager.append(back, forward, el("label", {}, "Rows a page", sizes));
  }
  const box = el("div", {}, long ? tools : null, scroll, more, long ? pager : null);
  let last = 0;
  new ResizeObserver(() => {
    if (scroll.clientWidth !== last) {
      last = scroll.clientWidth;
      fit();
    }
  }).observe(scroll);
  box.print = (on) => { // all rows that were found, on one page
    base = on ? paper : usual;
    if (on) Object.assign(state, { kept: [state.page, state.size], page: 0, size: Math.max(spec.n, 1) });
    else [state.page, state.size] = state.kept;
    update();
    fit();
  };
  box.open = (name) => {
    // Find a row by the name in its first column, open it, and scroll to it.
    const row = Array.from({ length: spec.n }, (_, i) => i).find((i) => cellText(columns[0], i) === name);
    if (row === undefined) return;
    Object.assign(state, { query: "", filters: {}, ranges: {} });
    tools.querySelectorAll("input,select").forEach((input) => { input.value = ""; });
    if (opens()) state.open.add(row);
    compute();
    state.page = Math.floor(order.indexOf(row) / state.size);
    update(`${name} shown.`);
    const target = body.querySelector(`tr[data-row="${row}"]`);
    if (!target) return;
    target.scrollIntoView({ block: "center" });
    const button = target.querySelector("button");
    if (button) button.focus({ preventScroll: true });
  };
  head.replaceChildren(...usual.map((column) => column.cell));
  update();
  return box;
}

function addTools(spec, tools, state, byKey, update) {
  let timer = 0;
  const changed = () => { state.page = 0; clearTimeout(timer); timer = setTimeout(() => update("Filtered."), 120); };
  const search = el("input", { type: "search", autocomplete: "off", oninput: (event) => { state.query = event.target.value.trim().toLowerCase(); changed(); } });
  tools.append(el("label", { class: "search" }, `Search ${spec.caption.toLowerCase().split(",")[0]}`, search));
  for (const key of spec.filters.filter((name) => byKey[name])) {
    const column = byKey[key];
    const levels = column.levels ? [...column.levels] : [...new Set(column.v)];
    levels.sort(new Intl.Collator("en", { numeric: true }).compare);
    const choose = el("select", { onchange: (event) => { state.filters[key] = event.target.value; changed(); } },
      el("option", { value: "" }, "all"), ...levels.filter((level) => level !== "").map((level) => el("option", { value: level }, level)));
    tools.append(el("label", {}, column.label, choose));
  }
  for (const key of spec.ranges) {
    const ends = [0, 1].map((side) => el("input", { type: "number", step: "any", placeholder: side ? "to" : "from",
      "aria-label": `${byKey[key].label}, ${side ? "at most" : "at least"}`, oninput: (event) => {
        state.ranges[key] = state.ranges[key] || [null, null];
        const value = event.target.value === "" ? null : Number(event.target.value);
        state.ranges[key][side] = value !== null && byKey[key].percent ? value / 100 : value;
        changed();
      } }));
    const label = byKey[key].label + (byKey[key].percent ? ", %" : "");
    tools.append(el("fieldset", { class: "range" }, el("legend", {}, label), el("span", {}, ...ends)));
  }
}

const rowOpens = (spec) => Boolean(spec.curves || spec.why || spec.cols.some((column) => column.long && (spec.opens || spec.texts)));

function rowDetails(spec, row) {
  const box = el("div", { class: "inside" });
  if (spec.curves) itemFigures(spec, row).forEach((one) => box.append(one));
  if (spec.why && spec.why[row]) {
    const reason = cellText(spec.cols.find((column) => column.k === "why"), row);
    box.append(el("p", { class: "why" }, reason), candidates(spec.why[row]));
  }
  const facts = el("dl", {});
  for (const column of spec.cols) {
    if (column.kind === "bar" || column.long) continue;
    const text = cellText(column, row);
    if (text !== "" && text !== "—") facts.append(el("dt", {}, column.label), el("dd", {}, text));
  }
  box.append(facts);
  for (const column of spec.cols.filter((one) => one.long)) {
    const text = cellText(column, row);
    if (text) box.append(el("p", { class: "quote" }, el("b", {}, column.label), text));
  }
  return box;
}

function itemFigures(spec, row) {
  const name = cellText(spec.cols[0], row);
  const curve = itemCurve(spec.curves, row);
  const observed = spec.curves.observed && spec.curves.observed[row];
  const series = [{ name: "model", x: curve.theta, y: curve.p }];
  if (observed) series.push({ name: "observed", x: observed.theta, y: observed.observed, low: observed.lower, high: observed.upper });
  const digits = spec.curves.letters === 1 ? 2 : 3;
  let description = `From ${curve.p[0].toFixed(digits)} to ${curve.p[curve.p.length - 1].toFixed(digits)} over the plotted abilities.`;
  if (curve.categories) {
    series[0].name = "expected score";
    if (spec.curves.unordered) { // the mean of unordered categories has no meaning
      series.shift();
      description = "The probability of each category.";
    }
    curve.categories.forEach((p, k) => series.push({ name: `category ${k}`, x: curve.theta, y: p }));
  }
  const best = curve.information.indexOf(Math.max(...curve.information));
  const y = !curve.categories ? spec.curves.label : spec.curves.unordered ? "Probability" : "Probability, or expected share";
  const first = { title: `Curve of ${name}`, x: "Ability θ", y, series, ylim: [0, 1], height: 230, describe: description };
  const second = { title: `Information of ${name}`, x: "Ability θ", y: "Information", height: 230, ylim: [0, null],
    series: [{ name: "information", x: curve.theta, y: curve.information }],
    describe: curve.information[best] > 0 ? `Greatest, ${show(curve.information[best])}, at ability ${show(curve.theta[best])}.`
      : "This item gives no information on ability." };
  return [lineFigure(first), lineFigure(second)];
}

function candidates(why) {
  const head = ["Candidate", "Value", "Rank", "Excluded by"];
  const rows = why.item.map((item, i) => el("tr", {},
    el("th", { scope: "row" }, item + (why.asked[i] ? " (chosen)" : "")),
    el("td", { class: "num" }, show(why.value[i])), el("td", { class: "num" }, show(why.rank[i])),
    el("td", {}, why.excluded[i])));
  const caption = el("caption", { id: newId("candidates") }, "The best candidates at this step");
  const grid = el("table", {}, caption,
    el("thead", {}, el("tr", {}, ...head.map((name, i) => el("th", { scope: "col", class: i === 1 || i === 2 ? "num" : null }, name)))),
    el("tbody", {}, ...rows));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": caption.id }, grid);
}
