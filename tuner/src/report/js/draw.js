// Numbers, scales and the frame of a plot.

const SVG = "http://www.w3.org/2000/svg";
const svg = (tag, attributes, ...children) => furnish(document.createElementNS(SVG, tag), attributes, children);

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** A number with three to four significant digits and no more decimals than that. */
const short = (value) => {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e9)) return value.toExponential(2);
  if (size >= 10000) return Math.round(value).toLocaleString("en");
  return value
    .toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3)
    .replace(/(\.\d*?)0+$/, "$1")
    .replace(/\.$/, "");
};
const us = (value) => (known(value) ? value.toFixed(value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3) : "–");
const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
/** An element count: 2²⁰ for powers of two from a thousand on. */
const size = (n) => {
  const power = Math.log2(n);
  if (n >= 1024 && Number.isInteger(power)) return `2${[...String(power)].map((digit) => SUPERSCRIPT[digit]).join("")}`;
  return n.toLocaleString("en").replaceAll(",", "\u202f");
};
const bytes = (count) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${Number(count.toFixed(1))} ${units[unit]}`;
};
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const isUsable = (record) => record.outcome === "correct" && known(record.median) && record.median > 0;
const fastest = (records) => records.reduce((a, b) => (b.median < a.median ? b : a));
/** What stands for usable records of one case: its best (what a tuning run chose, if one did), else their fastest. */
const bestOf = (records) => records.find((record) => record.is_best) ?? fastest(records);
const configuration = (record) =>
  record.configuration.map(([axis, value]) => `${axis}=${value}`).join(" ") || "no axes";
const valueOf = (record, axis) => record.configuration.find(([name]) => name === axis)?.[1];
const { compare } = new Intl.Collator("en", { numeric: true });
/** Numbers by value, text by its alphabet and the numbers in it. */
const natural = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : compare(String(a), String(b)));

/** Groups items by a key, in the order in which keys come up. */
const groupBy = (items, key) => {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (groups.has(name)) groups.get(name).push(item);
    else groups.set(name, [item]);
  }
  return [...groups.values()];
};
const seriesKey = (record) => JSON.stringify([record.run, record.kernel, record.dtype, record.mode ?? "cold"]);
const caseKey = (record) => JSON.stringify([record.run, record.kernel, record.dtype, record.mode ?? "cold", record.n]);
const runName = (record) => (DATA.runs.length > 1 ? `, run ${record.run + 1}` : "");
const seriesName = (record) => `${record.kernel} ${record.dtype}, ${record.mode ?? "not timed"}${runName(record)}`;
const caseName = (record) =>
  `${record.kernel} ${record.dtype} ${size(record.n)}, ${record.mode ?? "not timed"}${runName(record)}`;

/** Figures at which an axis is divided, about `count` of them. */
const steps = (low, high, count) => {
  const rough = (high - low) / Math.max(count, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  const all = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high * (1 + 1e-9) && all.length < 50; index++)
    all.push(Number((index * step).toPrecision(12)));
  return all;
};
const linear = (low, high, from, to) => {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.ticks = (count) => steps(low, high, count);
  return scale;
};
const logarithmic = (low, high, from, to) => {
  const span = Math.log(high / low) || 1;
  const scale = (value) => from + (Math.log(value / low) / span) * (to - from);
  scale.ticks = () => {
    const all = [];
    for (let power = Math.ceil(Math.log10(low) - 1e-9); 10 ** power <= high * 1.001; power++) all.push(10 ** power);
    return all;
  };
  return scale;
};

let serial = 0;
/**
 * The frame of a plot: axes, grid, title and text alternative. `x` and `y` make scales from the ends they are given.
 * Returns the svg element, the group to draw into and both scales.
 */
const frame = ({ width, height = 280, left = 56, right = 16, top = 12, bottom = 44, x, y, title, text }) => {
  const id = `plot-${++serial}`;
  const area = { left, top, right: Math.max(width - right, left + 40), bottom: height - bottom };
  const sx = x.scale(area.left, area.right);
  const sy = y.scale(area.bottom, area.top);
  const marks = svg("g", { class: "marks" });
  const grid = svg("g", { class: "grid", "aria-hidden": "true" });
  const room = (area.right - area.left) / 60;
  let last = -Infinity;
  for (const value of x.ticks ? x.ticks : sx.ticks(room)) {
    const at = sx(value);
    grid.append(svg("line", { x1: at, x2: at, y1: area.top, y2: area.bottom }));
    if (at - last < 42) continue;
    last = at;
    grid.append(svg("text", { x: at, y: area.bottom + 16, "text-anchor": "middle" }, (x.format ?? short)(value)));
  }
  for (const value of y.ticks ? y.ticks : sy.ticks(5)) {
    const at = sy(value);
    grid.append(svg("line", { x1: area.left, x2: area.right, y1: at, y2: at }));
    grid.append(svg("text", { x: area.left - 8, y: at + 4, "text-anchor": "end" }, (y.format ?? short)(value)));
  }
  if (x.label)
    grid.append(
      svg("text", { class: "label", x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label),
    );
  if (y.label) {
    const middle = (area.top + area.bottom) / 2;
    grid.append(
      svg(
        "text",
        { class: "label", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` },
        y.label,
      ),
    );
  }
  const root = svg(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-labelledby": `${id}-t ${id}-d`,
    },
    svg("title", { id: `${id}-t` }, title),
    svg("desc", { id: `${id}-d` }, text),
    grid,
    marks,
  );
  return { root, marks, sx, sy, area };
};
/** A mark with a tooltip. */
const mark = (tag, attributes, tip) => svg(tag, attributes, svg("title", {}, tip));
const line = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
/** An entry of a legend: a swatch that shows the mark as it is drawn, and what it means. */
const key = (kind, text) => {
  const shape =
    {
      best: () => [
        svg("path", { class: "best line", d: "M1 6H25" }),
        svg("circle", { class: "best", cx: 13, cy: 6, r: 4 }),
      ],
      default: () => [
        svg("path", { class: "default line", d: "M1 6H25" }),
        svg("rect", { class: "default", x: 9.5, y: 2.5, width: 7, height: 7 }),
      ],
    }[kind] ?? (() => [svg("path", { class: `${kind} line`, d: "M1 6H25" })]);
  return el("li", {}, svg("svg", { width: 26, height: 12, "aria-hidden": "true" }, ...shape()), text);
};
const figure = (title, legend, notes, draw) => {
  const host = el("div", { class: "canvas" });
  const node = el(
    "figure",
    {},
    el("h3", { title }, title),
    host,
    el(
      "figcaption",
      {},
      legend.length ? el("ul", { class: "legend" }, legend) : null,
      notes ? el("p", {}, notes) : null,
    ),
  );
  node.room = () => Math.max(Math.floor(host.clientWidth) || 600, 240);
  node.draw = (width) => host.replaceChildren(draw(width));
  return node;
};
/** Draws figures anew. All widths are read before anything is drawn, so that the page is laid out once. */
const redraw = (figures) => {
  const widths = figures.map((figure) => figure.room());
  figures.forEach((figure, index) => figure.draw(widths[index]));
};
/** A list of choices; `change` gets the place of the one that was chosen. */
const choice = (label, names, change, chosen = 0) => {
  const select = el(
    "select",
    { onchange: () => change(select.selectedIndex) },
    names.map((name, index) => el("option", { selected: index === chosen }, cut(name, 80))),
  );
  return el("label", {}, `${cut(label, 40)} `, select);
};
