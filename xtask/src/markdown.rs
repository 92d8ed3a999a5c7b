//! Parses the parts of a Markdown page that the guide's checks require: headings, links, listings and tables.

/// A Markdown page.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a>(&'a str);

/// A listing that quotes a part of a file. The comment above the listing names the file: `<!-- quotes FILE -->`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote<'a> {
    pub file: &'a str,
    /// Line number of the listing's fence, which is the line after the comment even if no listing follows.
    pub line: usize,
    /// Lines of the listing; empty if no listing follows the comment.
    pub listing: Vec<&'a str>,
}

/// First line of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence<'a> {
    pub line: usize,
    /// Language and attributes, as in `rust,no_run`.
    info: &'a str,
}

impl Fence<'_> {
    pub fn is_rust(&self) -> bool {
        self.info.split(',').any(|word| word == "rust")
    }

    /// Returns the problem with the listing's language or attributes, if any.
    pub fn problem(&self) -> Option<&'static str> {
        if self.info.is_empty() {
            Some("the listing has no language; write ```text for plain text")
        } else if self.info.split(',').any(|word| word.starts_with("ignore")) {
            Some("the listing is not compiled; write `no_run` if it cannot run, or `text`")
        } else {
            None
        }
    }
}

impl<'a> Page<'a> {
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns each line with its number, and true if the line is outside of listings.
    fn lines(self) -> impl Iterator<Item = (usize, &'a str, bool)> {
        let mut is_listing = false;
        self.0.lines().enumerate().map(move |(index, line)| {
            let is_fence = line.trim_start().starts_with("```");
            let is_prose = !is_listing && !is_fence;
            is_listing ^= is_fence;
            (index + 1, line, is_prose)
        })
    }

    /// Returns the info string and the text of each listing.
    pub fn listings(self) -> Vec<(&'a str, String)> {
        let mut listings: Vec<(&str, String)> = Vec::new();
        let mut is_listing = false;
        for line in self.0.lines() {
            match line.trim_start().strip_prefix("```") {
                Some(info) => {
                    is_listing = !is_listing;
                    if is_listing {
                        listings.push((info, String::new()));
                    }
                }
                None if is_listing => {
                    listings.last_mut().into_iter().for_each(|(_, text)| *text += &format!("{line}\n"))
                }
                None => {}
            }
        }
        listings
    }

    /// Returns the first line of each listing.
    pub fn fences(self) -> impl Iterator<Item = Fence<'a>> {
        let fences =
            self.lines().filter_map(|(line, text, _)| Some((line, text.trim_start().strip_prefix("```")?)));
        fences.step_by(2).map(|(line, info)| Fence { line, info: info.trim() })
    }

    /// Returns the listings that quote files.
    pub fn quotes(self) -> impl Iterator<Item = Quote<'a>> {
        let is_fence = |line: &str| line.starts_with("```");
        self.lines().filter(|(.., is_prose)| *is_prose).filter_map(move |(number, line, _)| {
            let file = line.strip_prefix("<!-- quotes ")?.strip_suffix(" -->")?;
            let mut rest = self.0.lines().skip(number);
            let is_listing = rest.next().is_some_and(is_fence);
            let listing = rest.take_while(|line| is_listing && !is_fence(line)).collect();
            Some(Quote { file, line: number + 1, listing })
        })
    }

    /// Returns the tables, each with the line number of its first line and with all of its lines.
    pub fn tables(self) -> Vec<(usize, Vec<&'a str>)> {
        let mut tables: Vec<(usize, Vec<&str>)> = Vec::new();
        for (number, line, is_prose) in self.lines() {
            if !is_prose || !line.starts_with('|') {
                continue;
            }
            match tables.last_mut() {
                Some((first, rows)) if *first + rows.len() == number => rows.push(line),
                _ => tables.push((number, vec![line])),
            }
        }
        tables
    }

    /// Returns the anchors of the headings, as GitHub generates them.
    pub fn anchors(self) -> impl Iterator<Item = String> {
        self.lines().filter(|(.., is_prose)| *is_prose).filter_map(|(_, line, _)| {
            let heading = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
            let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            Some(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect())
        })
    }

    /// Returns the lines of text with their numbers, excluding listings, headings, tables and HTML. Code in backticks
    /// counts as one word.
    pub fn prose(self) -> impl Iterator<Item = (usize, String)> {
        let is_text = |line: &str| !line.trim_start().starts_with(['#', '|', '<']);
        let lines = self.lines().filter(move |(_, line, is_prose)| *is_prose && is_text(line));
        lines.map(|(number, line, _)| {
            let pieces = line.split('`').enumerate();
            (number, pieces.map(|(index, piece)| if index % 2 == 0 { piece } else { "code" }).collect())
        })
    }

    /// Returns the targets of links and pictures, with their line numbers.
    pub fn links(self) -> impl Iterator<Item = (usize, &'a str)> {
        self.lines()
            .filter(|(.., is_prose)| *is_prose)
            .flat_map(|(number, line, _)| targets(line).into_iter().map(move |target| (number, target)))
    }

    /// Returns the first cell of each table row, with the heading above the table.
    pub fn first_cells(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut heading = "";
        self.lines().filter(|(.., is_prose)| *is_prose).filter_map(move |(_, line, _)| {
            if line.starts_with('#') {
                heading = line.trim_start_matches('#').trim();
            }
            Some((heading, line.strip_prefix("| ")?.split(" | ").next()?))
        })
    }
}

