// The page: draws every block in its container.
function factList(facts) {
  return el("dl", { class: "facts" }, ...Object.entries(facts).map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function choose(spec, section) {
  const container = el("div", {});
  const put = (number) => container.replaceChildren(...spec.options[number].blocks.map((block) => draw(block, section)));
  const id = newId("choose");
  const select = el("select", { id, onchange: (event) => put(Number(event.target.value)) },
    ...spec.options.map((option, i) => el("option", { value: i }, option.label)));
  put(0);
  const label = el("label", { for: id }, spec.label, select);
  return el("div", {}, spec.options.length > 1 ? el("div", { class: "tools" }, label) : null, container);
}

function filledFrom(spec, section) {
  // Coordinates of points that are in a table of the same section are read from it.
  if (!spec.of) return spec;
  const columns = section.blocks.find((one) => one.name === spec.opens).cols;
  const [x, y] = spec.of.map((key) => columns.find((column) => column.k === key).v);
  const texts = columns.find((column) => column.k === section.blocks.find((one) => one.name === spec.opens).texts);
  const names = Array.from(x, (_, i) => cellText(columns[0], i));
  const labels = texts && names.map((name, i) => cellText(texts, i) || name);
  const [low, high] = spec.clip;
  return { ...spec, px: x.map((v) => (isNumber(v) ? Math.min(Math.max(v, low), high) : v)), py: y, names, labels };
}

function draw(block, section) {
  const pick = block.opens ? (name) => section.tables && section.tables[block.opens] && section.tables[block.opens].open(name) : null;
  switch (block.t) {
    case "table": {
      const table = makeTable(block);
      tables.push(table);
      if (block.name) (section.tables = section.tables || {})[block.name] = table;
      return el("div", { class: "block" }, table);
    }
    case "lines": return el("div", { class: "block" }, lineFigure(block));
    case "points": return el("div", { class: "block" }, pointFigure(filledFrom(block, section), pick));
    case "row": return el("div", { class: "row" }, ...block.blocks.map((one) => draw(one, section)));
    case "choice": return choose(block, section);
    case "facts": return factList(block.facts);
    default: throw new Error(`no such block: ${block.t}`);
  }
}

const tables = []; // all, to show them whole on paper
const blocks = JSON.parse(document.getElementById("data").textContent);
const shared = blocks.map((own) => ({ blocks: own }));
for (const container of document.querySelectorAll("[data-at]")) {
  const [section, number] = container.dataset.at.split(",").map(Number);
  container.append(draw(blocks[section][number], shared[section]));
}

for (const [name, on] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(name, () => tables.filter((table) => table.isConnected).forEach((table) => table.print(on)));
}
