"use strict";
// Small helpers: elements, numbers, and the curves of items.
const SVG = new DOMParser().parseFromString("<svg/>", "text/html").querySelector("svg").namespaceURI;

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

let counter = 0;
const newId = (stem) => `${stem}-${++counter}`;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function show(value, percent, digits) {
  if (!isNumber(value)) return "—";
  if (percent) return `${(100 * value).toFixed(1)}\u00a0%`;
  if (digits !== undefined) {
    const least = 10 ** -digits;
    if (value !== 0 && Math.abs(value) < least / 2) return value > 0 ? `<${least}` : `>−${least}`;
    return value.toFixed(Math.abs(value) >= 1000 ? 0 : digits); // the values have four significant digits
  }
  if (Number.isInteger(value)) return Math.abs(value) >= 10000 ? value.toLocaleString("en") : String(value);
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  if (size >= 100) return value.toFixed(1);
  if (size >= 0.001) return value.toFixed(3);
  return value.toPrecision(2);
}

function announce(text) {
  document.getElementById("live").textContent = text;
}

// Item curves --------------------------------------------------------------------------------

// P = c + (d - c) / (1 + exp(-a (theta - b)));  I = a² (P - c)² (d - P)² / ((d - c)² P (1 - P))
function logistic(a, b, c, d, theta) {
  const s = 1 / (1 + Math.exp(-a * (theta - b)));
  const p = c + (d - c) * s;
  const slope = a * (d - c) * s * (1 - s);
  const spread = p * (1 - p);
  return [p, spread > 0 ? (slope * slope) / spread : 0];
}

function unpack(text, curves) {
  const letterIndex = new Map([...curves.alphabet].map((letter, i) => [letter, i]));
  const base = curves.alphabet.length;
  const values = [];
  if (curves.letters === 1) return [...text].map((letter) => letterIndex.get(letter) / (base - 1));
  for (let i = 0; i < text.length; i += 2) {
    values.push((letterIndex.get(text[i]) * base + letterIndex.get(text[i + 1])) / (base * base - 1));
  }
  return values;
}

function itemCurve(curves, i) {
  if (curves.kind === "nodes") {
    const information = unpack(curves.i[i], curves).map((v) => v * curves.most[i]);
    const categories = curves.categories && curves.categories[i] && curves.categories[i].map((t) => unpack(t, curves));
    return { theta: curves.theta, p: unpack(curves.p[i], curves), information, categories };
  }
  const theta = Array.from({ length: 121 }, (_, j) => curves.mean + curves.sd * (j / 15 - 4));
  const flat = curves.flat && curves.flat[i];
  if (flat !== undefined) return { theta, p: theta.map(() => flat), information: theta.map(() => 0) };
  const c = curves.c ? curves.c[i] : 0;
  const d = curves.d ? curves.d[i] : 1;
  const both = theta.map((t) => logistic(curves.a[i], curves.b[i], c, d, t));
  return { theta, p: both.map((v) => v[0]), information: both.map((v) => v[1] * (curves.times ? curves.times[i] : 1)) };
}
