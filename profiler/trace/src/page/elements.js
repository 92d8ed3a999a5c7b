// The data of the page, and elements.

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
