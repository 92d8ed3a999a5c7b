//! Draws timelines as SVG: a panel for each order, in it a row for each stage, all on one axis of time. Where items
//! are in one stage at the same time, their bars are thinner and lie below each other.

use std::fmt::Write;
use std::ops::Range;

use warpsmith::transfer::pipeline::ItemTimes;

/// The timeline of one order.
pub struct Panel {
    pub name: &'static str,
    pub items: Vec<ItemTimes>,
}

const WIDTH: f64 = 1000.0;
/// Where time begins, and where it ends.
const LEFT: f64 = 110.0;
const RIGHT: f64 = 970.0;
const TOP: f64 = 56.0;
const TITLE: f64 = 30.0;
const ROW: f64 = 26.0;
const BAR: f64 = 20.0;
const GAP: f64 = 22.0;
const PANEL: f64 = TITLE + 3.0 * ROW + GAP;
/// Numbers stand in bars of at least this width.
const NUMBERED: f64 = 20.0;
/// White text is readable on each of them.
const COLOURS: [&str; 6] = ["#1f5fa8", "#b3541e", "#2e7d4f", "#8e3b8a", "#5c6b1f", "#a8323e"];

/// The whole picture.
pub fn svg(device: &str, panels: &[Panel]) -> String {
    let end_us = panels.iter().flat_map(|panel| &panel.items).map(|item| item.copy_out.end);
    let end = (end_us.fold(0.0, f64::max) / 1e3).max(1e-6);
    let height = TOP + PANEL * panels.len() as f64 + 48.0;
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = draw(&mut out, device, panels, end, height);
    out
}

fn x(ms: f64, end: f64) -> f64 {
    LEFT + ms / end * (RIGHT - LEFT)
}

/// The distance of the axis' marks: 1, 2 or 5 times a power of ten, so that there are at most ten.
fn step(end: f64) -> f64 {
    let power = 10f64.powf((end / 10.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|step| end / step <= 10.0)
        .unwrap_or(10.0 * power)
}

fn draw(out: &mut String, device: &str, panels: &[Panel], end: f64, height: f64) -> std::fmt::Result {
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="14" fill="#1a1a1a">
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
<text x="20" y="32" font-size="18" font-weight="bold">When what ran, on {}</text>"##,
        escaped(device)
    )?;
    axis(out, end, height)?;
    for (index, panel) in panels.iter().enumerate() {
        draw_panel(out, panel, TOP + PANEL * index as f64, end)?;
    }
    writeln!(out, "</svg>")
}

fn axis(out: &mut String, end: f64, height: f64) -> std::fmt::Result {
    let (step, bottom) = (step(end), height - 48.0);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    for mark in 0..=(end / step) as usize {
        let ms = mark as f64 * step;
        let at = x(ms, end);
        writeln!(
            out,
            r##"<line x1="{at:.2}" x2="{at:.2}" y1="{TOP}" y2="{bottom}" stroke="#d8d8d8"/>
<text x="{at:.2}" y="{}" text-anchor="middle">{ms:.digits$}</text>"##,
            bottom + 18.0
        )?;
    }
    let (middle, below) = (f64::midpoint(LEFT, RIGHT), bottom + 38.0);
    writeln!(out, r##"<text x="{middle}" y="{below}" text-anchor="middle">milliseconds</text>"##)
}

fn draw_panel(out: &mut String, panel: &Panel, top: f64, end: f64) -> std::fmt::Result {
    let total = panel.items.last().map_or(0.0, |item| item.copy_out.end / 1e3);
    // On white, so that no line of the axis crosses the letters.
    writeln!(
        out,
        r##"<rect x="0" y="{top}" width="{WIDTH}" height="{TITLE}" fill="#ffffff"/>
<text x="20" y="{}" font-size="15" font-weight="bold">{}: {} items in {total:.3} ms</text>"##,
        top + 20.0,
        panel.name,
        panel.items.len()
    )?;
    for (row, stage) in ["copy in", "compute", "copy out"].into_iter().enumerate() {
        let row_top = top + TITLE + ROW * row as f64;
        let base = row_top + 15.0;
        writeln!(out, r##"<text x="{}" y="{base}" text-anchor="end">{stage}</text>"##, LEFT - 12.0)?;
        let spans = panel.items.iter().map(|item| [&item.copy_in, &item.compute, &item.copy_out][row]);
        let (lanes, count) = lanes(spans.clone());
        let thickness = BAR / count as f64;
        for ((item, span), lane) in panel.items.iter().zip(spans).zip(lanes) {
            let (from, to) = (x(span.start / 1e3, end), x(span.end / 1e3, end));
            let (width, colour) = ((to - from).max(0.5), COLOURS[item.item % COLOURS.len()]);
            writeln!(
                out,
                r##"<rect x="{from:.2}" y="{:.2}" width="{width:.2}" height="{thickness:.2}" fill="{colour}" stroke="#ffffff" stroke-width="0.5"><title>item {}, {stage}: {:.3} to {:.3} ms</title></rect>"##,
                row_top + thickness * lane as f64,
                item.item,
                span.start / 1e3,
                span.end / 1e3
            )?;
            if width >= NUMBERED && count == 1 {
                let middle = from + width / 2.0;
                writeln!(
                    out,
                    r##"<text x="{middle:.2}" y="{base}" text-anchor="middle" font-size="13" fill="#ffffff">{}</text>"##,
                    item.item
                )?;
            }
        }
    }
    Ok(())
}

/// The first place in which each span hides none before it, and how many places there are.
fn lanes<'s>(spans: impl Iterator<Item = &'s Range<f64>>) -> (Vec<usize>, usize) {
    let mut ends = Vec::<f64>::new();
    let lanes = spans
        .map(|span| {
            let free = ends.iter().position(|end| *end <= span.start).unwrap_or(ends.len());
            match ends.get_mut(free) {
                Some(end) => *end = span.end,
                None => ends.push(span.end),
            }
            free
        })
        .collect();
    (lanes, ends.len().max(1))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
