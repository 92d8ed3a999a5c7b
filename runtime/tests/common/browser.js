// What checks of pages have in common. `run` is called with the name of a check, the pages by name and the facts about them.

/** What a page logs, throws or is refused to load, from before its own scripts. */
const WATCH = `<script>
  window.complaints = [];
  const complain = (text) => complaints.push(String(text));
  addEventListener("error", (event) => complain(event.message));
  addEventListener("unhandledrejection", (event) => complain(event.reason));
  document.addEventListener("securitypolicyviolation", (event) => complain(event.violatedDirective + event.blockedURI));
  for (const name of ["log", "info", "warn", "error"]) console[name] = (...all) => complain(all.join(" "));
</script>`;

const assert = (is, ...said) => {
  if (!is) throw new Error(said.map((value) => JSON.stringify(value)).join(" "));
};
const equal = (found, expected, ...said) =>
  assert(JSON.stringify(found) === JSON.stringify(expected), "found", found, "expected", expected, ...said);

/** A page in a frame. */
class Page {
  static async open(html, width = 1280) {
    const page = new this();
    page.frame = document.createElement("iframe");
    Object.assign(page.frame.style, { width: `${width}px`, height: "900px", border: "none" });
    page.frame.srcdoc = html.replace("<head>", `<head>${WATCH}`);
    document.body.append(page.frame);
    await new Promise((done) => (page.frame.onload = done));
    page.window = page.frame.contentWindow;
    page.document = page.frame.contentDocument;
    equal(page.document.documentElement.dataset.ready, "true", "the script ran to its end");
    return page;
  }

  all(selector) {
    return [...this.document.querySelectorAll(selector)];
  }

  count(selector) {
    return this.all(selector).length;
  }

  texts(selector) {
    return this.all(selector).map((found) => found.textContent);
  }

  get text() {
    return this.document.body.innerText;
  }

  async settle() {
    for (let frame = 0; frame < 3; frame++) await new Promise((done) => this.window.requestAnimationFrame(done));
  }

  async resize(width) {
    this.frame.style.width = `${width}px`;
    await this.settle();
  }

  async close() {
    await this.settle();
    equal(this.window.complaints, []);
    equal(this.window.performance.getEntriesByType("resource").length, 0, "the page asks for nothing");
    this.frame.remove();
  }
}

const run = async (name, pages, facts) => {
  let outcome = "passed";
  try {
    await CHECKS[name](pages, facts);
  } catch (error) {
    outcome = `${error.message}\n${error.stack}`;
  }
  await fetch("/outcome", { method: "POST", body: outcome });
};
