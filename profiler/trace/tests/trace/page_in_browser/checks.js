// The checks of pages of traces, each on pages in frames.

/** The page of a trace. */
class TracePage extends Page {
  get view() {
    return this.all("#timeline")[0].view;
  }

  get shown() {
    return this.view.to - this.view.from;
  }

  async key(name) {
    const options = { key: name, bubbles: true, cancelable: true };
    this.all(".timeline")[0].dispatchEvent(new this.window.KeyboardEvent("keydown", options));
    await this.settle();
  }

  async wheel(options) {
    const box = this.all("canvas")[0].getBoundingClientRect();
    const event = { clientX: box.left + box.width / 2, bubbles: true, cancelable: true, ...options };
    this.all("canvas")[0].dispatchEvent(new this.window.WheelEvent("wheel", event));
    await this.settle();
  }

  /** A pointer at a place of the canvas, by share of its width, and pixels from its top. */
  async pointer(type, x, y, options = {}) {
    const canvas = this.all("canvas")[0];
    const box = canvas.getBoundingClientRect();
    // There is no pointer to capture.
    canvas.setPointerCapture = () => {};
    const event = { clientX: box.left + box.width * x, clientY: box.top + y, button: 0, pointerId: 1, bubbles: true, ...options };
    canvas.dispatchEvent(new this.window.PointerEvent(type, event));
    await this.settle();
  }

  async search(text) {
    const input = this.all("input[type=search]")[0];
    input.value = text;
    input.dispatchEvent(new this.window.Event("input"));
    await this.settle();
  }

  async enter(options = {}) {
    this.all("input[type=search]")[0].dispatchEvent(new this.window.KeyboardEvent("keydown", { key: "Enter", ...options }));
    await this.settle();
  }

  column(table, name) {
    const names = this.texts(`#${table} th`);
    assert(names.includes(name), names, name);
    return this.texts(`#${table} tbody td:nth-child(${names.indexOf(name) + 1})`);
  }

