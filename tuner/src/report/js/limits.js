// How near the device's limits: shares of the probe over size, roofline.

/** GFLOP/s over arithmetic intensity, below what memory and arithmetic allow. */
const rooflinePlot = (run, records) => {
  const { device, probes } = DATA.runs[run];
  const points = records.filter((record) => record.flops > 0 && record.bytes > 0);
  const intensity = (record) => record.flops / record.bytes;
  const reached = (record) => record.flops / record.median / 1e3;
  const bandwidth = Math.max(0, ...probes.map((probe) => probe.gbps)) || null;
  const peak = Math.max(0, ...probes.map((probe) => probe.gflops)) || null;
  const roofs = [
    ["probe", bandwidth],
    ["sheet", device.memory_gbps],
  ].filter(([, gbps]) => known(gbps));
  const xs = points.map(intensity);
  const [low, high] = [Math.min(...xs) / 4, Math.max(...xs, peak && bandwidth ? peak / bandwidth : 0) * 4];
  const roof = (gbps, x) => Math.min(gbps * x, peak ?? Infinity);
  const ys = [...points.map(reached), ...roofs.flatMap(([, gbps]) => [roof(gbps, low), roof(gbps, high)])];
  const [bottom, top] = [Math.min(...ys) / 2, Math.max(...ys) * 2];
  const legend = [key("best", "best of each case")];
  if (bandwidth) legend.push(key("probe", `memory, measured: ${short(bandwidth)} GB/s`));
  if (known(device.memory_gbps)) legend.push(key("sheet", `memory, data sheet: ${short(device.memory_gbps)} GB/s`));
  const notes = peak
    ? `Arithmetic as measured by the probe: ${short(peak)} GFLOP/s.`
    : "The most GFLOP/s were not measured.";
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
      marks.append(
        mark(
          "path",
          { class: `${kind} line`, d: line(ends) },
          `${kind === "probe" ? "measured" : "data sheet"}: ${short(gbps)} GB/s`,
        ),
      );
    }
    for (const record of points)
      marks.append(
        mark(
          "circle",
          { class: "best", cx: sx(intensity(record)), cy: Math.min(sy(reached(record)), area.bottom), r: 4.5 },
          `${caseName(record)}: ${short(reached(record))} GFLOP/s, ${short(intensity(record))} FLOP a byte\n${configuration(record)}`,
        ),
      );
    return root;
  });
};

/** Percent of the probe (or of the data sheet) over size, a line for each kernel and type. */
const sharePlot = (run, records) => {
  const ofProbe = records.some((record) => known(record.of_probe));
  const share = (record) => (ofProbe ? record.of_probe : record.of_datasheet);
  const points = records.filter((record) => known(share(record)));
  if (!points.length) return null;
  const MAX = 8;
  const series = groupBy(points, seriesKey).map((group) => group.sort((a, b) => a.n - b.n));
  const title = `${ofProbe ? "Percent of the probe" : "Percent of the data sheet's bandwidth"}${DATA.runs.length > 1 ? `, run ${run + 1}` : ""}`;
  const dot = (index, x, y) => {
    const kind = { class: `series s${index} dot` };
    if (index % 4 === 0) return ["circle", { ...kind, cx: x, cy: y, r: 4 }];
    if (index % 4 === 1) return ["rect", { ...kind, x: x - 3.5, y: y - 3.5, width: 7, height: 7 }];
    if (index % 4 === 2) return ["path", { ...kind, d: `M${x} ${y - 5}l5 9h-10z` }];
    return ["path", { ...kind, d: `M${x} ${y - 5}l5 5l-5 5l-5-5z` }];
  };
  const legend = series.slice(0, MAX).map((group, index) => {
    const [tag, attributes] = dot(index, 13, 6);
    return el(
      "li",
      {},
      svg(
        "svg",
        { width: 26, height: 12, "aria-hidden": "true" },
        svg("path", { class: `series s${index} line`, d: "M1 6H25" }),
        svg(tag, attributes),
      ),
      seriesName(group[0]),
    );
  });
  if (series.length > MAX) legend.push(key("other", `${series.length - MAX} more`));
  const sizes = [...new Set(points.map((record) => record.n))].sort((a, b) => a - b);
  const top = Math.max(1, ...points.map(share)) * 1.05;
  return figure(
    title,
    legend,
    ofProbe
      ? "A probe does nothing but move data (or compute). It was measured in turn with the kernels; 100 % is what it reached."
      : "No probe was measured: 100 % is the memory bandwidth of the data sheet.",
    (width) => {
      const { root, marks, sx, sy } = frame({
        width,
        title,
        text: `Share over size for ${plural(series.length, "kernel and type", "kernels and types")}. Highest: ${percent(Math.max(...points.map(share)))}.`,
        x: {
          scale: (from, to) =>
            logarithmic(
              Math.max(sizes[0], 0.5) / (sizes.length > 1 ? 1 : 2),
              Math.max(sizes[sizes.length - 1], 0.5) * (sizes.length > 1 ? 1 : 2),
              from + 10,
              to - 10,
            ),
          ticks: sizes,
          format: size,
          label: "elements",
        },
        y: { scale: (from, to) => linear(0, top, from, to), format: (value) => `${Math.round(value * 100)} %` },
      });
      series.forEach((group, index) => {
        const many = index >= MAX;
        const places = group.map((record) => [sx(Math.max(record.n, 0.5)), sy(share(record))]);
        if (places.length > 1)
          marks.append(
            mark(
              "path",
              { class: many ? "other line" : `series s${index} line`, d: line(places) },
              seriesName(group[0]),
            ),
          );
        if (!many || places.length === 1)
          group.forEach((record, place) => {
            const [tag, attributes] = many
              ? ["circle", { class: "other", cx: places[place][0], cy: places[place][1], r: 2 }]
              : dot(index, ...places[place]);
            marks.append(
              mark(tag, attributes, `${caseName(record)}: ${percent(share(record))}\n${configuration(record)}`),
            );
          });
      });
      return root;
    },
  );
};

const rooflineSection = () => {
  const best = DATA.records.filter((record) => record.is_best);
  const plots = groupBy(best, (record) => record.run).flatMap((records) => {
    const run = records[0].run;
    return [
      sharePlot(run, records),
      records.some((record) => record.flops > 0 && record.bytes > 0) ? rooflinePlot(run, records) : null,
    ];
  });
  const drawn = plots.filter((plot) => plot);
  if (!drawn.length) return null;
  const section = el(
    "section",
    { id: "roofline" },
    el("h2", {}, "How near the device's limit"),
    el("div", { class: "figures" }, drawn),
  );
  section.figures = () => drawn;
  return section;
};
