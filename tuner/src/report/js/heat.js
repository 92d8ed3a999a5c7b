// Heat map of two axes of a case.

// Viridis at even steps: rises in lightness, so that it reads without color and in print, too.
const SHADES = [
  "#440154",
  "#482878",
  "#3e4a89",
  "#31688e",
  "#26828e",
  "#1f9e89",
  "#35b779",
  "#6dcd59",
  "#b4de2c",
  "#fde725",
];
const shade = (share) => SHADES[Math.min(Math.max(Math.floor(share * SHADES.length), 0), SHADES.length - 1)];
const isDark = (share) => share * SHADES.length < 5;

const heatMap = (records, across, down, fixed) => {
  const chosen = records.filter((record) => fixed.every(([axis, value]) => String(valueOf(record, axis)) === value));
  const values = (axis) =>
    [...new Map(chosen.map((record) => [String(valueOf(record, axis)), valueOf(record, axis)])).values()]
      .filter((value) => value !== undefined)
      .sort(natural);
  const [columns, rows] = [values(across), values(down)];
  const cells = groupBy(chosen, (record) => JSON.stringify([valueOf(record, across), valueOf(record, down)])).map(
    (group) => {
      const usable = group.filter(isUsable);
      return { group, record: usable.length ? bestOf(usable) : null };
    },
  );
  const measured = cells.filter((cell) => cell.record).map((cell) => cell.record);
  const title = `${caseName(records[0])}: ${down} × ${across}`;
  if (!measured.length)
    return figure(title, [], `No correct result to draw: ${plural(chosen.length, "record")}, see the table.`, () =>
      el("p", { class: "nothing" }, "No correct result"),
    );
  const { unit, of } = rate(measured);
  const best = fastest(measured);
  // The choice of a tuning run is marked wherever it is, and nothing in its place where it is not shown.
  const winner = records.some((record) => record.is_best && record.is_winner)
    ? measured.find((record) => record.is_best)
    : best;
  const worst = measured.reduce((a, b) => (b.median > a.median ? b : a));
  const [low, high] = [of(worst), of(best)];
  const share = (record) => (high === low ? 1 : (of(record) - low) / (high - low));
  const wrong = cells.filter((cell) => !cell.record).length;
  const chosenBy = winner && winner !== best ? `Chosen: ${short(of(winner))} ${unit} with ${configuration(winner)}. ` : "";
  const text = `${chosenBy}Fastest: ${short(high)} ${unit} with ${configuration(best)}. Slowest: ${short(low)} ${unit} with ${configuration(worst)}.${wrong ? ` ${plural(wrong, "cell")} without a correct result, crossed out.` : ""}`;
  const ramp = el(
    "li",
    { class: "ramp" },
    `${short(low)} `,
    svg(
      "svg",
      { width: 120, height: 12, "aria-hidden": "true" },
      SHADES.map((fill, index) => svg("rect", { x: index * 12, y: 0, width: 12, height: 12, fill })),
    ),
    ` ${short(high)} ${unit}`,
  );
  return figure(title, [ramp], text, (width) => {
    const left = Math.min(90, 20 + 7 * Math.max(...rows.map((value) => cut(String(value), 11).length)) + 16);
    const column = Math.min((width - left - 8) / columns.length, 150);
    const [cellHeight, top] = [34, 24];
    const height = top + rows.length * cellHeight + 46;
    const id = `hatch-${++serial}`;
    const marks = svg("g", { class: "marks" });
    const root = svg(
      "svg",
      {
        class: "plot heat",
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
        role: "img",
        "aria-labelledby": `${id}-t ${id}-d`,
      },
      svg("title", { id: `${id}-t` }, title),
      svg("desc", { id: `${id}-d` }, text),
      svg(
        "defs",
        {},
        svg(
          "pattern",
          { id, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          svg("rect", { class: "hatch-ground", width: 8, height: 8 }),
          svg("rect", { class: "hatch", width: 2.5, height: 8 }),
        ),
      ),
      marks,
    );
    columns.forEach((value, index) =>
      root.append(
        svg(
          "text",
          { class: "tick", x: left + (index + 0.5) * column, y: top - 8, "text-anchor": "middle" },
          cut(String(value), Math.max(Math.floor(column / 7), 2)),
        ),
      ),
    );
    rows.forEach((value, index) =>
      root.append(
        svg(
          "text",
          { class: "tick", x: left - 8, y: top + (index + 0.5) * cellHeight + 4, "text-anchor": "end" },
          cut(String(value), 11),
        ),
      ),
    );
    root.append(
      svg(
        "text",
        { class: "label", x: left + (columns.length * column) / 2, y: height - 22, "text-anchor": "middle" },
        cut(`${across} →`, 40),
      ),
    );
    const middle = top + (rows.length * cellHeight) / 2;
    root.append(
      svg(
        "text",
        { class: "label", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` },
        cut(`← ${down}`, Math.max(Math.floor((rows.length * cellHeight) / 7), 6)),
      ),
    );
    for (const { group, record } of cells) {
      const place = [
        columns.findIndex((value) => value === valueOf(group[0], across)),
        rows.findIndex((value) => value === valueOf(group[0], down)),
      ];
      if (place.includes(-1)) continue;
      const [x, y] = [left + place[0] * column, top + place[1] * cellHeight];
      const box = { x: x + 1, y: y + 1, width: Math.max(column - 2, 1), height: cellHeight - 2 };
      if (!record) {
        marks.append(
          mark(
            "rect",
            { ...box, class: "cell bad", fill: `url(#${id})` },
            `${configuration(group[0])}: ${group[0].outcome} ${group[0].problem}`,
          ),
        );
        if (column >= 44)
          marks.append(
            svg(
              "text",
              { class: "bad", x: x + column / 2, y: y + cellHeight / 2 + 4, "text-anchor": "middle" },
              cut(group[0].outcome, Math.floor(column / 7)),
            ),
          );
        continue;
      }
      const tip = `${configuration(record)}\n${short(of(record))} ${unit}, ${us(record.median)} µs${group.length > 1 ? `\nbest of ${group.length}` : ""}`;
      marks.append(
        mark("rect", { ...box, class: record === winner ? "cell winner" : "cell", fill: shade(share(record)) }, tip),
      );
      if (column >= 40)
        marks.append(
          svg(
            "text",
            {
              class: isDark(share(record)) ? "value light" : "value",
              x: x + column / 2,
              y: y + cellHeight / 2 + 4,
              "text-anchor": "middle",
            },
            short(of(record)),
          ),
        );
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
    if (!axes.includes(down) || down === across)
      down = axes.includes("items") && across !== "items" ? "items" : axes.find((axis) => axis !== across);
    const rest = axes.filter((axis) => axis !== across && axis !== down);
    const held = rest.filter(
      (axis) => fixed.has(axis) && records.some((record) => String(valueOf(record, axis)) === fixed.get(axis)),
    );
    controls.replaceChildren(
      choice(
        "Case",
        cases.map((group) => caseName(group[0])),
        (index) => {
          current = index;
          build();
        },
        current,
      ),
      choice(
        "Across",
        axes,
        (index) => {
          if (axes[index] === down) down = across;
          across = axes[index];
          build();
        },
        axes.indexOf(across),
      ),
      choice(
        "Down",
        axes,
        (index) => {
          if (axes[index] === across) across = down;
          down = axes[index];
          build();
        },
        axes.indexOf(down),
      ),
      ...rest.map((axis) => {
        const values = [...new Set(records.map((record) => String(valueOf(record, axis))))].sort(natural);
        return choice(
          axis,
          ["best of all", ...values],
          (index) => {
            index ? fixed.set(axis, values[index - 1]) : fixed.delete(axis);
            build();
          },
          held.includes(axis) ? values.indexOf(fixed.get(axis)) + 1 : 0,
        );
      }),
    );
    plot = heatMap(
      records,
      across,
      down,
      held.map((axis) => [axis, fixed.get(axis)]),
    );
    host.replaceChildren(plot);
    if (host.isConnected) redraw([plot]);
  };
  // The selected choice keeps the focus although the choices are rebuilt.
  controls.addEventListener("change", (event) => {
    const name = event.target.parentElement.firstChild.textContent;
    [...controls.children]
      .find((label) => label.firstChild.textContent === name)
      ?.querySelector("select")
      .focus();
  });
  build();
  section.figures = () => [plot];
  return section;
};
