//! `warpsmith profile`: runs a program with its profiler on, and shows what it recorded.
//!
//! The program finds `WARPSMITH_PROFILE` in its environment, and so does every program that it starts. Each process writes a
//! file of its own, which is named for it (`%p` in the variable); what is alone gets the name that was asked for.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{complain, print, print_json};
use warpsmith_trace::summary::{Digest, Summary};

use crate::args::ProfileArgs;
use crate::child;

/// The JSON document.
#[derive(Serialize)]
struct Document {
    schema: u32,
    exit_code: u8,
    traces: Vec<Table>,
}

#[derive(Serialize)]
struct Table {
    trace: String,
    /// Where the file is damaged, if it is.
    damage: Option<String>,
    #[serde(flatten)]
    summary: Summary,
}

/// Runs the program, and prints the tables of what it recorded.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let [program, arguments @ ..] = &args.program[..] else {
        return Err(Failure::Use("no program is given".to_owned()));
    };
    let files = Files::new(&args.out)?;
    let mut command = Command::new(program);
    command.args(arguments).env("WARPSMITH_PROFILE", files.pattern());
    if args.json {
        // Standard output holds the document alone.
        command.stdout(io::stderr());
    }
    let name = program.to_string_lossy();
    let status = child::run(&mut command).map_err(|error| {
        Failure::Use(format!("cannot run `{name}`: {error}; give the path or the name of a program"))
    })?;
    let code = child::code(status);
    let traces = files.collect()?;
    if traces.is_empty() {
        complain(&format!("warpsmith: `{name}` ({status}) {NO_TRACE}"));
        return Err(if code == 0 { Failure::Shown } else { Failure::Program(code) });
    }
    let is_damaged = show(args, &traces, code)?;
    match code {
        0 if is_damaged => Err(Failure::Shown),
        0 => Ok(()),
        code => Err(Failure::Program(code)),
    }
}

const NO_TRACE: &str = "wrote no trace: it must be linked with Warpsmith's profiler, open a device, and end by returning from \
                        `main` or by `exit`";

/// Prints and writes what traces hold; whether one is damaged.
fn show(args: &ProfileArgs, traces: &[PathBuf], code: u8) -> Result<bool, Failure> {
    let mut tables = Vec::new();
    let mut is_damaged = false;
    for path in traces {
        let digest = Digest::read(path).map_err(|error| Failure::Failed(error.to_string()))?;
        let (summary, trace) = (digest.summary(), path.display().to_string());
        if !args.json {
            let head = if tables.is_empty() { "" } else { "\n" };
            print(&format!("{head}{}\nThe trace is in {trace}\n", summary.text(args.top)))?;
        }
        if let Some(page) = &args.html {
            let page = if traces.len() == 1 { page.clone() } else { beside(page, path) };
            let title = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            digest.write_html(&page, &title).map_err(|error| Failure::Use(error.to_string()))?;
        }
        if let Some(damage) = digest.damage() {
            is_damaged = true;
            complain(&format!("warpsmith: the trace {trace} {damage}; what stands before is shown"));
        }
        tables.push(Table { trace, damage: digest.damage().map(|damage| damage.to_string()), summary });
    }
    if args.json {
        let document = Document { schema: 1, exit_code: code, traces: tables };
        print_json(
            &(serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n"),
        )?;
    }
    Ok(is_damaged)
}

/// The name of a page for one of several traces: `page.html` becomes `page.1234.html` for `profile.1234.pftrace`.
fn beside(page: &Path, trace: &Path) -> PathBuf {
    let process = trace.file_name().and_then(|name| name.to_str()?.split('.').nth(1)).unwrap_or("0");
    let extension = page.extension().unwrap_or_default().to_string_lossy();
    page.with_extension(format!("{process}.{extension}"))
}

/// Where processes write, and where that goes.
struct Files {
    folder: PathBuf,
    /// The name that was asked for; `%p` in it stands for the number of the process.
    name: String,
    /// What the names of what this run writes begin and end with, around the number of the process.
    begin: String,
    rest: String,
}

impl Files {
    fn new(out: &Path) -> Result<Self, Failure> {
        let unusable = |why: &str| Failure::Use(format!("cannot write the trace {}: {why}", out.display()));
        let path = std::path::absolute(out).map_err(|error| unusable(&error.to_string()))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(name), Some(folder)) = (name, path.parent()) else {
            return Err(unusable("give the path of a file, in UTF-8"));
        };
        if !folder.is_dir() {
            return Err(unusable("there is no such folder; make it, or give another path"));
        }
        if path.is_dir() {
            return Err(unusable("it is a folder; give the path of a file in it"));
        }
        let plain = name.replace("%p", "");
        let (stem, rest) = split(&plain);
        let begin = format!("{stem}.{}-", std::process::id());
        Ok(Files { folder: folder.to_path_buf(), name: name.to_owned(), begin, rest: rest.to_owned() })
    }

    /// The value of the variable: each process puts its number in place of `%p`.
    fn pattern(&self) -> PathBuf {
        self.folder.join(format!("{}%p{}", self.begin, self.rest))
    }

    /// Renames what was written; the paths, the largest file first.
    fn collect(&self) -> Result<Vec<PathBuf>, Failure> {
        let failure =
            |path: &Path, error: &io::Error| Failure::Failed(format!("{}: {error}", path.display()));
        let mut written = Vec::new();
        for entry in self.folder.read_dir().map_err(|error| failure(&self.folder, &error))? {
            let entry = entry.map_err(|error| failure(&self.folder, &error))?;
            let name = entry.file_name();
            let process =
                name.to_str().and_then(|name| name.strip_prefix(&self.begin)?.strip_suffix(&self.rest));
            if let Some(process) = process {
                let size = entry.metadata().map_or(0, |about| about.len());
                written.push((size, process.to_owned(), entry.path()));
            }
        }
        written.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
        let is_alone = written.len() == 1;
        let rename = |(_, process, from): (u64, String, PathBuf)| {
            let (stem, rest) = split(&self.name);
            let name = match (self.name.contains("%p"), is_alone) {
                (true, _) => self.name.replace("%p", &process),
                (false, true) => self.name.clone(),
                (false, false) => format!("{stem}.{process}{rest}"),
            };
            let to = self.folder.join(name);
            std::fs::rename(&from, &to).map_err(|error| failure(&from, &error))?;
            Ok(to)
        };
        written.into_iter().map(rename).collect()
    }
}

/// A file's name up to its first dot, and from there on: `.json.gz` is one ending.
fn split(name: &str) -> (&str, &str) {
    name.split_at(name.find('.').unwrap_or(name.len()))
}
