// The trace: columns of integers become typed arrays, with times in nanoseconds since its beginning.

const { names: NAMES, kinds: KINDS, arguments: ARGUMENTS, span: SPAN } = DATA.timeline;

const sums = (steps) => {
  const all = new Float64Array(steps.length);
  let sum = 0;
  for (let index = 0; index < steps.length; index++) all[index] = sum += steps[index];
  return all;
};
const rowOf = (row, track) => {
  const start = sums(row.s);
  const end = new Float64Array(start.length);
  for (let index = 0; index < end.length; index++) end[index] = start[index] + row.d[index];
  const joined = new Map(row.joined.map(([index, count, busy]) => [index, { count, busy }]));
  return {
    track,
    start,
    end,
    name: Uint32Array.from(row.n),
    kind: Uint8Array.from(row.k),
    argument: Uint32Array.from(row.a),
    flow: Uint32Array.from(row.f),
    joined,
  };
};
const TRACKS = DATA.timeline.tracks.map((given) => {
  const track = { group: given.group, name: given.name, series: null };
  track.rows = given.rows.map((row) => rowOf(row, track));
  track.points = rowOf(given.points, track);
  if (given.series) {
    const { unit, t, v } = given.series;
    const highest = v.reduce((most, value) => Math.max(most, value), 0);
    const lowest = v.reduce((least, value) => Math.min(least, value), 0);
    track.series = { unit, time: sums(t), value: v, highest, lowest };
  }
  return track;
});
/** All slices and points are addressed as { row, index }. */
const ROWS = TRACKS.flatMap((track) => [...track.rows, track.points]);
const COLORS = ARGUMENTS.map((pairs) => pairs.find(([key]) => key === "color")?.[1] ?? null);

/** What has a flow, by its number. */
const FLOWS = new Map();
for (const row of ROWS)
  row.flow.forEach((flow, index) => {
    if (!flow) return;
    if (FLOWS.has(flow)) FLOWS.get(flow).push({ row, index });
    else FLOWS.set(flow, [{ row, index }]);
  });

const same = (a, b) => a !== null && b !== null && a.row === b.row && a.index === b.index;
const nameOf = ({ row, index }) => NAMES[row.name[index]] || "unnamed";
const kindOf = ({ row, index }) => KINDS[row.kind[index]];
/** On a device, not on the host. */
const isWork = (slice) => ["kernel", "copy", "memset"].includes(kindOf(slice));
/** The calls and the work that belong to a slice, the work of a graph's launch too. */
const relatives = (slice) => {
  const flow = slice.row.flow[slice.index];
  return flow ? FLOWS.get(flow).filter((other) => !same(other, slice)) : [];
};

/** The first place at which `times` is greater than `time`. */
const after = (times, time) => {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
};

/** What to say of a slice: pairs of a key and a text. */
const facts = (slice) => {
  const { row, index } = slice;
  const duration = row.end[index] - row.start[index];
  const pairs = [];
  const joined = row.joined.get(index);
  if (joined)
    pairs.push(["joined here", `${plural(joined.count, "slice")}, together ${time(joined.busy)}, named for the first`]);
  pairs.push(["kind", kindOf(slice)], ["at", time(row.start[index])]);
  if (row.track.points !== row) pairs.push(["duration", time(duration)]);
  pairs.push(["on", `${row.track.group}, ${row.track.name}`]);
  for (const [key, value] of ARGUMENTS[row.argument[index]])
    if (key !== "color") pairs.push([key, key === "bytes" ? `${whole(value)} (${bytes(value)})` : String(value)]);
  const moved = ARGUMENTS[row.argument[index]].find(([key]) => key === "bytes");
  if (moved && duration > 0 && isWork(slice)) pairs.push(["bandwidth", `${digits(moved[1] / duration)} GB/s`]);
  return pairs;
};
