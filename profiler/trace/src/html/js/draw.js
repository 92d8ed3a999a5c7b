// The timeline on its canvas: where things are, and how they look.

const AXIS = 26;
const ROW = 18;
const HEAD = 20;
const SERIES = 44;
const GAP = 6;

/** The tracks from top to bottom, with the headings of their groups: { top, height, track } or { top, height, group }. */
const LAYOUT = [];
let total = AXIS;
for (const [index, track] of TRACKS.entries()) {
  if (index === 0 || TRACKS[index - 1].group !== track.group) {
    LAYOUT.push({ top: total, height: HEAD, group: track.group });
    total += HEAD;
  }
  const marks = track.points.start.length ? ROW : 0;
  const height = track.series ? SERIES : Math.max(track.rows.length * ROW + marks, ROW);
  LAYOUT.push({ top: total, height, track, marks });
  total += height + GAP;
}
const HEIGHT = total;

const PALETTE = 8;
let theme = {};
const readTheme = () => {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  theme = Object.fromEntries(["ground", "card", "ink", "soft", "rule", "grid", "shade", "focus", "found"].map((name) => [name, get(`--${name}`)]));
  theme.series = Array.from({ length: PALETTE }, (_, index) => get(`--c${index}`));
  theme.kinds = { copy: get("--copy"), memset: get("--copy"), sync: get("--idle"), overhead: get("--idle") };
  for (const kind of ["driver", "runtime", "library", "graph"]) theme.kinds[kind] = get("--call");
};

const hash = (text) => {
  let value = 7;
  for (let index = 0; index < text.length; index++) value = (value * 31 + text.charCodeAt(index)) >>> 0;
  return value;
};
const HASHES = NAMES.map((name) => hash(name) % PALETTE);
const colorOf = (row, index) =>
  theme.kinds[KINDS[row.kind[index]]] ?? COLORS[row.argument[index]] ?? theme.series[HASHES[row.name[index]]];

/** Black or white, whichever can be read on a color. */
const inks = new Map();
const inkOn = (color) => {
  if (!inks.has(color)) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
    inks.set(color, 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#14171a" : "#ffffff");
  }
  return inks.get(color);
};

/** Times at which the axis is divided, about `count` of them. */
const ticks = (from, to, count) => {
  const rough = (to - from) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((by) => by * power).find((step) => step >= rough));
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to && all.length < 100; at += step) all.push(at);
  return { all, step };
};
const tickText = (at, step) => {
  const [unit, by] = step >= 1e9 ? ["s", 1e9] : step >= 1e6 ? ["ms", 1e6] : step >= 1e3 ? ["us", 1e3] : ["ns", 1];
  const shown = at / by;
  return `${Number(shown.toFixed(3)).toLocaleString("en")} ${unit}`;
};

/**
 * Draws what `view` shows: { from, to: times; left: width of the names; width, height: of the canvas; scroll: from the
 * top; selected, hovered: slices or null; found: names that are searched for, or null; drag: times that are marked, or null }.
 */
const draw = (context, view) => {
  const { left, width, height, scroll } = view;
  const scale = (width - left) / (view.to - view.from);
  const x = (at) => left + (at - view.from) * scale;
  context.fillStyle = theme.card;
  context.fillRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(left, AXIS, width - left, height - AXIS);
  context.clip();
  const axis = ticks(view.from, view.to, (width - left) / 130);
  context.fillStyle = theme.grid;
  for (const at of axis.all) context.fillRect(Math.round(x(at)), AXIS, 1, height);
  const visible = LAYOUT.filter((item) => item.top - scroll < height && item.top + item.height - scroll > AXIS);
  for (const item of visible) {
    if (item.track) drawTrack(context, view, item, x);
    else {
      context.fillStyle = theme.shade;
      context.fillRect(left, item.top - scroll, width, item.height);
    }
  }
  if (view.selected) drawFlows(context, view, x);
  if (view.drag) {
    const [from, to] = view.drag.map(x);
    context.fillStyle = theme.focus;
    context.globalAlpha = 0.2;
    context.fillRect(Math.min(from, to), AXIS, Math.abs(to - from), height);
    context.globalAlpha = 1;
  }
  context.restore();
  drawNames(context, view, visible);
  context.fillStyle = theme.shade;
  context.fillRect(0, 0, width, AXIS);
  context.fillStyle = theme.soft;
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(`${time(view.to - view.from)} shown`, 8, AXIS / 2);
  context.save();
  context.beginPath();
  context.rect(left, 0, width - left, AXIS);
  context.clip();
  for (const at of axis.all) context.fillText(tickText(at, axis.step), x(at) + 4, AXIS / 2);
  context.restore();
};

