// Figures: lines with bands, points with intervals, and bars in the cells of tables.
const COLOURS = 7;
const DASHES = ["", "6 3", "2 3"];
const MARKERS = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (x, y, r) => `M${x} ${y - r * 1.2}l${r * 1.1} ${r * 2}h${-2.2 * r}z`,
  (x, y, r) => `M${x} ${y - r * 1.3}l${r * 1.3} ${r * 1.3}l${-r * 1.3} ${r * 1.3}l${-r * 1.3} ${-r * 1.3}z`,
];
const round = (value) => Math.round(value * 10) / 10;
const GREY = { colour: "var(--dim)", dash: "", mark: null };
const look = (number, dim) => (dim ? GREY : {
  colour: `var(--s${number % COLOURS})`,
  dash: DASHES[Math.floor(number / COLOURS) % DASHES.length] || (number % COLOURS ? DASHES[number % 3] : ""),
  mark: MARKERS[number % MARKERS.length],
});

function extent(lists, fixed, log, share) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (const value of list || []) {
      if (!isNumber(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) [low, high] = log ? [1, 10] : [0, 1];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  const pad = log ? 0 : (high - low) * 0.04;
  low = low >= 0 ? Math.max(low - pad, 0) : low - pad; // no negative values where there are none
  high = high <= 1 && share ? Math.min(high + pad, 1) : high + pad;
  if (fixed && isNumber(fixed[0])) low = fixed[0];
  if (fixed && isNumber(fixed[1])) high = fixed[1];
  return [low, high];
}

function ticks(low, high, count, log, whole) {
  if (log) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const digit of [1, 2, 5]) {
        const value = digit * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    }
    const step = Math.ceil(found.length / (count + 2));
    return found.filter((_, i) => i % step === 0);
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const fit = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const step = whole ? Math.max(Math.round(fit), 1) : fit;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

const tickText = (value, percent) =>
  percent ? `${Number((100 * value).toPrecision(4))} %` : String(Number(value.toPrecision(4)));

function plane(width, height, x, y, spec) {
  // Axes, grid and scales of a figure; `at` converts values to pixels.
  const left = 52, right = 10, top = 26, bottom = 40;
  const w = Math.max(width - left - right, 60);
  const h = height - top - bottom;
  const along = (value, [low, high], log) =>
    log ? Math.log(Math.max(value, low / 10) / low) / Math.log(high / low) : (value - low) / (high - low);
  const atX = (value) => round(left + w * along(value, x, spec.logx));
  const atY = (value) => round(top + h * (1 - along(value, y, spec.logy)));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  if (spec.shade) {
    const from = Math.max(atX(spec.shade[0]), left);
    const to = Math.min(atX(spec.shade[1]), left + w);
    root.append(svg("rect", { class: "shade", x: from, y: top, width: Math.max(to - from, 0), height: h }));
  }
  const percent = spec.percent || "";
  for (const tick of ticks(...y, Math.max(3, Math.round(h / 48)), spec.logy)) {
    const position = atY(tick);
    root.append(svg("line", { class: "grid", x1: left, x2: left + w, y1: position, y2: position }));
    root.append(svg("text", { x: left - 7, y: position + 4, "text-anchor": "end" }, tickText(tick, percent.includes("y"))));
  }
  for (const tick of spec.xticks || ticks(...x, Math.max(4, Math.round(w / 75)), spec.logx, spec.whole)) {
    const position = atX(tick);
    root.append(svg("line", { class: "grid", x1: position, x2: position, y1: top, y2: top + h }));
    root.append(svg("text", { x: position, y: top + h + 17, "text-anchor": "middle" }, tickText(tick, percent.includes("x"))));
  }
  root.append(svg("line", { class: "axis", x1: left, x2: left + w, y1: top + h, y2: top + h }));
  root.append(svg("text", { class: "name", x: left + w / 2, y: height - 4, "text-anchor": "middle" }, spec.x));
  root.append(svg("text", { class: "name", x: 4, y: 12 }, spec.y));
  return { root, atX, atY, left, top, w, h };
}

function clipped(at) {
  // A group clipped to the axes.
  const id = newId("clip");
  const clip = svg("clipPath", { id });
  clip.append(svg("rect", { x: at.left - 4, y: at.top - 4, width: at.w + 8, height: at.h + 8 }));
  const group = svg("g", { "clip-path": `url(#${id})` });
  at.root.append(clip, group);
  return group;
}

function path(xs, ys, at) {
  let text = "";
  let open = false;
  xs.forEach((x, i) => {
    if (!isNumber(x) || !isNumber(ys[i])) {
      open = false;
      return;
    }
    text += `${open ? "L" : "M"}${at.atX(x)} ${at.atY(ys[i])}`;
    open = true;
  });
  return text;
}

function bandPath(one, at) {
  const usable = one.x.map((_, i) => i).filter((i) => isNumber(one.low[i]) && isNumber(one.high[i]));
  if (usable.length < 2) return "";
  const above = usable.map((i) => `${at.atX(one.x[i])} ${at.atY(one.high[i])}`);
  const below = usable.reverse().map((i) => `${at.atX(one.x[i])} ${at.atY(one.low[i])}`);
  return `M${above.join("L")}L${below.join("L")}z`;
}

function drawLines(spec, width, height) {
  const ys = spec.series.flatMap((one) => [one.y, one.low, one.high]);
  const x = extent(spec.series.map((one) => one.x), spec.xlim, spec.logx);
  const y = extent(ys, spec.ylim, spec.logy);
  const firstX = spec.series.length ? [...new Set(spec.series.flatMap((one) => one.x))].sort((p, q) => p - q) : [];
  const few = spec.marks && firstX.length <= 8 && spec.logx ? firstX : undefined;
  const at = plane(width, height, spec.marks ? x : tight(spec, x), y, { ...spec, xticks: few });
  const group = clipped(at);
  const drawn = spec.series.map((one, number) => [one, look(number, one.dim)]);
  drawn.sort(([p], [q]) => (q.dim || 0) - (p.dim || 0)); // the named lines above the grey ones
  for (const [one, style] of drawn) {
    if (one.low) group.append(svg("path", { d: bandPath(one, at), fill: style.colour, opacity: 0.14 }));
  }
  for (const [one, style] of drawn) {
    const line = svg("path", { d: path(one.x, one.y, at), fill: "none", stroke: style.colour,
      "stroke-width": one.dim ? 1.2 : 2, "stroke-dasharray": style.dash, "stroke-linejoin": "round" });
    line.append(svg("title", {}, one.name));
    group.append(line);
    if (!spec.marks || one.x.length > 80 || !style.mark) continue;
    const marks = one.x.map((v, i) => (isNumber(one.y[i]) ? style.mark(at.atX(v), at.atY(one.y[i]), 3.4) : ""));
    group.append(svg("path", { d: marks.join(""), fill: style.colour }));
  }
  return at.root;
}

function tight(spec, x) {
  const xs = spec.series.flatMap((one) => one.x).filter(isNumber);
  return xs.length > 1 && !spec.logx ? [Math.min(...xs), Math.max(...xs)] : x;
}

function drawPoints(spec, width, height, pick) {
  const percent = spec.percent || "";
  const x = extent([spec.px, spec.diagonal ? spec.py : null], spec.xlim, false, percent.includes("x"));
  const y = extent([spec.py, spec.low, spec.high, spec.diagonal ? spec.px : null], spec.ylim, false, percent.includes("y"));
  const at = plane(width, height, x, y, spec);
  const group = clipped(at);
  if (spec.diagonal) {
    const from = Math.max(x[0], y[0]);
    const to = Math.min(x[1], y[1]);
    group.append(svg("path", { class: "diagonal", d: path([from, to], [from, to], at) }));
  }
  const many = spec.px.length > 400;
  if (spec.low) {
    const bars = spec.px.map((v, i) => (isNumber(v) && isNumber(spec.low[i]) && isNumber(spec.high[i])
      ? `M${at.atX(v)} ${at.atY(spec.low[i])}V${at.atY(spec.high[i])}` : ""));
    group.append(svg("path", { d: bars.join(""), stroke: "var(--s0)", "stroke-width": many ? 1 : 1.5, opacity: many ? 0.28 : 0.4 }));
  }
  const flagged = new Set(spec.flagged || []);
  const dots = (chosen, style, size) => {
    const marks = spec.px.map((v, i) => (chosen(i) && isNumber(v) && isNumber(spec.py[i])
      ? style.mark(at.atX(v), at.atY(spec.py[i]), size) : ""));
    group.append(svg("path", { d: marks.join(""), fill: style.colour, opacity: flagged.size && style.colour.includes("s1") ? 1 : many ? 0.55 : 0.8 }));
  };
  dots((i) => !flagged.has(i), look(0), many ? 2.4 : 3.4);
  if (flagged.size) dots((i) => flagged.has(i), look(2 - 1), 4.2);
  hover(at, group, spec, pick);
  return at.root;
}

function hover(at, group, spec, pick) {
  // A tooltip names the point nearest to the mouse; a click opens its row.
  const ring = svg("circle", { class: "picked", r: 6, visibility: "hidden" });
  const tip = svg("g", { visibility: "hidden" });
  const back = svg("rect", { class: "tip", rx: 4, height: 22 });
  const words = svg("text", { class: "tiptext", y: 15, x: 8 });
  tip.append(back, words);
  at.root.append(ring, tip);
  const surface = svg("rect", { x: at.left, y: at.top, width: at.w, height: at.h, fill: "transparent", class: pick ? "pick" : "" });
  at.root.append(surface);
  let best = -1;
  const nearest = (event) => {
    const box = at.root.getBoundingClientRect();
    const scale = at.root.viewBox.baseVal.width / box.width;
    const mx = (event.clientX - box.left) * scale;
    const my = (event.clientY - box.top) * scale;
    let least = 900;
    best = -1;
    spec.px.forEach((v, i) => {
      if (!isNumber(v) || !isNumber(spec.py[i])) return;
      const dx = at.atX(v) - mx;
      const dy = at.atY(spec.py[i]) - my;
      const away = spec.tall ? dx * dx : dx * dx + dy * dy;
      if (away < least) [least, best] = [away, i];
    });
    const shown = best >= 0 ? "visible" : "hidden";
    ring.setAttribute("visibility", shown);
    tip.setAttribute("visibility", shown);
    if (best < 0) return;
    const px = at.atX(spec.px[best]);
    const py = at.atY(spec.py[best]);
    ring.setAttribute("cx", px);
    ring.setAttribute("cy", py);
    const percent = spec.percent || "";
    const name = (spec.labels || spec.names)[best];
    words.textContent = `${name.length > 44 ? name.slice(0, 43) + "…" : name}: ${show(spec.px[best], percent.includes("x"))}, ${show(spec.py[best], percent.includes("y"))}`;
    const wide = words.getComputedTextLength() + 16;
    back.setAttribute("width", wide);
    const tx = Math.min(Math.max(px - wide / 2, 0), at.left + at.w - wide);
    tip.setAttribute("transform", `translate(${Math.max(tx, 0)} ${py > 45 ? py - 34 : py + 12})`);
  };
  surface.addEventListener("mousemove", nearest);
  surface.addEventListener("mouseleave", () => {
    ring.setAttribute("visibility", "hidden");
    tip.setAttribute("visibility", "hidden");
  });
  if (pick) surface.addEventListener("click", (event) => { nearest(event); if (best >= 0) pick(spec.names[best]); });
}

function legend(series, marks) {
  const list = el("ul", { class: "legend" });
  const grey = series.filter((one) => one.dim).length;
  const named = series.filter((one) => !one.dim);
  [...named, ...(grey ? [{ name: `${grey} others`, dim: 1 }] : [])].forEach((one, number) => {
    const style = look(number, one.dim);
    const key = svg("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" });
    key.append(svg("path", { d: "M1 6H27", stroke: style.colour, "stroke-width": 2, "stroke-dasharray": style.dash }));
    if (marks && style.mark) key.append(svg("path", { d: style.mark(14, 6, 3.4), fill: style.colour }));
    list.append(el("li", {}, key, one.name));
  });
  return list;
}