  sortBy(table, name) {
    this.all(`#${table} th:nth-child(${this.texts(`#${table} th`).indexOf(name) + 1}) button`)[0].click();
  }

  /** How many pixels of the canvas have another color than its ground. */
  inked() {
    const canvas = this.all("canvas")[0];
    const { data } = canvas.getContext("2d").getImageData(200, 30, canvas.width - 200, canvas.height - 30);
    let count = 0;
    for (let at = 4; at < data.length; at += 4) if (data[at] !== data[0] || data[at + 1] !== data[1]) count++;
    return count;
  }
}

const CHECKS = {
  async step({ step }) {
    const page = await TracePage.open(step);
    await page.settle();
    assert(page.inked() > 1000, "slices are drawn");
    const sections = ["Timeline", "Devices", "Streams", "Launches", "Kernels", "Ranges", "Source lines", "Copies", "Calls", "Loss"];
    for (const name of sections) assert(page.texts("h2").includes(name), name, page.texts("h2"));
    assert(page.text.includes("1 dropped") && page.text.includes("3 operations have no usable record"), page.text.slice(0, 400));

    // Zoom, move, show all.
    const whole = page.shown;
    await page.key("+");
    const zoomed = page.shown;
    assert(zoomed < whole * 0.7, zoomed, whole);
    const from = page.view.from;
    await page.key("ArrowRight");
    assert(page.view.from > from && Math.abs(page.shown - zoomed) < 1, "moved");
    await page.wheel({ ctrlKey: true, deltaY: -300 });
    assert(page.shown < zoomed * 0.8, "the wheel zooms");
    const before = [page.view.from, page.view.to];
    await page.wheel({ deltaY: 50 });
    equal([page.view.from, page.view.to], before, "the wheel alone scrolls");
    await page.wheel({ shiftKey: true, deltaY: 100 });
    assert(page.view.from > before[0], "with shift it moves");
    await page.key("-");
    await page.key("0");
    equal(page.shown, whole);
    await page.pointer("pointerdown", 0.5, 10);
    await page.pointer("pointermove", 0.7, 10);
    await page.pointer("pointerup", 0.7, 10);
    assert(page.shown < whole * 0.3, "a drag on the axis zooms", page.shown, whole);
    const dragged = page.view.from;
    await page.pointer("pointerdown", 0.5, 60);
    await page.pointer("pointermove", 0.6, 60);
    await page.pointer("pointerup", 0.6, 60);
    assert(page.view.from < dragged, "a drag moves");
    await page.key("Home");

    // Search, selection, and what belongs to it.
    await page.search("SAXPY");
    equal(page.texts(".count")[0], "1 match");
    await page.enter();
    equal(page.texts(".details h3")[0], "saxpy<f32>");
    assert(page.texts(".details dd").includes("1024 x 2 x 1"), page.texts(".details dd"));
    assert(page.texts(".details dd").includes("src/main.rs:12"), "the source line");
    const launch = page.all(".details .link");
    equal(launch.length, 2, "its call, and the wait that it needed");
    const call = launch.find((link) => link.textContent.includes("cuLaunchKernelEx"));
    const height = page.inked();
    call.click();
    await page.settle();
    equal(page.texts(".details h3")[0], "cuLaunchKernelEx");
    await page.key("0");
    const lines = page.inked();
    await page.key("Escape");
    assert(page.inked() < lines && height > 0, "the line to the kernel is gone with the selection");
    await page.search("no such name");
    equal(page.texts(".count")[0], "no match");
    await page.search("");

    // What the pointer is on.
    await page.search("copy host to device");
    await page.enter();
    const view = page.view;
    const { row, index } = view.selected;
    const middle = (row.start[index] + row.end[index]) / 2;
    const x = (view.left + ((middle - view.from) / (view.to - view.from)) * (view.width - view.left)) / view.width;
    const tip = page.all(".tip")[0];
    for (let y = 30; y < view.height && tip.hidden; y += 6) await page.pointer("pointermove", x, y);
    assert(!tip.hidden && tip.textContent.length > 20, tip.textContent);
    await page.pointer("pointerleave", x, 40);
    assert(tip.hidden, "it goes when the pointer leaves");
    await page.close();
  },

  async tables({ launches }, facts) {
    const page = await TracePage.open(launches);
    equal(page.column("kernels", "Kernel").length, 20, "the first rows");
    page.all("#kernels .more")[0].click();
    equal(page.column("kernels", "Kernel").length, facts.names);
    const counts = () => page.column("kernels", "Count").map((text) => Number(text.replaceAll(",", "")));
    page.sortBy("kernels", "Count");
    const down = counts();
    assert(down.every((value, index) => !index || down[index - 1] >= value), down);
    page.sortBy("kernels", "Count");
    equal(counts(), [...down].sort((a, b) => a - b));
    equal(page.count("#kernels th[aria-sort=ascending]"), 1);
    page.sortBy("kernels", "Kernel");
    equal(page.column("kernels", "Kernel").slice(0, 3), [0, 1, 2].map((name) => `kernel number ${name}`));
    page.all("#kernels tbody .link")[3].click();
    await page.settle();
    equal(page.texts(".details h3")[0], "kernel number 3");
    await page.close();
  },

  async large({ large, reduced }, facts) {
    const begun = performance.now();
    const page = await TracePage.open(large);
    await page.settle();
    const took = performance.now() - begun;
    assert(took < 3000, `opened in ${took} ms`);
    equal(page.count(".notice"), 0, "nothing is left out");
    const slices = page.view && page.window.document.getElementById("timeline").slices;
    equal(slices, facts.slices);
    // A picture takes no longer than a blink.
    const drawing = performance.now();
    for (let turn = 0; turn < 10; turn++) await page.key(turn % 2 ? "-" : "+");
    assert(performance.now() - drawing < 3000, performance.now() - drawing);
    await page.close();
    const less = await TracePage.open(reduced);
    assert(less.texts(".notice").join().includes("are merged with their neighbors"), less.texts(".notice"));
    assert(less.window.document.getElementById("timeline").slices <= facts.most, "as many as a page has");
    assert(less.inked() > 1000, "they are drawn");
    await less.close();
  },

  async hostile({ hostile, text }, facts) {
    const page = await TracePage.open(hostile);
    await page.search(facts.text);
    await page.enter();
    equal(page.texts(".details h3")[0], facts.text, "text stays text");
    equal(page.texts("h1")[0], facts.text);
    equal([page.count("img"), page.count("main b")], [0, 0]);
    assert(page.column("kernels", "Kernel").includes(facts.text));
    equal(page.window.taken, undefined);
    await page.close();
  },

  async unusual(pages) {
    for (const [name, html] of Object.entries(pages)) {
      for (const width of [1280, 360]) {
        const page = await TracePage.open(html, width);
        await page.settle();
        const wide = page.document.documentElement.scrollWidth;
        assert(wide <= width, name, "is wider than the window", wide, width);
        for (const key of ["+", "ArrowLeft", "-", "0", "f", "n", "Escape"]) if (page.count(".timeline")) await page.key(key);
        if (name === "empty") assert(page.text.includes("The trace is empty"), page.text);
        const levels = page.all("h1, h2, h3").map((heading) => Number(heading.tagName[1]));
        assert(levels.every((level, index) => level <= (levels[index - 1] ?? 0) + 1), levels);
        equal(page.all("button, input").filter((control) => !(control.textContent || control.ariaLabel)).length, 0, "controls have names");
        await page.close();
      }
    }
  },
};