const drawNames = (context, view, visible) => {
  const { left, width, scroll } = view;
  context.fillStyle = theme.rule;
  context.fillRect(left - 1, 0, 1, view.height);
  context.textBaseline = "middle";
  for (const item of visible) {
    const top = item.top - scroll;
    if (item.group !== undefined) {
      context.fillStyle = theme.shade;
      context.fillRect(0, top, left, item.height);
      context.fillStyle = theme.ink;
      context.font = "600 12px system-ui, sans-serif";
      context.textAlign = "left";
      context.fillText(fit(context, item.group, width - 16), 8, top + item.height / 2);
      continue;
    }
    context.fillStyle = theme.soft;
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillText(fit(context, item.track.name, left - 24), 16, top + Math.min(item.height, ROW) / 2);
    if (item.track.series) {
      const { unit, highest } = item.track.series;
      context.font = "11px system-ui, sans-serif";
      context.fillText(`up to ${amount(highest, unit)}`, 16, top + item.height - 10);
    }
    context.fillStyle = theme.rule;
    context.fillRect(0, top + item.height + GAP / 2, width, 1);
  }
};

/** A text that fits a width, its end cut off. */
const fit = (context, text, width) => {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, Math.min(text.length, Math.ceil(width))];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? `${text.slice(0, low)}…` : "";
};

const drawTrack = (context, view, item, x) => {
  const top = item.top - view.scroll;
  if (item.track.series) return drawSeries(context, view, item, x);
  if (item.marks) drawPoints(context, view, item.track.points, top, x);
  item.track.rows.forEach((row, place) => {
    const y = top + item.marks + place * ROW;
    if (y < view.height && y + ROW > AXIS) drawRow(context, view, row, y, x);
  });
};

const isDimmed = (view, row, index) => view.found && !view.found.has(row.name[index]);

const drawRow = (context, view, row, y, x) => {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "middle";
  let drawn = -1;
  const last = after(row.start, view.to);
  for (let index = after(row.end, view.from); index < last; index++) {
    const [from, to] = [x(row.start[index]), x(row.end[index])];
    const begin = Math.max(from, view.left - 2);
    const width = Math.max(Math.min(to, view.width + 2) - begin, 1);
    const dimmed = isDimmed(view, row, index);
    // What is as narrow as what stands there already would not be seen.
    if (begin + width <= drawn && (dimmed || !view.found)) continue;
    drawn = Math.floor(begin + width);
    const color = colorOf(row, index);
    context.globalAlpha = dimmed ? 0.18 : 1;
    context.fillStyle = color;
    const inset = width > 3 ? 0.5 : 0;
    context.fillRect(begin, y + 1, width - inset, ROW - 2);
    if (row.joined.has(index)) hatch(context, begin, y + 1, width - inset, ROW - 2);
    if (width > 28) {
      context.fillStyle = inkOn(color);
      context.fillText(fit(context, NAMES[row.name[index]], width - 8), begin + 4, y + ROW / 2 + 0.5);
    }
    context.globalAlpha = 1;
  }
  for (const [slice, color] of [
    [view.hovered, theme.soft],
    [view.selected, theme.ink],
  ]) {
    if (slice?.row !== row) continue;
    const [from, to] = [x(row.start[slice.index]), x(row.end[slice.index])];
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.strokeRect(Math.max(from, view.left - 4), y + 1, Math.max(Math.min(to, view.width + 4) - Math.max(from, view.left - 4), 2), ROW - 2);
  }
};

const hatch = (context, left, top, width, height) => {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = theme.card;
  context.globalAlpha *= 0.45;
  context.lineWidth = 1.5;
  context.beginPath();
  for (let at = left - height - (left % 7); at < left + width; at += 7) {
    context.moveTo(at, top + height);
    context.lineTo(at + height, top);
  }
  context.stroke();
  context.restore();
};