function figure(spec, draw, height, extra) {
  // Redraws the figure when its width changes, so that the font size stays constant.
  const title = el("h3", { id: newId("figure") }, spec.title);
  const description = el("p", {}, spec.describe);
  const canvas = el("div", {});
  const box = el("figure", { "aria-labelledby": title.id }, el("figcaption", {}, title, description), canvas, extra);
  let last = 0;
  const paint = () => {
    const width = Math.round(canvas.clientWidth);
    if (!width || width === last) return;
    last = width;
    const drawn = draw(width, width < 480 ? Math.round(Math.max(height * 0.85, 200)) : height);
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", `${spec.title}. ${spec.y} against ${spec.x}. ${spec.describe}`);
    canvas.replaceChildren(drawn);
  };
  new ResizeObserver(paint).observe(canvas);
  return box;
}

function lineFigure(spec) {
  const extra = el("div", {});
  if (spec.series.length > 1) extra.append(legend(spec.series, spec.marks));
  if (spec.shadelabel) extra.append(el("ul", { class: "legend" }, el("li", {}, shadeKey(), spec.shadelabel)));
  extra.append(numbersBelow(spec));
  return figure(spec, (width, height) => drawLines(spec, width, height), spec.height || 280, extra);
}

function shadeKey() {
  const key = svg("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" });
  key.append(svg("rect", { class: "shade", width: 28, height: 12, stroke: "var(--line)" }));
  return key;
}

