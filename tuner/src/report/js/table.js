// A table that is sorted by its headers, filtered and shown page by page.

/**
 * `columns`: { name, value: row => what is sorted by, cell: row => what is shown, number: right-aligned, wide: for long text, whole: never broken, title }.
 * Returns an element with `filter(predicate)`.
 */
const sortable = ({ caption, columns, rows, page, rowClass = () => "" }) => {
  let [shown, sorted, descending, start] = [rows, null, false, 0];
  const body = el("tbody", {});
  const status = el("p", { class: "status", role: "status" });
  const previous = el("button", { type: "button", onclick: () => turn(-page) }, "‹ Previous");
  const next = el("button", { type: "button", onclick: () => turn(page) }, "Next ›");
  const pager = el("div", { class: "controls pager" }, previous, next);
  const draw = () => {
    const part = shown.slice(start, start + page);
    body.replaceChildren(
      ...part.map((row) =>
        el(
          "tr",
          { class: rowClass(row) },
          columns.map((column) =>
            el("td", { class: column.number ? "number" : column.wide ? "wide" : column.whole ? "whole" : null }, column.cell(row)),
          ),
        ),
      ),
    );
    if (!part.length)
      body.append(
        el(
          "tr",
          {},
          el(
            "td",
            { colspan: columns.length, class: "nothing" },
            rows.length ? "Nothing passes the filters." : "There are no records.",
          ),
        ),
      );
    const of = shown.length === rows.length ? "" : ` (of ${rows.length.toLocaleString("en")})`;
    status.textContent =
      shown.length > page
        ? `Rows ${(start + 1).toLocaleString("en")} to ${(start + part.length).toLocaleString("en")} of ${shown.length.toLocaleString("en")}${of}`
        : `${plural(shown.length, "row")}${of}`;
    pager.hidden = shown.length <= page;
    previous.disabled = start === 0;
    next.disabled = start + page >= shown.length;
  };
  const turn = (by) => {
    start = Math.min(Math.max(start + by, 0), Math.max(shown.length - 1, 0));
    draw();
  };
  const order = () => {
    if (!sorted) return;
    const value = sorted.value;
    const keyed = shown.map((row) => [value(row), row]);
    const absent = (item) => item === null || item === undefined || item === "";
    keyed.sort(([a], [b]) =>
      absent(a) || absent(b) ? absent(a) - absent(b) : descending ? natural(b, a) : natural(a, b),
    );
    shown = keyed.map(([, row]) => row);
  };
  const head = sortingHead(columns, (column) => (column.number ? "number" : null), (column) => {
    descending = sorted === column && !descending;
    sorted = column;
    order();
    start = 0;
    draw();
    return descending;
  });
  const node = el("div", {}, status, scrolling(caption, head, body), pager);
  node.filter = (predicate) => {
    shown = rows.filter(predicate);
    order();
    start = 0;
    draw();
  };
  draw();
  return node;
};

const interval = (record) => (known(record.low) ? `${us(record.low)} – ${us(record.high)}` : "–");
const chip = (kind, text) => el("span", { class: `chip ${kind}` }, text);

const recordColumns = () => {
  const columns = [
    { name: "Kernel", whole: true, value: (r) => r.kernel, cell: (r) => r.kernel },
    { name: "Type", value: (r) => r.dtype, cell: (r) => r.dtype },
    { name: "Size", title: "elements", number: true, value: (r) => r.n, cell: (r) => size(r.n) },
    { name: "Mode", value: (r) => r.mode, cell: (r) => r.mode ?? "–" },
    {
      name: "Configuration",
      wide: true,
      value: configuration,
      cell: (r) => [
        configuration(r),
        r.is_best ? chip("best", r.is_winner ? "winner" : "best") : null,
        r.is_default ? chip("default", "default") : null,
      ],
    },
    {
      name: "Outcome",
      wide: DATA.records.some((r) => r.problem),
      value: (r) => r.outcome,
      cell: (r) => [
        chip(r.outcome, r.outcome),
        r.throttled ? chip("throttled", "throttled") : null,
        r.problem ? el("span", { class: "problem" }, r.problem) : null,
      ],
    },
    { name: "Median µs", number: true, value: (r) => r.median, cell: (r) => us(r.median) },
    {
      name: "95 % interval",
      title: "confidence interval of the median in µs; none below 6 samples",
      number: true,
      value: (r) => (known(r.low) ? r.high - r.low : null),
      cell: interval,
    },
    {
      name: "p10 – p90",
      title: "10th and 90th percentile in µs",
      number: true,
      value: (r) => (known(r.p10) ? r.p90 - r.p10 : null),
      cell: (r) => (known(r.p10) ? `${us(r.p10)} – ${us(r.p90)}` : "–"),
    },
    { name: "GB/s", number: true, value: (r) => r.gbps, cell: (r) => short(r.gbps) },
    {
      name: "Of peak",
      title: "share of the data sheet's memory bandwidth",
      number: true,
      value: (r) => r.of_datasheet,
      cell: (r) => percent(r.of_datasheet),
    },
    { name: "Of probe", number: true, value: (r) => r.of_probe, cell: (r) => percent(r.of_probe) },
    {
      name: "Samples",
      title: "samples × launches in each",
      number: true,
      value: (r) => r.count,
      cell: (r) => (r.count ? `${r.count} × ${r.launches}` : "–"),
    },
    {
      name: "Rejected",
      title: "samples thrown away because the clock was low",
      number: true,
      value: (r) => r.rejected,
      cell: (r) => String(r.rejected ?? "–"),
    },
    {
      name: "Clock MHz",
      number: true,
      value: (r) => r.clock,
      cell: (r) => (known(r.clock) ? String(Math.round(r.clock)) : "–"),
    },
    {
      name: "Max error",
      title: "largest difference from the float64 reference",
      number: true,
      value: (r) => r.max_error,
      cell: (r) => short(r.max_error),
    },
    { name: "Stopped by", title: "what ended the sampling", value: (r) => r.stop, cell: (r) => r.stop ?? "–" },
  ];
  if (DATA.runs.length > 1)
    columns.unshift({ name: "Run", number: true, value: (r) => r.run, cell: (r) => String(r.run + 1) });
  return columns;
};

