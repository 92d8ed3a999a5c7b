// GB/s over size: every configuration of a kernel and type, the best and the default of them marked.

/** What a series is drawn in: GB/s where bytes are known, else GFLOP/s, else launches a second. */
const rate = (records) => {
  if (records.some((record) => record.bytes > 0))
    return { unit: "GB/s", of: (record) => record.bytes / record.median / 1e3, bytes: true };
  if (records.some((record) => record.flops > 0))
    return { unit: "GFLOP/s", of: (record) => record.flops / record.median / 1e3 };
  return { unit: "launches/s", of: (record) => 1e6 / record.median };
};

const throughputPlot = (records) => {
  const first = records[0];
  const title = seriesName(first);
  const usable = records.filter(isUsable);
  const bad = records.length - usable.length;
  const left = bad ? `${plural(bad, "record")} without a correct result ${bad === 1 ? "is" : "are"} not drawn. ` : "";
  if (!usable.length)
    return figure(title, [], `No correct result to draw: ${plural(records.length, "record")}, see the table.`, () =>
      el("p", { class: "nothing" }, "No correct result"),
    );
  const { unit, of, bytes: moves } = rate(usable);
  const bests = groupBy(usable, (record) => record.n)
    .map(bestOf)
    .sort((a, b) => a.n - b.n);
  const defaults = usable.filter((record) => record.is_default).sort((a, b) => a.n - b.n);
  const others = groupBy(usable, configuration).map((group) => group.sort((a, b) => a.n - b.n));
  const most = Math.max(...usable.map(of));
  const device = DATA.runs[first.run].device;
  const sheet = moves && known(device.memory_gbps) ? device.memory_gbps : null;
  const probes = moves ? bests.filter((record) => known(record.probe_us) && record.probe_us > 0) : [];
  const probeRate = (record) => record.bytes / record.probe_us / 1e3;
  const measured = probes.length
    ? null
    : moves
      ? Math.max(0, ...DATA.runs[first.run].probes.map((probe) => probe.gbps)) || null
      : null;
  // A limit far above all data would press them to the ground: it is then said, not drawn.
  const fits = (value) => value !== null && value <= most * 4;
  const top =
    Math.max(most, fits(sheet) ? sheet : 0, fits(measured) ? measured : 0, ...probes.map(probeRate).filter(fits)) *
    1.06;
  const sizes = [...new Set(usable.map((record) => record.n))].sort((a, b) => a - b);
  const [low, high] = [sizes[0], sizes[sizes.length - 1]];
  const winner = bests.reduce((a, b) => (of(b) > of(a) ? b : a));
  const legend = [key("best", "best of each size")];
  if (defaults.length) legend.push(key("default", "default"));
  if (others.length > 1) legend.push(key("other", `${plural(others.length, "configuration")}`));
  if (probes.some((record) => fits(probeRate(record))) || fits(measured)) legend.push(key("probe", "probe, measured"));
  if (fits(sheet)) legend.push(key("sheet", `data sheet, ${short(sheet)} GB/s`));
  const off = sheet !== null && !fits(sheet) ? `The data sheet's ${short(sheet)} GB/s are above the scale. ` : "";
  const text = `${unit} over size for ${plural(others.length, "configuration")} of ${title}. Highest of the best: ${short(of(winner))} ${unit} at ${size(winner.n)} with ${configuration(winner)}.`;
  return figure(title, legend, `${left}${off}`, (width) => {
    const { root, marks, sx, sy, area } = frame({
      width,
      title: `${title}: ${unit} over size`,
      text,
      x: {
        scale: (from, to) =>
          low === high
            ? logarithmic(low / 2 || 0.5, high * 2 || 2, from, to)
            : logarithmic(Math.max(low, 0.5), high, from + 10, to - 10),
        ticks: sizes,
        format: size,
        label: "elements",
      },
      y: { scale: (from, to) => linear(0, top, from, to), label: unit },
    });
    const at = (record) => [sx(Math.max(record.n, 0.5)), sy(of(record))];
    const tip = (record, what) =>
      `${what}${configuration(record)}\n${size(record.n)}: ${short(of(record))} ${unit}, ${us(record.median)} µs`;
    if (fits(sheet))
      marks.append(
        mark(
          "path",
          { class: "sheet line", d: `M${area.left} ${sy(sheet)}H${area.right}` },
          `data sheet: ${short(sheet)} GB/s`,
        ),
      );
    if (fits(measured))
      marks.append(
        mark(
          "path",
          { class: "probe line", d: `M${area.left} ${sy(measured)}H${area.right}` },
          `probe: ${short(measured)} GB/s`,
        ),
      );
    const reached = probes
      .filter((record) => fits(probeRate(record)))
      .map((record) => [sx(record.n), sy(probeRate(record))]);
    if (reached.length === 1)
      marks.append(mark("path", { class: "probe line", d: `M${reached[0][0] - 14} ${reached[0][1]}h28` }, "probe"));
    else if (reached.length) marks.append(mark("path", { class: "probe line", d: line(reached) }, "probe"));
    for (const group of others) {
      const tipOf = `${configuration(group[0])}: ${group.map((record) => `${size(record.n)} ${short(of(record))}`).join(", ")} ${unit}`;
      if (group.length === 1)
        marks.append(mark("circle", { class: "other", cx: at(group[0])[0], cy: at(group[0])[1], r: 2 }, tipOf));
      else marks.append(mark("path", { class: "other line", d: line(group.map(at)) }, tipOf));
    }
    if (defaults.length > 1) marks.append(svg("path", { class: "default line", d: line(defaults.map(at)) }));
    if (bests.length > 1) marks.append(svg("path", { class: "best line", d: line(bests.map(at)) }));
    for (const record of defaults) {
      const [x, y] = at(record);
      marks.append(
        mark("rect", { class: "default", x: x - 4, y: y - 4, width: 8, height: 8 }, tip(record, "default: ")),
      );
    }
    for (const record of bests) {
      const [x, y] = at(record);
      marks.append(mark("circle", { class: "best", cx: x, cy: y, r: 4.5 }, tip(record, "best: ")));
    }
    return root;
  });
};

/** All series, a few at first. */
const throughputSection = () => {
  const series = groupBy(DATA.records, seriesKey);
  if (!series.length) return null;
  const grid = el("div", { class: "figures" });
  const section = el("section", { id: "throughput" }, el("h2", {}, "Throughput over size"), grid);
  const shown = [];
  const show = (count) => {
    for (const records of series.slice(shown.length, count)) {
      const plot = throughputPlot(records);
      shown.push(plot);
      grid.append(plot);
    }
  };
  const FIRST = 12;
  show(FIRST);
  if (series.length > FIRST) {
    const more = el("button", {
      type: "button",
      class: "more",
      onclick: () => {
        const before = shown.length;
        show(before + 24);
        redraw(shown.slice(before));
        label();
      },
    });
    const label = () => {
      if (shown.length >= series.length) more.remove();
      more.textContent = `Show more: ${shown.length} of ${series.length} shown`;
    };
    label();
    section.append(more);
  }
  section.figures = () => shown;
  return section;
};
