// The page: what the trace says of itself, the timeline, the tables.

const { summary, notes } = DATA;
const main = document.getElementById("main");
const timeline = TRACKS.length ? timelineSection() : null;
const find = (name) => timeline?.search(name);

const rowsByName = (what, rows, isSought) => {
  const columns = [
    textColumn(what, (row) => row.name, (row) => (isSought && timeline ? seek(row.name, find) : row.name)),
    number("Count", (row) => row.count),
    duration("Total", (row) => row.total),
    share("Share", (row) => row.share, "Of the time of all rows"),
    duration("Average", (row) => row.average),
    duration("Least", (row) => row.min),
    duration("Greatest", (row) => row.max),
  ];
  if (rows.some((row) => row.bytes > 0))
    columns.push(
      known("GB/s", (row) => row.bandwidth / 1e9, digits, "Of those whose bytes are known"),
      known("Of peak", (row) => row.of_peak, percent, "Of the peak bandwidth of the device's memory"),
    );
  return columns;
};

const loss = summary.loss;
const lost = loss.issued - loss.recorded;
const lossText = `${plural(loss.issued, "operation")} issued: ${whole(loss.recorded)} recorded, ${whole(loss.dropped)} dropped, ${whole(loss.zero_time)} without times, ${whole(loss.refused)} refused`;

const about = document.getElementById("about");
about.append(el("p", {}, `${plural(summary.records, "record")} in ${time(summary.span)}. ${loss.issued > 0 ? `${lossText}.` : "The trace does not say whether records were lost."}`));
if (lost > 0) about.append(el("p", { class: "notice" }, `${plural(lost, "operation")} ${lost === 1 ? "has" : "have"} no usable record: times and counts are too small.`));
for (const note of notes) about.append(el("p", { class: "notice" }, note));
if (!summary.records) about.append(el("p", { class: "notice" }, "The trace is empty."));

const section = (id, title, ...content) => ({ id, title, node: el("section", { id }, el("h2", {}, title), content) });
const table = (id, title, columns, rows, note) =>
  rows.length ? section(id, title, note ? el("p", { class: "hint" }, note) : null, sortable(title, columns, rows)) : null;

const launches = summary.launches;
const launchRows = [
  ["Kernels", whole(launches.kernels)],
  ["Shorter than 10 us", whole(launches.short)],
  ["Shorter than the call that launched them", whole(launches.shorter_than_call)],
  ["Launches whose call is known", whole(launches.with_call)],
  ["Delay from call to kernel, average", time(launches.average_delay)],
  ["median", time(launches.median_delay)],
  ["99 in 100 below", time(launches.delay_99)],
  ["longest", time(launches.max_delay)],
  ...(launches.before_call ? [["Kernels that begin before their call: the clocks differ", whole(launches.before_call)]] : []),
];
const streamText = ([device, stream]) => `${device} stream ${stream}`;
const pairs = (rows) => el("dl", { class: "card" }, rows.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value))));

