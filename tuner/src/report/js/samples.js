// Distribution of samples.

/** The samples of the best and of the default of a case: box, whiskers and every sample. */
const samplesPlot = (records) => {
  const rows = records.map((record) => ({
    record,
    kind: record.is_best ? "best" : "default",
    name: record.is_best && record.is_default ? "best, default" : record.is_best ? "best" : "default",
  }));
  const all = rows.flatMap(({ record }) => record.samples);
  const title = caseName(records[0]);
  const quantile = (sorted, share) => {
    const at = share * (sorted.length - 1);
    const below = Math.floor(at);
    return sorted[below] + (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]) * (at - below);
  };
  let [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = (high - low) * 0.05 || high * 0.01 || 1;
  [low, high] = [Math.max(low - margin, 0), high + margin];
  const legend = [];
  if (rows.some((row) => row.kind === "best")) legend.push(key("best", "best"));
  if (rows.some((row) => row.kind === "default")) legend.push(key("default", "default"));
  const text = rows
    .map(
      ({ record, name }) =>
        `${name}: ${configuration(record)}, median ${us(record.median)} µs${known(record.low) ? ` (95 % interval ${us(record.low)} to ${us(record.high)})` : ""}, ${plural(record.count, "sample")}`,
    )
    .join(". ");
  return figure(
    title,
    legend,
    `${text}. Boxes: quartiles and median; whiskers: 10th and 90th percentile; bars below: the 95 % interval of the median.`,
    (width) => {
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
        group.append(
          svg(
            "text",
            { class: "row", x: area.left, y: top + 12 },
            cut(`${name}: ${configuration(record)}`, Math.floor((area.right - area.left) / 6.6)),
          ),
        );
        // Samples lie side by side in the order in which they were taken: drift shows.
        record.samples.forEach((value, place) =>
          group.append(
            svg("circle", {
              class: "sample",
              cx: sx(value),
              cy: top + 62 + (place / Math.max(record.samples.length - 1, 1)) * 22,
              r: 2,
            }),
          ),
        );
        const [q1, q2, q3] = [0.25, 0.5, 0.75].map((share) => sx(quantile(sorted, share)));
        group.append(
          svg("path", {
            class: "whisker",
            d: `M${sx(record.p10)} ${top + 28}V${top + 42}M${sx(record.p10)} ${top + 35}H${q1}M${q3} ${top + 35}H${sx(record.p90)}M${sx(record.p90)} ${top + 28}V${top + 42}`,
          }),
        );
        group.append(
          mark(
            "rect",
            { class: "box", x: q1, y: top + 24, width: Math.max(q3 - q1, 1), height: 22 },
            `quartiles: ${us(quantile(sorted, 0.25))} and ${us(quantile(sorted, 0.75))} µs`,
          ),
        );
        group.append(
          mark("path", { class: "median", d: `M${q2} ${top + 22}V${top + 48}` }, `median: ${us(record.median)} µs`),
        );
        if (known(record.low))
          group.append(
            mark(
              "path",
              {
                class: "interval",
                d: `M${sx(record.low)} ${top + 54}H${Math.max(sx(record.high), sx(record.low) + 1)}`,
              },
              `95 % interval of the median: ${us(record.low)} to ${us(record.high)} µs`,
            ),
          );
        marks.append(group);
      });
      return root;
    },
  );
};

const samplesSection = () => {
  const cases = groupBy(
    DATA.records.filter((record) => isUsable(record) && (record.is_best || record.is_default)),
    caseKey,
  );
  if (!cases.length) return null;
  const host = el("div", { class: "figures one" });
  let plot = null;
  const show = (index) => {
    const best = cases[index].find((record) => record.is_best);
    const other = cases[index].find((record) => record.is_default && !record.is_best);
    plot = samplesPlot([best, other].filter((record) => record));
    host.replaceChildren(plot);
    if (host.isConnected) redraw([plot]);
  };
  show(0);
  const controls = el(
    "div",
    { class: "controls" },
    choice(
      "Case",
      cases.map((group) => caseName(group[0])),
      show,
    ),
  );
  const section = el("section", { id: "samples" }, el("h2", {}, "Distribution of samples"), controls, host);
  section.figures = () => [plot];
  return section;
};
