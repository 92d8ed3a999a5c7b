// Numbers as text.

const whole = (value) => Math.round(value).toLocaleString("en");
const digits = (value) => value.toFixed(Math.abs(value) >= 100 ? 1 : 2);

/** Nanoseconds in the unit that suits them. */
const time = (ns) => {
  const size = Math.abs(ns);
  if (size < 1e3) return `${Number.isInteger(ns) ? ns : ns.toFixed(1)} ns`;
  if (size < 1e6) return `${digits(ns / 1e3)} us`;
  if (size < 1e9) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
};
const bytes = (count) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; Math.abs(count) >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${Number(count.toFixed(1)).toLocaleString("en")} ${units[unit]}`;
};
/** A value of a counter. */
const amount = (value, unit) => {
  if (unit === "B" || unit === "bytes") return bytes(value);
  return `${Number(value.toPrecision(5)).toLocaleString("en")} ${unit}`.trim();
};
