//! [`Page`]: a single HTML page whose scripts draw its data.
//!
//! A page is a single file that fetches nothing; its content security policy also forbids fetching. The title and the
//! data are always displayed as text, regardless of their content.

use serde::Serialize;

/// CSS rules of every page, which precede the page's own rules: colors, headings, controls, tables.
const STYLE: &str = include_str!("base.css");
/// JavaScript of every page: `DATA`, `el`, links to sections, and the header of a sorted table.
const SCRIPT: &str = include_str!("elements.js");

/// Contents of a page.
///
/// ```
/// use warpsmith_trace::page::Page;
///
/// let page = Page {
///     title: "A <run>",
///     styles: &["h1 { color: red; }"],
///     scripts: &["document.getElementById('main').append(el('p', {}, DATA.text));"],
///     drawn: "The text",
/// };
/// let html = page.html(&std::collections::BTreeMap::from([("text", "</script>")]));
/// assert!(html.contains("<h1>A &lt;run&gt;</h1>") && html.contains(r#"{"text":"\u003c/script\u003e"}"#));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Heading and title.
    pub title: &'a str,
    /// CSS style sheets, in the order in which they apply.
    pub styles: &'a [&'a str],
    /// JavaScript sources, in the order in which they run. They read the data from `DATA` and fill the elements `about`
    /// and `main`.
    pub scripts: &'a [&'a str],
    /// Name of the content that the page draws, as the plural subject of a sentence.
    pub drawn: &'a str,
}

impl Page<'_> {
    /// Returns the HTML of the page with the given data.
    ///
    /// # Panics
    /// Panics if the data cannot be serialized as JSON.
    pub fn html(&self, data: &impl Serialize) -> String {
        let data = inert(&serde_json::to_string(data).expect("plain data always becomes JSON"));
        let (title, drawn) = (text(self.title), text(self.drawn));
        let (style, script) = (self.styles.join("\n"), self.scripts.join("\n"));
        format!(
            r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{STYLE}
{style}</style>
</head>
<body>
<header><h1>{title}</h1><div id="about"></div></header>
<main id="main"></main>
<noscript><p class="notice">{drawn} of this page are drawn by JavaScript in it, which is switched off.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>
"use strict";
(() => {{
{SCRIPT}
{script}
}})();
</script>
</body>
</html>
"#
        )
    }
}

/// Escapes text for HTML.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escapes JSON so that it can neither end the HTML element that contains it nor start a comment in this element. The
/// escaped characters occur only in strings, in which JSON allows escapes.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