function pointFigure(spec, pick) {
  const extra = el("div", {});
  if (spec.flagged && spec.flagged.length) {
    const list = legend([{ name: "not flagged" }, { name: "flagged" }], true);
    list.querySelectorAll("path:first-child").forEach((line) => line.remove());
    extra.append(list);
  }
  const box = figure(spec, (width, height) => drawPoints(spec, width, height, pick), spec.height || 320, extra);
  extra.append(el("p", { class: "unseen" }, "The table that follows contains the same numbers."));
  return box;
}

function numbersBelow(spec) {
  // The figure as a table, built when it is opened.
  const box = el("details", {}, el("summary", {}, `${spec.title} as a table`));
  box.addEventListener("toggle", () => {
    if (!box.open || box.children.length > 1) return;
    const head = el("tr", {}, ...["Line", spec.x, spec.y, "From", "To"].map((name, i) =>
      el("th", { scope: "col", class: i ? "num" : "" }, name)));
    const body = el("tbody", {});
    for (const one of spec.series) {
      const step = Math.ceil(one.x.length / 41);
      for (let i = 0; i < one.x.length; i += step) {
        const cells = [one.x[i], one.y[i], one.low && one.low[i], one.high && one.high[i]];
        body.append(el("tr", {}, el("th", { scope: "row" }, one.name),
          ...cells.map((value) => el("td", { class: "num" }, show(value)))));
      }
    }
    const name = el("caption", {}, spec.title);
    box.append(el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": spec.title },
      el("table", {}, name, el("thead", {}, head), body)));
  });
  return box;
}

function intervalCell(low, middle, high, range, mark) {
  // The interval of one row, on an axis common to all rows.
  const at = (value) => round(4 + 168 * (Math.min(Math.max(value, range[0]), range[1]) - range[0]) / (range[1] - range[0]));
  const root = svg("svg", { viewBox: "0 0 176 22", class: "bar", "aria-hidden": "true" });
  root.append(svg("line", { class: "grid", x1: 4, x2: 172, y1: 11, y2: 11 }));
  if (isNumber(low) && isNumber(high)) {
    root.append(svg("path", { d: `M${at(low)} 11H${at(high)}M${at(low)} 7V15M${at(high)} 7V15`, stroke: "var(--s0)", "stroke-width": 2 }));
  }
  if (isNumber(middle)) root.append(svg("circle", { cx: at(middle), cy: 11, r: 4, fill: "var(--s0)" }));
  if (isNumber(mark)) root.append(svg("path", { d: MARKERS[3](at(mark), 11, 4), fill: "var(--s1)", stroke: "var(--card)" }));
  return root;
}