const drawPoints = (context, view, row, y, x) => {
  let drawn = -9;
  const last = after(row.start, view.to);
  for (let index = after(row.end, view.from - 1); index < last; index++) {
    const at = x(row.start[index]);
    const dimmed = isDimmed(view, row, index);
    const chosen = same(view.selected, { row, index }) || same(view.hovered, { row, index });
    if (at - drawn < 2 && !chosen && (dimmed || !view.found)) continue;
    drawn = at;
    context.globalAlpha = dimmed ? 0.18 : 1;
    context.fillStyle = chosen ? theme.ink : KINDS[row.kind[index]] === "wait" ? theme.found : colorOf(row, index);
    context.beginPath();
    context.moveTo(at, y + ROW - 3);
    context.lineTo(at - 5, y + 4);
    context.lineTo(at + 5, y + 4);
    context.fill();
    context.globalAlpha = 1;
  }
};

const drawSeries = (context, view, item, x) => {
  const { time: times, value: values, highest, lowest } = item.track.series;
  const [top, bottom] = [item.top - view.scroll + 3, item.top - view.scroll + item.height - 1];
  const y = (value) => bottom - ((value - lowest) / (highest - lowest || 1)) * (bottom - top);
  const first = Math.max(after(times, view.from) - 1, 0);
  const last = after(times, view.to);
  if (first >= times.length || last === 0) return;
  context.beginPath();
  context.moveTo(x(times[first]), y(0));
  for (let index = first; index < last; index++) {
    if (index > first) context.lineTo(x(times[index]), y(values[index - 1]));
    context.lineTo(x(times[index]), y(values[index]));
  }
  const end = last < times.length ? view.to : Math.max(times[times.length - 1], Math.min(view.to, SPAN));
  context.lineTo(x(end), y(values[last - 1]));
  context.lineTo(x(end), y(0));
  context.fillStyle = theme.series[0];
  context.globalAlpha = 0.3;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = theme.series[0];
  context.lineWidth = 1;
  context.stroke();
};

/** The middle of a slice's row from the top of all tracks. */
const middleOf = (row) => {
  const item = LAYOUT.find((item) => item.track === row.track);
  return item.top + (row.track.points === row ? 0 : item.marks + row.track.rows.indexOf(row) * ROW) + ROW / 2;
};

/** The most lines from a launch, which of a graph may lead to thousands. */
const MAX_LINES = 200;
const drawFlows = (context, view, x) => {
  const { selected } = view;
  const others = relatives(selected).slice(0, MAX_LINES);
  context.strokeStyle = theme.ink;
  context.lineWidth = 1.5;
  for (const other of others) {
    // From the end of the call to the beginning of the work.
    const [call, work] = isWork(selected) ? [other, selected] : [selected, other];
    if (isWork(call) === isWork(work)) continue;
    const [x1, x2] = [x(call.row.end[call.index]), x(work.row.start[work.index])];
    const [y1, y2] = [middleOf(call.row) - view.scroll, middleOf(work.row) - view.scroll];
    const bend = Math.min(Math.max(Math.abs(x2 - x1) / 2, 12), 80);
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    context.stroke();
    context.beginPath();
    context.arc(x2, y2, 3, 0, 2 * Math.PI);
    context.fillStyle = theme.ink;
    context.fill();
  }
};

/** What is drawn at a point of the canvas, or null. */
const sliceAt = (view, px, py) => {
  if (px < view.left || py < AXIS) return null;
  const item = LAYOUT.find((item) => item.track && py + view.scroll >= item.top && py + view.scroll < item.top + item.height);
  if (!item || item.track.series) return null;
  const scale = (view.to - view.from) / (view.width - view.left);
  const at = view.from + (px - view.left) * scale;
  const below = py + view.scroll - item.top;
  const points = below < item.marks;
  const row = points ? item.track.points : item.track.rows[Math.floor((below - item.marks) / ROW)];
  if (!row) return null;
  const slack = scale * (points ? 6 : 2);
  let best = null;
  let nearest = Infinity;
  for (let index = after(row.end, at - slack - 1); index < row.start.length && row.start[index] <= at + slack; index++) {
    const away = Math.max(row.start[index] - at, at - row.end[index], 0);
    if (away <= slack && away < nearest) [best, nearest] = [{ row, index }, away];
  }
  return best;
};
