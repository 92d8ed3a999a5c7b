// The timeline: zoom, pan, search, selection.

const timelineSection = () => {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const spacer = el("div", { class: "spacer" });
  const window_ = el("div", { class: "window" }, canvas);
  const scroller = el(
    "div",
    {
      class: "timeline",
      tabindex: 0,
      role: "application",
      "aria-label": "Timeline. Keys: plus and minus zoom, left and right move, slash searches, 0 shows all.",
    },
    window_,
    spacer,
  );
  const tip = el("div", { class: "tip", hidden: true });
  const details = el("div", { class: "details", role: "status" });
  const found = el("span", { class: "count", role: "status" });
  const search = el("input", { type: "search", placeholder: "Search names", "aria-label": "Search names", spellcheck: "false" });
  const all = Math.max(SPAN, 10);
  const margin = all * 0.01;
  const view = {
    from: -margin,
    to: all + margin,
    left: 180,
    width: 600,
    height: 300,
    scroll: 0,
    selected: null,
    hovered: null,
    found: null,
    drag: null,
  };
  let matches = [];
  let match = -1;

  const context = canvas.getContext("2d");
  let isDrawing = false;
  const redraw = () => {
    if (isDrawing) return;
    isDrawing = true;
    requestAnimationFrame(() => {
      isDrawing = false;
      view.scroll = scroller.scrollTop;
      const ratio = devicePixelRatio || 1;
      const [width, height] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      draw(context, view);
    });
  };
  const resize = () => {
    view.width = Math.max(scroller.clientWidth, 200);
    view.left = Math.min(180, Math.floor(view.width * 0.3));
    view.height = Math.min(Math.max(HEIGHT + 4, 160), Math.max(Math.round(innerHeight * 0.62), 240));
    scroller.style.height = `${view.height + 2}px`;
    window_.style.height = canvas.style.height = `${view.height}px`;
    canvas.style.width = `${view.width}px`;
    spacer.style.height = `${Math.max(HEIGHT - view.height, 0)}px`;
    redraw();
  };

  const NARROWEST = 10;
  const show = (from, to) => {
    const length = Math.min(Math.max(to - from, NARROWEST), all + 2 * margin);
    const middle = (from + to) / 2;
    const [least, most] = [-margin - length * 0.1, all + margin - length * 0.9];
    const begin = Math.min(Math.max(middle - length / 2, least), Math.max(most, least));
    view.from = length >= all + 2 * margin ? -margin : begin;
    view.to = view.from + length;
    tip.hidden = true;
    redraw();
  };
  const fitAll = () => show(-margin, all + margin);
  const atPixel = (px) => view.from + ((px - view.left) / (view.width - view.left)) * (view.to - view.from);
  const zoom = (by, px = view.left + (view.width - view.left) / 2) => {
    const at = atPixel(Math.max(px, view.left));
    show(at - (at - view.from) * by, at + (view.to - at) * by);
  };
  const pan = (share) => {
    const by = share * (view.to - view.from);
    show(view.from + by, view.to + by);
  };

  const reveal = (slice) => {
    const [start, end] = [slice.row.start[slice.index], slice.row.end[slice.index]];
    if (end < view.from || start > view.to || (end - start) * 400 < view.to - view.from) {
      const around = Math.max((end - start) * 10, NARROWEST);
      show(start - around, end + around);
    }
    const y = middleOf(slice.row);
    if (y - ROW < scroller.scrollTop + AXIS || y + ROW > scroller.scrollTop + view.height)
      scroller.scrollTop = y - view.height / 2;
    redraw();
  };
  const select = (slice) => {
    view.selected = slice;
    details.replaceChildren();
    if (slice) {
      const others = relatives(slice);
      const link = (other) =>
        el("button", { type: "button", class: "link", onclick: () => (select(other), reveal(other)) }, `${kindOf(other)} ${nameOf(other)}`);
      const shown = others.slice(0, 20).map((other) => el("li", {}, link(other)));
      const rest = others.length - shown.length;
      details.append(
        el("h3", {}, nameOf(slice)),
        el("dl", {}, facts(slice).map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value)))),
        others.length
          ? el("div", { class: "related" }, el("p", {}, isWork(slice) ? "Enqueued by, and with" : "Enqueued"), el("ul", {}, shown, rest ? el("li", {}, `and ${whole(rest)} more`) : null))
          : null,
      );
    } else details.append(el("p", { class: "hint" }, "Click a slice to see its arguments, and the line from its launch."));
    redraw();
  };

  const find = (text) => {
    const wanted = text.trim().toLowerCase();
    const exact = /^"(.+)"$/s.exec(text.trim())?.[1];
    const isFound = exact ? (name) => name === exact : (name) => name.toLowerCase().includes(wanted);
    view.found = wanted ? new Set(NAMES.flatMap((name, index) => (isFound(name) ? [index] : []))) : null;
    matches = [];
    match = -1;
    if (view.found?.size)
      for (const row of ROWS) row.name.forEach((name, index) => view.found.has(name) && matches.push({ row, index }));
    matches.sort((a, b) => a.row.start[a.index] - b.row.start[b.index]);
    found.textContent = wanted ? (matches.length ? plural(matches.length, "match", "matches") : "no match") : "";
    redraw();
  };
  const step = (by) => {
    if (!matches.length) return;
    match = (match + by + matches.length) % matches.length;
    found.textContent = `${whole(match + 1)} of ${whole(matches.length)}`;
    select(matches[match]);
    reveal(matches[match]);
  };
  search.addEventListener("input", () => find(search.value));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      search.value = "";
      find("");
      scroller.focus();
    } else return;
    event.preventDefault();
  });

  const KEYS = {
    "+": () => zoom(0.6),
    "=": () => zoom(0.6),
    w: () => zoom(0.6),
    "-": () => zoom(1 / 0.6),
    s: () => zoom(1 / 0.6),
    ArrowLeft: () => pan(-0.15),
    a: () => pan(-0.15),
    ArrowRight: () => pan(0.15),
    d: () => pan(0.15),
    0: fitAll,
    Home: fitAll,
    f: () => view.selected && show(...around(view.selected)),
    "/": () => search.focus(),
    n: () => step(1),
    N: () => step(-1),
    Escape: () => select(null),
  };
  const around = ({ row, index }) => {
    const length = Math.max(row.end[index] - row.start[index], NARROWEST);
    return [row.start[index] - length * 0.2, row.start[index] + length * 1.2];
  };
  scroller.addEventListener("keydown", (event) => {
    const action = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
    if (!action) return;
    action();
    event.preventDefault();
  });

  scroller.addEventListener("scroll", redraw);
  scroller.addEventListener(
    "wheel",
    (event) => {
      const px = event.clientX - canvas.getBoundingClientRect().left;
      const lines = event.deltaMode === 1 ? 30 : 1;
      if (event.ctrlKey || event.metaKey || event.altKey) zoom(1.0015 ** (event.deltaY * lines), px);
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        pan(((event.deltaX || event.deltaY) * lines) / (view.width - view.left));
      else return;
      event.preventDefault();
    },
    { passive: false },
  );

  let press = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [px, py] = place(event);
    press = { px, py, from: view.from, to: view.to, scroll: scroller.scrollTop, moved: false, marks: event.shiftKey || py < AXIS };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    if (!press) return hover(px, py);
    if (Math.hypot(px - press.px, py - press.py) > 3) press.moved = true;
    if (!press.moved) return;
    if (press.marks) {
      view.drag = [atPixel(Math.max(press.px, view.left)), atPixel(Math.max(px, view.left))];
      return redraw();
    }
    const by = ((press.px - px) / (view.width - view.left)) * (press.to - press.from);
    scroller.scrollTop = press.scroll + press.py - py;
    show(press.from + by, press.to + by);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!press) return;
    const [px, py] = place(event);
    if (!press.moved) select(sliceAt(view, px, py));
    else if (view.drag) show(Math.min(...view.drag), Math.max(...view.drag));
    press = view.drag = null;
    redraw();
  });
  canvas.addEventListener("pointercancel", () => {
    press = view.drag = null;
    redraw();
  });
  canvas.addEventListener("pointerleave", () => hover(-1, -1));
  canvas.addEventListener("dblclick", (event) => {
    const slice = sliceAt(view, ...place(event));
    if (slice) show(...around(slice));
  });

  const hover = (px, py) => {
    const slice = px < 0 ? null : (sliceAt(view, px, py) ?? valueAt(px, py));
    if (!same(slice, view.hovered)) {
      view.hovered = slice?.row ? slice : null;
      redraw();
    }
    canvas.classList.toggle("over", Boolean(slice?.row));
    tip.hidden = !slice;
    if (!slice) return;
    const pairs = slice.row ? facts(slice).filter(([key]) => key !== "on") : [["at", time(slice.at)]];
    tip.replaceChildren(
      el("strong", {}, slice.row ? nameOf(slice) : slice.text),
      el("dl", {}, pairs.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value)))),
    );
    const box = frame.getBoundingClientRect();
    const window_ = canvas.getBoundingClientRect();
    const [x, y] = [px + window_.left - box.left, py + window_.top - box.top];
    tip.style.left = `${Math.max(Math.min(x + 14, box.width - tip.offsetWidth - 4), 0)}px`;
    tip.style.top = y + 18 + tip.offsetHeight > view.height + 60 ? `${Math.max(y - tip.offsetHeight - 10, 0)}px` : `${y + 18}px`;
  };
  /** The value of a counter at a point. */
  const valueAt = (px, py) => {
    if (px < view.left || py < AXIS) return null;
    const y = py + view.scroll;
    const item = LAYOUT.find(({ track, top, height }) => track?.series && y >= top && y < top + height);
    const at = atPixel(px);
    const index = item ? after(item.track.series.time, at) - 1 : -1;
    if (index < 0) return null;
    const { unit, value } = item.track.series;
    return { at: item.track.series.time[index], text: `${item.track.name}: ${amount(value[index], unit)}` };
  };

  const button = (label, text, action) => el("button", { type: "button", title: label, "aria-label": label, onclick: action }, text);
  const frame = el("div", { class: "frame" }, scroller, tip);
  const node = el(
    "section",
    { id: "timeline" },
    el("h2", {}, "Timeline"),
    el(
      "div",
      { class: "controls" },
      button("Zoom in", "+", () => zoom(0.6)),
      button("Zoom out", "−", () => zoom(1 / 0.6)),
      button("Show all", "All", fitAll),
      search,
      button("Previous match", "‹", () => step(-1)),
      button("Next match", "›", () => step(1)),
      found,
    ),
    frame,
    el(
      "p",
      { class: "hint keys" },
      "Ctrl and wheel, or + and −, zoom; drag, or ← and →, move; shift and drag, or a drag on the axis, zooms into a stretch; double click, or F, zooms into a slice; / searches (a name in quotes: that name alone), N goes to the next match; 0 shows all.",
    ),
    details,
  );
  node.search = (name) => {
    search.value = `"${name}"`;
    find(search.value);
    step(1);
    node.scrollIntoView({ block: "start" });
  };
  node.begin = () => {
    readTheme();
    resize();
    select(null);
    new ResizeObserver(() => requestAnimationFrame(resize)).observe(scroller.parentElement);
    addEventListener("resize", resize);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      readTheme();
      inks.clear();
      redraw();
    });
  };
  // What tests look at.
  node.view = view;
  node.slices = ROWS.reduce((sum, row) => sum + row.start.length, 0);
  return node;
};
