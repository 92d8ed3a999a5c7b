// Heat map of two axes, roofline, shares of the probe, distribution of samples.

/** A list of choices; `change` gets the place of the one that was chosen. */
const choice = (label, names, change, chosen = 0) => {
  const select = el("select", { onchange: () => change(select.selectedIndex) }, names.map((name, index) => el("option", { selected: index === chosen }, cut(name, 80))));
  return el("label", {}, `${cut(label, 40)} `, select);
};

// Viridis at even steps: rises in lightness, so that it reads without colour and in print, too.
const SHADES = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6dcd59", "#b4de2c", "#fde725"];
const shade = (share) => SHADES[Math.min(Math.max(Math.floor(share * SHADES.length), 0), SHADES.length - 1)];
const isDark = (share) => share * SHADES.length < 5;

const heatMap = (records, across, down, fixed) => {
  const chosen = records.filter((record) => fixed.every(([axis, value]) => String(valueOf(record, axis)) === value));
  const values = (axis) => [...new Map(chosen.map((record) => [String(valueOf(record, axis)), valueOf(record, axis)])).values()].filter((value) => value !== undefined).sort(natural);
  const [columns, rows] = [values(across), values(down)];
  const cells = groupBy(chosen, (record) => JSON.stringify([valueOf(record, across), valueOf(record, down)])).map((group) => {
    const usable = group.filter(isUsable);
    return { group, record: usable.length ? usable.reduce((a, b) => (b.median < a.median ? b : a)) : null };
  });
  const measured = cells.filter((cell) => cell.record).map((cell) => cell.record);
  const title = `${caseName(records[0])}: ${down} × ${across}`;
  if (!measured.length) return figure(title, [], `No right result to draw: ${plural(chosen.length, "record")}, see the table.`, () => el("p", { class: "nothing" }, "No right result"));
  const { unit, of } = rate(measured);
  const best = measured.reduce((a, b) => (b.median < a.median ? b : a));
  const worst = measured.reduce((a, b) => (b.median > a.median ? b : a));
  const [low, high] = [of(worst), of(best)];
  const share = (record) => (high > low ? (of(record) - low) / (high - low) : 1);
  const wrong = cells.filter((cell) => !cell.record).length;
  const text = `Fastest: ${short(high)} ${unit} with ${configuration(best)}. Slowest: ${short(low)} ${unit} with ${configuration(worst)}.${wrong ? ` ${plural(wrong, "cell")} without a right result, crossed out.` : ""}`;
  const ramp = el("li", { class: "ramp" }, `${short(low)} `, svg("svg", { width: 120, height: 12, "aria-hidden": "true" }, SHADES.map((fill, index) => svg("rect", { x: index * 12, y: 0, width: 12, height: 12, fill }))), ` ${short(high)} ${unit}`);
  return figure(title, [ramp], text, (width) => {
    const left = Math.min(90, 20 + 7 * Math.max(...rows.map((value) => cut(String(value), 11).length)) + 16);
    const column = Math.min((width - left - 8) / columns.length, 150);
    const [cellHeight, top] = [34, 24];
    const height = top + rows.length * cellHeight + 46;
    const id = `hatch-${++serial}`;
    const marks = svg("g", { class: "marks" });
    const root = svg(
      "svg",
      { class: "plot heat", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": `${id}-t ${id}-d` },
      svg("title", { id: `${id}-t` }, title),
      svg("desc", { id: `${id}-d` }, text),
      svg("defs", {}, svg("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: "hatch-ground", width: 8, height: 8 }), svg("rect", { class: "hatch", width: 2.5, height: 8 }))),
      marks,
    );
    columns.forEach((value, index) => root.append(svg("text", { class: "tick", x: left + (index + 0.5) * column, y: top - 8, "text-anchor": "middle" }, cut(String(value), Math.max(Math.floor(column / 7), 2)))));
    rows.forEach((value, index) => root.append(svg("text", { class: "tick", x: left - 8, y: top + (index + 0.5) * cellHeight + 4, "text-anchor": "end" }, cut(String(value), 11))));
    root.append(svg("text", { class: "label", x: left + (columns.length * column) / 2, y: height - 22, "text-anchor": "middle" }, cut(`${across} →`, 40)));
    const middle = top + (rows.length * cellHeight) / 2;
    root.append(svg("text", { class: "label", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, cut(`← ${down}`, Math.max(Math.floor((rows.length * cellHeight) / 7), 6))));
    for (const { group, record } of cells) {
      const place = [columns.findIndex((value) => value === valueOf(group[0], across)), rows.findIndex((value) => value === valueOf(group[0], down))];
      if (place.includes(-1)) continue;
      const [x, y] = [left + place[0] * column, top + place[1] * cellHeight];
      const box = { x: x + 1, y: y + 1, width: Math.max(column - 2, 1), height: cellHeight - 2 };
      if (!record) {
        marks.append(mark("rect", { ...box, class: "cell bad", fill: `url(#${id})` }, `${configuration(group[0])}: ${group[0].outcome} ${group[0].problem}`));
        if (column >= 44) marks.append(svg("text", { class: "bad", x: x + column / 2, y: y + cellHeight / 2 + 4, "text-anchor": "middle" }, cut(group[0].outcome, Math.floor(column / 7))));
        continue;
      }
      const tip = `${configuration(record)}\n${short(of(record))} ${unit}, ${us(record.median)} µs${group.length > 1 ? `\nbest of ${group.length}` : ""}`;
      marks.append(mark("rect", { ...box, class: record === best ? "cell winner" : "cell", fill: shade(share(record)) }, tip));
      if (column >= 40) marks.append(svg("text", { class: isDark(share(record)) ? "value light" : "value", x: x + column / 2, y: y + cellHeight / 2 + 4, "text-anchor": "middle" }, short(of(record))));
    }
    return root;
  });
};

const heatSection = () => {
  const cases = groupBy(DATA.records, caseKey).filter((group) => group[0].configuration.length >= 2);
  if (!cases.length) return null;
  const controls = el("div", { class: "controls" });
  const host = el("div", { class: "figures one" });
  const section = el("section", { id: "heat" }, el("h2", {}, "Configurations of one case"), controls, host);
  // The case with the most to see is shown first; of several the last, as large sizes come last.
  let current = cases.indexOf(cases.reduce((a, b) => (b.length >= a.length ? b : a)));
  let [across, down] = [null, null];
  const fixed = new Map();
  let plot = null;
  const build = () => {
    const records = cases[current];
    const axes = [...new Set(records.flatMap((record) => record.configuration.map(([axis]) => axis)))];
    if (!axes.includes(across)) across = axes.includes("block") ? "block" : axes[0];
    if (!axes.includes(down) || down === across) down = axes.includes("items") && across !== "items" ? "items" : axes.find((axis) => axis !== across);
    const rest = axes.filter((axis) => axis !== across && axis !== down);
    const held = rest.filter((axis) => fixed.has(axis) && records.some((record) => String(valueOf(record, axis)) === fixed.get(axis)));
    controls.replaceChildren(
      choice("Case", cases.map((group) => caseName(group[0])), (index) => { current = index; build(); }, current),
      choice("Across", axes, (index) => { if (axes[index] === down) down = across; across = axes[index]; build(); }, axes.indexOf(across)),
      choice("Down", axes, (index) => { if (axes[index] === across) across = down; down = axes[index]; build(); }, axes.indexOf(down)),
      ...rest.map((axis) => {
        const values = [...new Set(records.map((record) => String(valueOf(record, axis))))].sort(natural);
        return choice(axis, ["best of all", ...values], (index) => { index ? fixed.set(axis, values[index - 1]) : fixed.delete(axis); build(); }, held.includes(axis) ? values.indexOf(fixed.get(axis)) + 1 : 0);
      }),
    );
    plot = heatMap(records, across, down, held.map((axis) => [axis, fixed.get(axis)]));
    host.replaceChildren(plot);
    if (host.isConnected) plot.redraw();
  };
  // What was chosen keeps the focus although the choices are made anew.
  controls.addEventListener("change", (event) => {
    const name = event.target.parentElement.firstChild.textContent;
    [...controls.children].find((label) => label.firstChild.textContent === name)?.querySelector("select").focus();
  });
  build();
  section.redraw = () => plot.redraw();
  return section;
};

/** GFLOP/s over arithmetic intensity, below what memory and arithmetic allow. */
const rooflinePlot = (run, records) => {
  const { device, probes } = DATA.runs[run];
  const points = records.filter((record) => record.flops > 0 && record.bytes > 0);
  const intensity = (record) => record.flops / record.bytes;
  const reached = (record) => record.flops / record.median / 1e3;
  const bandwidth = Math.max(0, ...probes.map((probe) => probe.gbps)) || null;
  const peak = Math.max(0, ...probes.map((probe) => probe.gflops)) || null;
  const roofs = [["probe", bandwidth], ["sheet", device.memory_gbps]].filter(([, gbps]) => known(gbps));
  const xs = points.map(intensity);
  const [low, high] = [Math.min(...xs) / 4, Math.max(...xs, peak && bandwidth ? peak / bandwidth : 0) * 4];
  const roof = (gbps, x) => Math.min(gbps * x, peak ?? Infinity);
  const ys = [...points.map(reached), ...roofs.flatMap(([, gbps]) => [roof(gbps, low), roof(gbps, high)])];
  const [bottom, top] = [Math.min(...ys) / 2, Math.max(...ys) * 2];
  const legend = [key("best", "best of each case")];
  if (bandwidth) legend.push(key("probe", `memory, measured: ${short(bandwidth)} GB/s`));
  if (known(device.memory_gbps)) legend.push(key("sheet", `memory, data sheet: ${short(device.memory_gbps)} GB/s`));
  const notes = peak ? `Arithmetic as measured by the probe: ${short(peak)} GFLOP/s.` : "The most GFLOP/s were not measured.";
  const title = `Roofline${DATA.runs.length > 1 ? `, run ${run + 1}` : ""}`;
  return figure(title, legend, notes, (width) => {
    const { root, marks, sx, sy, area } = frame({
      width,
      title,
      text: `GFLOP/s over floating-point operations a byte for ${plural(points.length, "case")}.`,
      x: { scale: (from, to) => logarithmic(low, high, from, to), label: "FLOP a byte" },
      y: { scale: (from, to) => logarithmic(bottom, top, from, to), label: "GFLOP/s" },
    });
    for (const [kind, gbps] of roofs) {
      const knee = peak && peak / gbps > low && peak / gbps < high ? [peak / gbps] : [];
      const ends = [low, ...knee, high].map((x) => [sx(x), sy(roof(gbps, x))]);
      marks.append(mark("path", { class: `${kind} line`, d: line(ends) }, `${kind === "probe" ? "measured" : "data sheet"}: ${short(gbps)} GB/s`));
    }
    for (const record of points)
      marks.append(mark("circle", { class: "best", cx: sx(intensity(record)), cy: Math.min(sy(reached(record)), area.bottom), r: 4.5 }, `${caseName(record)}: ${short(reached(record))} GFLOP/s, ${short(intensity(record))} FLOP a byte\n${configuration(record)}`));
    return root;
  });
};

/** Percent of the probe (or of the data sheet) over size, a line for each kernel and type. */
const sharePlot = (run, records) => {
  const ofProbe = records.some((record) => known(record.of_probe));
  const share = (record) => (ofProbe ? record.of_probe : record.of_datasheet);
  const points = records.filter((record) => known(share(record)));
  if (!points.length) return null;
  const MOST = 8;
  const series = groupBy(points, seriesKey).map((group) => group.sort((a, b) => a.n - b.n));
  const title = `${ofProbe ? "Percent of the probe" : "Percent of the data sheet's bandwidth"}${DATA.runs.length > 1 ? `, run ${run + 1}` : ""}`;
  const dot = (index, x, y) => {
    const kind = { class: `series s${index} dot` };
    if (index % 4 === 0) return ["circle", { ...kind, cx: x, cy: y, r: 4 }];
    if (index % 4 === 1) return ["rect", { ...kind, x: x - 3.5, y: y - 3.5, width: 7, height: 7 }];
    if (index % 4 === 2) return ["path", { ...kind, d: `M${x} ${y - 5}l5 9h-10z` }];
    return ["path", { ...kind, d: `M${x} ${y - 5}l5 5l-5 5l-5-5z` }];
  };
  const legend = series.slice(0, MOST).map((group, index) => {
    const [tag, attributes] = dot(index, 13, 6);
    return el("li", {}, svg("svg", { width: 26, height: 12, "aria-hidden": "true" }, svg("path", { class: `series s${index} line`, d: "M1 6H25" }), svg(tag, attributes)), seriesName(group[0]));
  });
  if (series.length > MOST) legend.push(key("other", `${series.length - MOST} more`));
  const sizes = [...new Set(points.map((record) => record.n))].sort((a, b) => a - b);
  const top = Math.max(1, ...points.map(share)) * 1.05;
  return figure(title, legend, ofProbe ? "A probe does nothing but move data (or compute). It was measured in turn with the kernels; 100 % is what it reached." : "No probe was measured: 100 % is the memory bandwidth of the data sheet.", (width) => {
    const { root, marks, sx, sy } = frame({
      width,
      title,
      text: `Share over size for ${plural(series.length, "kernel and type", "kernels and types")}. Highest: ${percent(Math.max(...points.map(share)))}.`,
      x: {
        scale: (from, to) => logarithmic(Math.max(sizes[0], 0.5) / (sizes.length > 1 ? 1 : 2), Math.max(sizes[sizes.length - 1], 0.5) * (sizes.length > 1 ? 1 : 2), from + 10, to - 10),
        ticks: sizes,
        format: size,
        label: "elements",
      },
      y: { scale: (from, to) => linear(0, top, from, to), format: (value) => `${Math.round(value * 100)} %` },
    });
    series.forEach((group, index) => {
      const many = index >= MOST;
      const places = group.map((record) => [sx(Math.max(record.n, 0.5)), sy(share(record))]);
      if (places.length > 1) marks.append(mark("path", { class: many ? "other line" : `series s${index} line`, d: line(places) }, seriesName(group[0])));
      if (!many || places.length === 1)
        group.forEach((record, place) => {
          const [tag, attributes] = many ? ["circle", { class: "other", cx: places[place][0], cy: places[place][1], r: 2 }] : dot(index, ...places[place]);
          marks.append(mark(tag, attributes, `${caseName(record)}: ${percent(share(record))}\n${configuration(record)}`));
        });
    });
    return root;
  });
};

const rooflineSection = () => {
  const best = DATA.records.filter((record) => record.is_best);
  const plots = groupBy(best, (record) => record.run).flatMap((records) => {
    const run = records[0].run;
    return [sharePlot(run, records), records.some((record) => record.flops > 0 && record.bytes > 0) ? rooflinePlot(run, records) : null];
  });
  const drawn = plots.filter((plot) => plot);
  if (!drawn.length) return null;
  const section = el("section", { id: "roofline" }, el("h2", {}, "How near the device's limit"), el("div", { class: "figures" }, drawn));
  section.redraw = () => drawn.forEach((plot) => plot.redraw());
  return section;
};

/** The samples of the best and of the default of a case: box, whiskers and every sample. */
const samplesPlot = (records) => {
  const rows = records.map((record) => ({ record, kind: record.is_best ? "best" : "default", name: record.is_best && record.is_default ? "best, default" : record.is_best ? "best" : "default" }));
  const all = rows.flatMap(({ record }) => record.samples);
  const title = caseName(records[0]);
  const quantile = (sorted, share) => {
    const at = share * (sorted.length - 1);
    const below = Math.floor(at);
    return sorted[below] + ((sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]) * (at - below));
  };
  let [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = (high - low) * 0.05 || high * 0.01 || 1;
  [low, high] = [Math.max(low - margin, 0), high + margin];
  const legend = [key("best", "best")];
  if (rows.some((row) => row.kind === "default")) legend.push(key("default", "default"));
  const text = rows.map(({ record, name }) => `${name}: ${configuration(record)}, median ${us(record.median)} µs${known(record.low) ? ` (95 % interval ${us(record.low)} to ${us(record.high)})` : ""}, ${plural(record.count, "sample")}`).join(". ");
  return figure(title, legend, `${text}. Boxes: quartiles and median; whiskers: 10th and 90th percentile; bars below: the 95 % interval of the median.`, (width) => {
    const lane = 92;
    const { root, marks, sx, area } = frame({
      width,
      height: 56 + rows.length * lane,
      left: 16,
      title: `${title}: samples`,
      text,
      x: { scale: (from, to) => linear(low, high, from, to), label: "µs a launch" },
      y: { scale: () => () => 0, ticks: [] },
    });
    rows.forEach(({ record, kind, name }, index) => {
      const top = area.top + index * lane;
      const sorted = [...record.samples].sort((a, b) => a - b);
      const group = svg("g", { class: `distribution ${kind}` });
      group.append(svg("text", { class: "row", x: area.left, y: top + 12 }, cut(`${name}: ${configuration(record)}`, Math.floor((area.right - area.left) / 6.6))));
      // Samples lie side by side in the order in which they were taken: drift shows.
      record.samples.forEach((value, place) => group.append(svg("circle", { class: "sample", cx: sx(value), cy: top + 62 + (place / Math.max(record.samples.length - 1, 1)) * 22, r: 2 })));
      const [q1, q2, q3] = [0.25, 0.5, 0.75].map((share) => sx(quantile(sorted, share)));
      group.append(svg("path", { class: "whisker", d: `M${sx(record.p10)} ${top + 28}V${top + 42}M${sx(record.p10)} ${top + 35}H${q1}M${q3} ${top + 35}H${sx(record.p90)}M${sx(record.p90)} ${top + 28}V${top + 42}` }));
      group.append(mark("rect", { class: "box", x: q1, y: top + 24, width: Math.max(q3 - q1, 1), height: 22 }, `quartiles: ${us(quantile(sorted, 0.25))} and ${us(quantile(sorted, 0.75))} µs`));
      group.append(mark("path", { class: "median", d: `M${q2} ${top + 22}V${top + 48}` }, `median: ${us(record.median)} µs`));
      if (known(record.low)) group.append(mark("path", { class: "interval", d: `M${sx(record.low)} ${top + 54}H${Math.max(sx(record.high), sx(record.low) + 1)}` }, `95 % interval of the median: ${us(record.low)} to ${us(record.high)} µs`));
      marks.append(group);
    });
    return root;
  });
};

const samplesSection = () => {
  const cases = groupBy(DATA.records.filter((record) => record.samples?.length && isUsable(record)), caseKey);
  if (!cases.length) return null;
  const host = el("div", { class: "figures one" });
  let plot = null;
  const show = (index) => {
    const best = cases[index].find((record) => record.is_best);
    const other = cases[index].find((record) => record.is_default && !record.is_best);
    plot = samplesPlot([best, other].filter((record) => record));
    host.replaceChildren(plot);
    if (host.isConnected) plot.redraw();
  };
  show(0);
  const controls = el("div", { class: "controls" }, choice("Case", cases.map((group) => caseName(group[0])), show));
  const section = el("section", { id: "samples" }, el("h2", {}, "Distribution of samples"), controls, host);
  section.redraw = () => plot.redraw();
  return section;
};