const recordsSection = () => {
  const table = sortable({
    caption: "All records",
    columns: recordColumns(),
    rows: DATA.records,
    page: 100,
    rowClass: (record) => record.outcome,
  });
  const distinct = (value) => [...new Set(DATA.records.map(value))].sort(natural);
  const wanted = {};
  const words = el("input", { type: "search", placeholder: "for example block=256", oninput: () => apply() });
  const fields = [
    ["Kernel", (r) => r.kernel, String],
    ["Type", (r) => r.dtype, String],
    ["Size", (r) => r.n, size],
    ["Mode", (r) => r.mode ?? "not timed", String],
    ["Outcome", (r) => r.outcome, String],
  ].map(([name, value, show]) => {
    const values = distinct(value);
    return choice(name, ["all", ...values.map(show)], (index) => {
      wanted[name] = index ? (record) => value(record) === values[index - 1] : null;
      apply();
    });
  });
  // Made when it is first searched for.
  const texts = new Map();
  const textOf = (r) => {
    if (!texts.has(r))
      texts.set(
        r,
        [
          r.kernel,
          r.dtype,
          r.n,
          size(r.n),
          r.mode,
          configuration(r),
          r.outcome,
          r.problem,
          r.stop,
          r.is_best ? "best" : "",
          r.is_winner ? "winner" : "",
          r.is_default ? "default" : "",
        ]
          .join(" ")
          .toLowerCase(),
      );
    return texts.get(r);
  };
  const apply = () => {
    const parts = words.value
      .toLowerCase()
      .split(/\s+/)
      .filter((part) => part);
    const tests = Object.values(wanted).filter((test) => test);
    table.filter(
      (record) => tests.every((test) => test(record)) && parts.every((part) => textOf(record).includes(part)),
    );
  };
  const controls = el("div", { class: "controls", role: "search" }, el("label", {}, "Text ", words), fields);
  return el("section", { id: "records" }, el("h2", {}, "All records"), controls, table);
};

/** The best of each case against the default. */
const bestSection = () => {
  const cases = groupBy(DATA.records, caseKey).map((group) => ({
    first: group[0],
    best: group.find((record) => record.is_best),
    usual: group.find((record) => record.is_default && isUsable(record)),
    bad: group.filter((record) => record.outcome !== "correct").length,
    count: group.length,
  }));
  const gain = ({ best, usual }) => (best && usual ? usual.median / best.median : null);
  const columns = [
    { name: "Kernel", whole: true, value: (c) => c.first.kernel, cell: (c) => c.first.kernel },
    { name: "Type", value: (c) => c.first.dtype, cell: (c) => c.first.dtype },
    { name: "Size", number: true, value: (c) => c.first.n, cell: (c) => size(c.first.n) },
    { name: "Mode", value: (c) => c.first.mode, cell: (c) => c.first.mode ?? "–" },
    {
      name: "Best configuration",
      wide: true,
      value: (c) => (c.best ? configuration(c.best) : null),
      cell: (c) => (c.best ? [configuration(c.best), c.best.is_winner ? chip("best", "winner") : null] : "none was right"),
    },
    { name: "Median µs", number: true, value: (c) => c.best?.median, cell: (c) => us(c.best?.median) },
    {
      name: "95 % interval",
      number: true,
      value: (c) => (known(c.best?.low) ? c.best.high - c.best.low : null),
      cell: (c) => (c.best ? interval(c.best) : "–"),
    },
    { name: "GB/s", number: true, value: (c) => c.best?.gbps, cell: (c) => short(c.best?.gbps) },
    {
      name: "Of peak",
      title: "share of the data sheet's memory bandwidth",
      number: true,
      value: (c) => c.best?.of_datasheet,
      cell: (c) => percent(c.best?.of_datasheet),
    },
    { name: "Of probe", number: true, value: (c) => c.best?.of_probe, cell: (c) => percent(c.best?.of_probe) },
    { name: "Default µs", number: true, value: (c) => c.usual?.median, cell: (c) => us(c.usual?.median) },
    {
      name: "Gain",
      title: "the default's median by the best's",
      number: true,
      value: gain,
      cell: (c) => (gain(c) ? `${gain(c).toFixed(2)}×` : "–"),
    },
    {
      name: "Right",
      title: "configurations with a right result",
      value: (c) => c.bad,
      number: true,
      cell: (c) => (c.bad ? chip("incorrect", `${c.count - c.bad} of ${c.count}`) : `${c.count} of ${c.count}`),
    },
  ];
  if (DATA.runs.length > 1)
    columns.unshift({ name: "Run", number: true, value: (c) => c.first.run, cell: (c) => String(c.first.run + 1) });
  const table = sortable({
    caption: "What was chosen of each case, else its fastest right configuration",
    columns,
    rows: cases,
    page: 25,
    rowClass: (c) => (c.best ? "" : "incorrect"),
  });
  return el("section", { id: "best" }, el("h2", {}, "The best of each case"), table);
};