const sections = [
  timeline && { id: "timeline", title: "Timeline", node: timeline },
  table(
    "devices",
    "Devices",
    [
      textColumn("Device", (row) => `${row.device} ${row.name}`),
      duration("Span", (row) => row.span, "From the first kernel or copy to the end of the last"),
      part("Busy", (row) => row.busy),
      part("Idle", (row) => row.idle),
      part("Idle: launch-bound", (row) => row.launch_bound, "The launch of what ran next had not reached the device"),
      part("Kernels", (row) => row.compute),
      part("Copies", (row) => row.transfer),
      share("Copies beside kernels", (row) => ratio(row.overlap, row.transfer)),
    ],
    summary.devices,
  ),
  table(
    "streams",
    "Streams",
    [
      textColumn("Stream", (row) => `${row.device} stream ${row.stream} ${row.name}`),
      duration("Span", (row) => row.span),
      share("Busy", (row) => ratio(row.busy, row.span)),
      share("Idle: launch-bound", (row) => ratio(row.launch_bound, row.span), "The launch of the next kernel or copy had not reached the device"),
      share("Waiting for stream", (row) => ratio(row.waiting, row.span), "Another stream's kernel had to end"),
      share("For copy", (row) => ratio(row.copying, row.span), "Another stream's copy had to end"),
      share("Other", (row) => ratio(row.other, row.span), "Longer latencies, or unknown"),
      // Without calls, nothing is known of queues.
      ...(summary.streams.some((row) => row.max_queue > 0)
        ? [
            number("Queue, most", (row) => row.max_queue, "Kernels and copies that were launched and had not begun"),
            { name: "average", value: (row) => row.average_queue, cell: (row) => row.average_queue.toFixed(1) },
          ]
        : []),
    ],
    summary.streams,
    "Shares of the stream's span; idle by cause.",
  ),
  launches.kernels ? section("launches", "Launches", pairs(launchRows)) : null,
  table(
    "launch-bound",
    "Launch-bound",
    rowsByName("Line or kernel", summary.launch_bound, false),
    summary.launch_bound,
    "Devices were idle until the host enqueued this work.",
  ),
  table("kernels", "Kernels", rowsByName("Kernel", summary.kernels, true), summary.kernels),
  table(
    "ranges",
    "Ranges",
    [
      textColumn("Range", (row) => row.name, (row) => seek(row.name, find)),
      number("Count", (row) => row.count),
      duration("Host", (row) => row.host),
      duration("Host, self", (row) => row.host_self, "Without the ranges inside"),
      duration("Device", (row) => row.device, "Of what was enqueued inside"),
      duration("Device, self", (row) => row.device_self, "Without what was enqueued in ranges inside"),
      number("Launches", (row) => row.launches),
      duration("Idle: launch-bound", (row) => row.launch_bound, "Devices were idle until the host enqueued what is inside"),
    ],
    summary.ranges,
  ),
  table("lines", "Source lines", rowsByName("Line", summary.lines, false), summary.lines),
  table("copies", "Copies", rowsByName("Kind", summary.transfers, true), summary.transfers),
  table(
    "graphs",
    "Graphs",
    [
      { name: "Graph", value: (row) => row.graph, text: true },
      known("Nodes", (row) => row.nodes, whole),
      number("Launches", (row) => row.launches),
      duration("Call, each", (row) => ratio(row.launch_time, row.launches)),
      duration("Device, each", (row) => ratio(row.device, row.launches), "Of its kernels and copies, for a launch"),
      number("Nodes that ran", (row) => row.ran),
      duration("Device, all", (row) => row.device),
      duration("Capture", (row) => row.build_time, "And instantiation"),
    ],
    summary.graphs,
  ),
  table(
    "waits",
    "Waits",
    [
      textColumn("Stream", (row) => streamText(row.stream)),
      textColumn("Waits for", (row) => streamText(row.on)),
      textColumn("Buffer", (row) => row.buffer),
      textColumn("Line", (row) => row.line),
      number("Count", (row) => row.count),
    ],
    summary.waits,
    "One stream had to wait for another, because both use a buffer.",
  ),
  table(
    "memory",
    "Memory",
    [
      textColumn("Device", (row) => String(row.device)),
      number("Allocations", (row) => row.allocations),
      number("Frees", (row) => row.frees),
      size("Allocated", (row) => row.bytes),
      size("Peak in use", (row) => row.peak_allocated),
      size("Peak reserved", (row) => row.peak_reserved),
      size("In use at the end", (row) => row.allocated),
    ],
    summary.memory,
  ),
  table(
    "allocations",
    "Allocations",
    [
      textColumn("Line", (row) => row.line || "unknown"),
      number("Count", (row) => row.count),
      size("Bytes", (row) => row.bytes),
      size("Not freed", (row) => row.live),
    ],
    summary.allocations,
  ),
  table(
    "counters",
    "Counters",
    [
      textColumn("Counter", (row) => `${row.device ?? "host"} ${row.name}`),
      number("Samples", (row) => row.samples),
      ...["min", "average", "max"].map((key) => ({
        name: { min: "Least", average: "Average", max: "Greatest" }[key],
        value: (row) => row[key],
        cell: (row) => amount(row[key], row.unit),
      })),
    ],
    summary.counters,
  ),
  table("calls", "Calls", rowsByName("Function", summary.calls, true), summary.calls),
  table(
    "driver-calls",
    "Driver calls",
    rowsByName("Function", summary.driver_calls, true),
    summary.driver_calls,
    "Most of them are made by the calls above, and are part of their time.",
  ),
  table("overhead", "Overhead", rowsByName("Kind", summary.overhead, true), summary.overhead),
  section(
    "loss",
    "Loss",
    el("p", {}, loss.issued > 0 ? `${lossText}. ${lost > 0 ? "" : "Nothing is missing."}` : "The trace does not say whether records were lost."),
    Object.keys(summary.about).length ? pairs(Object.entries(summary.about)) : null,
  ),
].filter((found) => found);

main.append(navigation(sections), ...sections.map(({ node }) => node));
timeline?.begin();
document.documentElement.dataset.ready = "true";
