// The checks of report pages, each on pages in frames. `run` is called with the name of a check, the pages by name and the facts
// about their documents.

/** A report in a frame. */
class Report extends Page {
  /** Chooses an option of the list with this label in a section, by the option's text. */
  choose(section, label, option) {
    const found = this.all(`${section} label`).find((known) => known.firstChild.textContent.trim() === label);
    const list = found.querySelector("select");
    list.selectedIndex = [...list.options].findIndex((known) => known.textContent === option);
    list.dispatchEvent(new this.window.Event("change", { bubbles: true }));
  }

  /** The cells of a column of the table of records, on the page that is shown. */
  column(name) {
    return this.texts(`#records tbody td:nth-child(${this.texts("#records th").indexOf(name) + 1})`);
  }

  numbers(name) {
    return this.column(name).map(Number).filter(Number.isFinite);
  }

  sortBy(name) {
    this.all(`#records th:nth-child(${this.texts("#records th").indexOf(name) + 1}) button`)[0].click();
  }
}

const isSorted = (values, down = false) =>
  values.every((value, index) => !index || (down ? values[index - 1] >= value : values[index - 1] <= value));

const CHECKS = {
  async marks({ usual }, facts) {
    const page = await Report.open(usual);
    const { blocks, grids, items, sizes, samples, not_correct } = facts;
    const configurations = blocks * grids * items;
    equal(page.count("#throughput figure"), 2, "one for each kernel and type");
    const [copy, axpy] = [1, 2].map((place) => `#throughput figure:nth-child(${place}) .marks`);
    equal(page.count(`${copy} path.other`), configurations);
    equal(page.count(`${axpy} path.other`), configurations - not_correct / sizes);
    for (const marks of [copy, axpy]) {
      equal([page.count(`${marks} circle.best`), page.count(`${marks} rect.default`)], [sizes, sizes]);
      for (const line of ["best", "default", "probe", "sheet"]) equal(page.count(`${marks} path.${line}.line`), 1, line);
    }
    equal([page.count("#heat .marks rect.cell"), page.count("#heat .marks rect.cell.winner")], [blocks * items, 1]);
    page.choose("#heat", "Case", "axpy f32 2²⁴, cold");
    equal(page.count("#heat .marks rect.cell.bad"), 1, "512 threads with 8 items");
    page.choose("#heat", "grid", "waves:1");
    equal(page.count("#heat .marks rect.cell.bad"), 2, "and 64 threads with 8 items");
    page.choose("#heat", "Across", "grid");
    equal(page.count("#heat .marks rect.cell"), grids * items);
    equal(page.count("#roofline figure:nth-child(1) .marks .dot"), 2 * sizes, "shares of the probe");
    equal(page.count("#roofline figure:nth-child(2) .marks circle.best"), sizes, "axpy's");
    equal(page.count("#samples .marks .sample"), 2 * samples, "of the best and of the default");
    equal([page.count("#samples .marks .box"), page.count("#best tbody tr")], [2, 2 * sizes]);
    await page.close();
  },

  async chosen({ chosen }, facts) {
    const page = await Report.open(chosen);
    const isChosen = (tip) => ["block=64", "items=1", "waves:1"].every((value) => tip.includes(value));
    const bests = page.texts("#throughput figure:nth-child(1) .marks circle.best title");
    assert(bests.length === facts.sizes && bests.every(isChosen), bests);
    page.choose("#heat", "Case", "copy f32 2²⁴, cold");
    const winner = "#heat .marks rect.cell.winner title";
    assert(page.count(winner) === 1 && page.texts(winner).every(isChosen), page.texts(winner));
    assert(page.texts("#heat figcaption p")[0].startsWith("Chosen: "));
    page.choose("#heat", "grid", "auto");
    equal(page.count(winner), 0, "it is not among them");
    page.choose("#heat", "Case", "axpy f32 2²⁴, cold");
    assert(page.count(winner) === 1 && !isChosen(page.texts(winner)[0]), "nothing was chosen");
    await page.close();
  },

  async sorting({ usual }) {
    const page = await Report.open(usual);
    page.sortBy("Median µs");
    const up = page.numbers("Median µs");
    assert(up.length === 100 && isSorted(up) && up[0] < up[99], up);
    equal(page.count("#records th[aria-sort=ascending]"), 1);
    page.sortBy("Median µs");
    const down = page.numbers("Median µs");
    assert(down.length === 100 && isSorted(down, true) && down[0] > up[99], down);
    equal(page.count("#records th[aria-sort=descending]"), 1);
    page.sortBy("Kernel");
    assert(page.column("Kernel").every((cell) => cell === "axpy"));
    equal(page.count("#records th[aria-sort]"), 1, "only one column is sorted by");
    // Sizes sort by their number, not by their text.
    page.sortBy("Size");
    page.sortBy("Size");
    equal(page.column("Size")[0], "2²⁸");
    await page.close();
  },

  async filters({ usual }, { blocks, grids, items, sizes }) {
    const page = await Report.open(usual);
    const half = sizes * blocks * grids * items;
    page.choose("#records", "Kernel", "copy");
    assert(page.texts("#records .status")[0].includes(`of ${half} (of ${2 * half})`));
    assert(page.column("Kernel").every((cell) => cell === "copy"));
    page.choose("#records", "Kernel", "all");
    page.choose("#records", "Outcome", "failed");
    const problems = page.column("Outcome");
    equal(problems.length, sizes * grids);
    assert(problems.every((cell) => cell.includes("too many registers")), problems);
    equal(page.count("#records tr.failed"), problems.length);
    page.choose("#records", "Outcome", "all");
    page.choose("#records", "Size", "2²⁰");
    const search = page.all("#records input[type=search]")[0];
    const write = (text) => {
      search.value = text;
      search.dispatchEvent(new page.window.Event("input", { bubbles: true }));
    };
    write("axpy block=128 items=2");
    const found = page.column("Configuration");
    assert(found.length === grids, found);
    assert(found.every((cell) => cell.includes("block=128") && cell.includes("items=2")), found);
    write("axpy block=128 items=2 no such thing");
    assert(page.texts("#records tbody")[0].includes("Nothing passes the filters"));
    await page.close();
  },

  async many({ many }) {
    const begun = performance.now();
    const page = await Report.open(many);
    await page.settle();
    assert(performance.now() - begun < 20_000, "loading took", performance.now() - begun);
    equal(page.count("#records tbody tr"), 100);
    assert(page.texts("#records .status")[0].includes("1 to 100 of 10,000"));
    page.all("#records .pager button:nth-child(2)")[0].click();
    assert(page.texts("#records .status")[0].includes("101 to 200"));
    page.sortBy("Median µs");
    const first = page.numbers("Median µs");
    assert(first.length === 100 && isSorted(first), first);
    page.choose("#records", "Kernel", "kernel_7");
    assert(page.texts("#records .status")[0].includes("of 1,000"));
    equal(page.count("#throughput figure"), 10);
    await page.close();
  },

  async hostile({ hostile }, { text }) {
    const page = await Report.open(hostile);
    assert(page.document.title !== "taken" && document.title !== "taken");
    equal([page.count("img"), page.count("script")], [0, 3], "those of the page and of this check");
    equal(page.column("Kernel"), [text, text, text]);
    page.choose("#records", "Outcome", "incorrect");
    equal([page.column("Kernel").length, page.count("#heat .marks rect.cell")], [1, 1]);
    await page.close();
  },

  async unusual(pages, { expected }) {
    for (const [name, figures, words] of expected) {
      const page = await Report.open(pages[name]);
      equal(page.count("figure"), figures, name);
      assert(page.text.includes(words), name, words);
      assert(!/NaN|\[object|undefined|Infinity/.test(page.text), name);
      const isOdd = (mark) => [...mark.attributes].some((found) => /NaN|Infinity|undefined/.test(found.value));
      equal(page.all("svg *").filter(isOdd).length, 0, name);
      for (const width of [360, 768, 1920]) {
        await page.resize(width);
        const root = page.document.documentElement;
        equal(root.scrollWidth, root.clientWidth, `${name}: at ${width} pixels the page is wider than its window`);
        const isWide = (plot) => plot.getBoundingClientRect().right > page.window.innerWidth;
        equal(page.all("svg.plot").filter(isWide).length, 0, `${name}: at ${width} pixels`);
      }
      await page.close();
    }
  },

  async names({ usual }) {
    const page = await Report.open(usual);
    const plots = page.all("svg[role=img]");
    assert(plots.length >= 6);
    for (const plot of plots)
      for (const id of plot.getAttribute("aria-labelledby").split(" "))
        assert(page.document.getElementById(id).textContent.length > 5, id);
    equal(page.count("svg:not([role=img]):not([aria-hidden=true])"), 0);
    equal(page.all("select, input").filter((control) => !control.labels.length).length, 0);
    equal(page.count("th:not([scope=col])"), 0);
    equal([page.count("h1"), page.count("table caption"), page.count("table")], [1, 2, 2]);
    const levels = page.all("h1, h2, h3, h4").map((heading) => Number(heading.tagName[1]));
    assert(levels.every((level, index) => level <= (levels[index - 1] ?? 0) + 1), levels);
    // A choice keeps the focus when the controls beside it are made anew.
    page.all("#heat select")[0].focus();
    page.choose("#heat", "Case", "copy f32 2²⁴, cold");
    equal(page.document.activeElement.parentElement.firstChild.textContent.trim(), "Case");
    await page.close();
  },
};
