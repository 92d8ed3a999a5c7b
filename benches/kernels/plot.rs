//! Plots the results. For each family, it shows the bandwidth of each side over the size, as a fraction of the copy
//! bandwidth.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cases::{ELEMENTWISE, OF_ROWS};
use crate::report::copy_rate;
use crate::results::{Results, Row};

/// Panels per row, and the width of a panel in pixels.
const ACROSS: usize = 3;
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 190.0;
const MARGIN: [f64; 2] = [44.0, 34.0];
/// Maximum fraction that is drawn.
const TOP: f64 = 1.2;

/// Side with its name, its color, and the function that reads its time.
type Side = (&'static str, &'static str, fn(&Row) -> Option<f64>);

const SIDES: [Side; 3] = [
    ("Warpsmith", "#c2410c", |row| row.times.ours),
    ("CUB", "#15803d", |row| row.times.cub),
    ("PyTorch", "#1d4ed8", |row| row.torch),
];

/// Draws an SVG document. Each point is the geometric mean of the cases of one size.
pub fn svg(results: &Results) -> String {
    let copy = copy_rate(results).unwrap_or(1.0);
    let panels: [(&str, &[&str], bool); 6] = [
        ("elementwise", &ELEMENTWISE, false),
        ("sum and max", &["sum", "max"], false),
        ("scan", &["scan"], false),
        ("sums of rows, by columns", &["row_sum"], true),
        ("sums of columns, by columns", &["column_sum"], true),
        ("softmax and norms, by columns", &OF_ROWS, true),
    ];
    let rows = panels.len().div_ceil(ACROSS);
    let (width, height) = (ACROSS as f64 * WIDTH, rows as f64 * HEIGHT + 24.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<title>Bytes per second over those of a copy, on {}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n",
        escaped(&results.device)
    );
    for (i, (title, operations, by_columns)) in panels.into_iter().enumerate() {
        let corner = ((i % ACROSS) as f64 * WIDTH, (i / ACROSS) as f64 * HEIGHT);
        let of_panel = results.rows.iter().filter(|row| operations.contains(&row.case.operation));
        svg += &panel(title, corner, &of_panel.collect::<Vec<_>>(), by_columns, copy);
    }
    for (i, (name, color, _)) in SIDES.into_iter().enumerate() {
        let (x, y) = (MARGIN[0] + 110.0 * i as f64, height - 10.0);
        let _ = writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"{}\" r=\"4\" fill=\"{color}\"/><text x=\"{}\" y=\"{y}\">{name}</text>",
            y - 4.0,
            x + 8.0
        );
    }
    svg + "</svg>\n"
}

fn panel(title: &str, (left, top): (f64, f64), rows: &[&Row], by_columns: bool, copy: f64) -> String {
    let place = |row: &Row| {
        let size = if by_columns { row.case.columns } else { row.case.elements() };
        (size as f64).log2()
    };
    let smallest = rows.iter().map(|row| place(row)).fold(f64::INFINITY, f64::min);
    let most = rows.iter().map(|row| place(row)).fold(f64::NEG_INFINITY, f64::max);
    let inner = (WIDTH - MARGIN[0] - 12.0, HEIGHT - 2.0 * MARGIN[1]);
    let x = |place: f64| left + MARGIN[0] + (place - smallest) / (most - smallest).max(1.0) * inner.0;
    let y = |share: f64| top + MARGIN[1] + (1.0 - share.min(TOP) / TOP) * inner.1;
    let mut svg = format!(
        "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{title}</text>\n",
        left + MARGIN[0],
        top + MARGIN[1] - 10.0
    );
    for share in [0.0, 0.5, 1.0] {
        let (at, end) = (y(share), left + WIDTH - 12.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{} {at}H{end}\" stroke=\"#ccc\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{share}</text>",
            left + MARGIN[0],
            left + MARGIN[0] - 5.0,
            at + 4.0
        );
    }
    if rows.is_empty() {
        return svg;
    }
    for place in [smallest, most] {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">2^{place:.0}</text>",
            x(place),
            top + HEIGHT - MARGIN[1] + 14.0
        );
    }
    for (_, color, time) in SIDES {
        // The keys are positions in thousandths, so that they are ordered. The values are the sum of logarithms and
        // their number.
        let mut points = BTreeMap::<u64, (f64, f64)>::new();
        for row in rows {
            if let Some(us) = time(row) {
                let point = points.entry((place(row) * 1e3) as u64).or_default();
                *point = (point.0 + (row.gigabytes(us) / copy).ln(), point.1 + 1.0);
            }
        }
        let points: Vec<(f64, f64)> = points
            .into_iter()
            .map(|(place, (logs, count))| (x(place as f64 / 1e3), y((logs / count).exp())))
            .collect();
        let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
            line.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{color}\"/>");
        }
    }
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