/// Returns the code that a text contains in backticks.
pub fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the link targets in a line. Text in backticks is not a link.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut is_code = false;
    for (index, c) in line.char_indices() {
        is_code ^= c == '`';
        if !is_code
            && let Some((target, _)) = line[index..].strip_prefix("](").and_then(|rest| rest.split_once(')'))
        {
            targets.push(target);
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A `b`: c, d\ntext [one](x.md#y) and ![two](z.svg), `[no](t)`\n```rust\n# hidden [no](t)\n```\n\
        ## E_f-g\n```\n```\n";

    #[test]
    fn listings_have_lines_and_languages() {
        let fences: Vec<_> = Page::new(PAGE).fences().collect();
        assert_eq!(fences, [Fence { line: 3, info: "rust" }, Fence { line: 7, info: "" }]);
        assert!(fences[0].is_rust() && fences[0].problem().is_none());
        assert!(!fences[1].is_rust() && fences[1].problem().is_some());
        assert!(Fence { line: 1, info: "rust,ignore" }.problem().is_some());
        assert!(Fence { line: 1, info: "rust,no_run" }.problem().is_none());
    }

    #[test]
    fn quotes_are_listings_below_the_name_of_a_file() {
        let page = Page::new(
            "<!-- quotes a.rs -->\n```rust\nlet a;\n\nlet b;\n```\n```rust\nlet c;\n```\n<!-- quotes b.rs -->\ntext\n",
        );
        let quotes = [
            Quote { file: "a.rs", line: 2, listing: vec!["let a;", "", "let b;"] },
            Quote { file: "b.rs", line: 11, listing: vec![] },
        ];
        assert_eq!(page.quotes().collect::<Vec<_>>(), quotes);
    }

    #[test]
    fn tables_are_rows_that_follow_each_other() {
        let page = Page::new("| a |\n| b |\n\n```text\n| no |\n```\n| c |\n");
        assert_eq!(page.tables(), [(1, vec!["| a |", "| b |"]), (7, vec!["| c |"])]);
    }

    #[test]
    fn headings_become_anchors() {
        assert_eq!(Page::new(PAGE).anchors().collect::<Vec<_>>(), ["a-b-c-d", "e_f-g"]);
    }

    #[test]
    fn links_are_found_outside_of_code() {
        assert_eq!(Page::new(PAGE).links().collect::<Vec<_>>(), [(2, "x.md#y"), (2, "z.svg")]);
    }
}
