// The data of the page, elements, and what its tables and its list of sections are made of.

const DATA = JSON.parse(document.getElementById("data").textContent);

/** Sets attributes and appends children; text becomes text nodes, never markup. */
const furnish = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
};
const el = (tag, attributes, ...children) => furnish(document.createElement(tag), attributes, children);

const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(1)} %` : "–");

/** Links to sections: { id, title }. */
const navigation = (sections) =>
  el("nav", { "aria-label": "Sections" }, sections.map(({ id, title }) => el("a", { href: `#${id}` }, title)));

/** A table, which scrolls in its width. */
const scrolling = (caption, head, body) =>
  el(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), body),
  );

/** The header of each column: { name, title }. `sort` gets the column that is chosen, and says whether it descends. */
const sortingHead = (columns, kind, sort) => {
  const cells = columns.map((column) => {
    const choose = () => {
      for (const other of cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", sort(column) ? "descending" : "ascending");
    };
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const button = el("button", { type: "button", title: column.title ?? null, onclick: choose }, column.name, arrow);
    const cell = el("th", { scope: "col", class: kind(column) }, button);
    return cell;
  });
  return cells;
};
