// The tables, sorted by their headers.

/** `columns`: { name, value: what is sorted by, cell: what is shown, text: left-aligned, title }. */
const FIRST = 20;
const sortable = (caption, columns, rows) => {
  let [sorted, descending, isWhole] = [null, false, false];
  const kind = (column) => (column.text ? "text" : "number");
  const body = el("tbody", {});
  const more = el("button", { type: "button", class: "more", onclick: () => ((isWhole = true), fill()) }, `Show all ${whole(rows.length)} rows`);
  const fill = () => {
    const value = sorted?.value;
    const order = (a, b) => {
      const [x, y] = descending ? [value(b), value(a)] : [value(a), value(b)];
      return typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    };
    const shown = (sorted ? [...rows].sort(order) : rows).slice(0, isWhole ? rows.length : FIRST);
    body.replaceChildren(...shown.map((row) => el("tr", {}, columns.map((column) => el("td", { class: kind(column) }, (column.cell ?? column.value)(row))))));
    more.hidden = shown.length === rows.length;
  };
  const head = sortingHead(columns, kind, (column) => {
    // Names from A on, numbers from the largest.
    descending = sorted === column ? !descending : !column.text;
    sorted = column;
    fill();
    return descending;
  });
  fill();
  return el("div", { class: "table" }, scrolling(caption, head, body), more);
};

const textColumn = (name, value, cell) => ({ name, value, cell, text: true });
const number = (name, value, title) => ({ name, value, cell: (row) => whole(value(row)), title });
const duration = (name, value, title) => ({ name, value, cell: (row) => time(value(row)), title });
const share = (name, value, title) => ({ name, value, cell: (row) => percent(value(row)), title });
const size = (name, value, title) => ({ name, value, cell: (row) => bytes(value(row)), title });
const ratio = (part, all) => (all > 0 ? part / all : 0);
/** A time, with its share of the row's span. */
const part = (name, value, title) => ({ name, value, cell: (row) => `${time(value(row))} (${percent(ratio(value(row), row.span))})`, title });
const known = (name, value, cell, title) => ({ name, value, cell: (row) => (value(row) > 0 ? cell(value(row)) : "–"), title });

/** A name that the timeline is searched for. */
const seek = (name, search) => el("button", { type: "button", class: "link", title: "Find it in the timeline", onclick: () => search(name) }, name || "unnamed");
