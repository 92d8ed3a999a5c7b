// The page: what was measured where, then the sections.

const when = (seconds) =>
  seconds ? `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC` : null;
const fact = (name, value) =>
  value === null || value === undefined || value === "" ? [] : [el("div", {}, el("dt", {}, name), el("dd", {}, value))];
const change = (before, after, unit, digits = 0) => {
  const show = (value) => (known(value) ? `${value.toFixed(digits)} ${unit}` : null);
  const [from, to] = [show(before), show(after)];
  return from && to && from !== to ? `${from} before, ${to} after` : (from ?? to);
};
const tally = (records, value) =>
  groupBy(
    records.filter((record) => value(record) !== undefined),
    value,
  )
    .map((group) => `${value(group[0])} ${group.length.toLocaleString("en")}`)
    .join(", ");

const runFacts = (run, index) => {
  const { device } = run;
  const { before, after } = device;
  const records = DATA.records.filter((record) => record.run === index);
  const timed = records.filter((record) => known(record.median));
  const rejected = timed.reduce((sum, record) => sum + record.rejected, 0);
  const throttled = timed.filter((record) => record.throttled).length;
  const reasons = [...new Set([...before.throttle_reasons, ...after.throttle_reasons])];
  const clocks = timed.map((record) => record.clock).filter(known);
  const limit = known(after.power_limit_w ?? before.power_limit_w)
    ? ` (limit ${(after.power_limit_w ?? before.power_limit_w).toFixed(0)} W)`
    : "";
  const power = change(before.power_w, after.power_w, "W");
  const sm = change(before.sm_clock_mhz, after.sm_clock_mhz, "MHz");
  const most = after.max_sm_clock_mhz ?? before.max_sm_clock_mhz;
  return el(
    "div",
    { class: "run" },
    DATA.runs.length > 1 ? el("h3", {}, `Run ${index + 1}: ${device.name}`) : null,
    run.interrupted ? el("p", { class: "notice" }, "This run was ended before it was complete.") : null,
    device.emulated
      ? el("p", { class: "notice" }, "Measured on an emulated GPU: times are of a CPU and say nothing about a GPU.")
      : null,
    throttled
      ? el(
          "p",
          { class: "notice" },
          `The clock stayed low for ${plural(throttled, "record")}: their times are of a throttled device.`,
        )
      : null,
    run.low_clock
      ? el(
          "p",
          { class: "notice" },
          `The clock was ${run.low_clock[0]} MHz, below 95 % of the device's highest (${run.low_clock[1]} MHz).`,
        )
      : null,
    el(
      "dl",
      {},
      fact("Device", `${device.name} (${device.id})`),
      fact("Capability", device.emulated ? null : `${device.capability}, ${device.multiprocessors} multiprocessors`),
      fact("Memory", `${bytes(device.memory)}, L2 ${bytes(device.l2_cache)}`),
      fact("Data sheet", known(device.memory_gbps) ? `${short(device.memory_gbps)} GB/s` : null),
      run.probes.map((probe) =>
        fact(
          `Probe ${probe.name}`,
          `${[probe.gbps > 0 ? `${short(probe.gbps)} GB/s` : null, probe.gflops > 0 ? `${short(probe.gflops)} GFLOP/s` : null].filter((part) => part).join(", ")}, ${plural(probe.samples, "sample")}`,
        ),
      ),
      fact("Driver", device.cuda ? `${device.driver} (CUDA ${device.cuda})` : device.driver),
      fact("SM clock", sm ? `${sm}${known(most) ? ` (highest ${most} MHz)` : ""}` : null),
      fact(
        "SM clock while measuring",
        clocks.length
          ? Math.min(...clocks) === Math.max(...clocks)
            ? `${clocks[0]} MHz`
            : `${Math.min(...clocks)} to ${Math.max(...clocks)} MHz`
          : null,
      ),
      fact("Memory clock", change(before.memory_clock_mhz, after.memory_clock_mhz, "MHz")),
      fact("Temperature", change(before.temperature_c, after.temperature_c, "°C")),
      fact("Power", power ? `${power}${limit}` : null),
      fact("Slowed by", reasons.join(", ")),
      fact("Warpsmith", run.version),
      fact("Toolchain", run.toolchain),
      fact("Begun", when(run.started)),
      fact("Took", run.seconds > 0 ? `${short(run.seconds)} s` : null),
      fact(
        "Records",
        tally(records, (record) => record.outcome),
      ),
      fact(
        "Modes",
        tally(timed, (record) => record.mode),
      ),
      fact(
        "Samples",
        timed.length
          ? `${timed.reduce((sum, record) => sum + record.count, 0).toLocaleString("en")}, ${rejected.toLocaleString("en")} rejected for a low clock`
          : null,
      ),
      fact(
        "Sampling stopped by",
        tally(timed, (record) => record.stop),
      ),
    ),
  );
};

const deviceSection = () =>
  el("section", { id: "device" }, el("h2", {}, "Device and conditions"), DATA.runs.map(runFacts));

const main = document.getElementById("main");
const about = () => {
  const first = DATA.runs[0];
  if (!first) return "No documents were given.";
  const cases = new Set(DATA.records.map(caseKey)).size;
  const bad = DATA.records.filter((record) => record.outcome !== "correct").length;
  const parts = [
    plural(DATA.records.length, "record"),
    `${plural(cases, "case")}`,
    bad ? `${plural(bad, "record")} without a correct result` : DATA.records.length ? "all results correct" : null,
    when(first.started),
  ];
  return `${parts.filter((part) => part).join(" · ")}. Times are medians in microseconds a launch, with 95 % confidence intervals.`;
};
document.getElementById("about").append(el("p", {}, about()));

const sections = DATA.records.length
  ? [
      bestSection(),
      throughputSection(),
      heatSection(),
      rooflineSection(),
      samplesSection(),
      recordsSection(),
      deviceSection(),
    ]
  : DATA.runs.length
    ? [deviceSection()]
    : [];
const present = sections.filter((section) => section);
const titled = (section) => ({ id: section.id, title: section.querySelector("h2").textContent });
if (present.length > 1) main.append(navigation(present.map(titled)));
main.append(...present);
const redrawAll = () => redraw(present.flatMap((section) => section.figures?.() ?? []));
redrawAll();
let drawn = main.clientWidth;
new ResizeObserver(() => {
  if (Math.abs(main.clientWidth - drawn) < 8) return;
  drawn = main.clientWidth;
  // Not while sizes are observed: what is drawn changes them.
  requestAnimationFrame(redrawAll);
}).observe(main);
document.documentElement.dataset.ready = "true";
