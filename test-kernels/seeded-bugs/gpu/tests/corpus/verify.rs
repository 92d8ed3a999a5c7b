//! Compares the findings of a kernel with its table and its source.

use std::path::Path;

use seeded_bugs_gpu::case::{Case, Found};
use warpsmith_emulator::check::{Access, Finding, FindingKind};
use warpsmith_emulator::{Fault, FaultKind};

use crate::launches::launch;

/// Checks that each launch found what it should, and nothing else.
pub fn verify(case: &Case) -> Result<(), String> {
    for (at, result) in launch(case).into_iter().enumerate() {
        one_launch(case, result).map_err(|error| format!("{}, launch {at}: {error}", case.name()))?;
    }
    Ok(())
}

fn one_launch(case: &Case, result: Result<(), Fault>) -> Result<(), String> {
    let (findings, kind) = match (result, case.found) {
        (Ok(()), Found::Nothing) => return Ok(()),
        (Ok(()), found) => return Err(format!("no {found:?}")),
        (Err(Fault { kind: FaultKind::Check { findings, then: None, .. }, .. }), Found::Access(kind)) => {
            (findings, kind)
        }
        (
            Err(fault @ Fault { kind: FaultKind::Collective { .. } | FaultKind::Deadlock { .. }, .. }),
            Found::Collective(words),
        ) if fault.to_string().contains(words) => return Ok(()),
        (Err(fault), found) => return Err(format!("not {found:?} but {fault}")),
    };
    // In another order, the data of a race may not be written yet; an atomic with a too narrow scope orders nothing.
    let follows = |finding: &Finding| {
        matches!(
            (kind, finding.kind),
            (FindingKind::Race, FindingKind::Uninitialized) | (FindingKind::NarrowScope, FindingKind::Race)
        )
    };
    if !findings.iter().any(|finding| finding.kind == kind) {
        return Err(format!("only {findings:?}"));
    }
    for finding in &findings {
        let places = if finding.kind == kind || follows(finding) {
            places(case, finding)
        } else {
            Err("its kind".to_owned())
        };
        places.map_err(|error| format!("{error}: {finding}"))?;
    }
    Ok(())
}

/// Checks that a finding is at marked lines of the kernel.
fn places(case: &Case, finding: &Finding) -> Result<(), String> {
    let is_race = matches!(finding.kind, FindingKind::Race | FindingKind::NarrowScope);
    if finding.other.is_some() != is_race || finding.access.is_none() || finding.kernel != case.name() {
        return Err("the kernel or the number of accesses".to_owned());
    }
    let source = source(case);
    let lines: Vec<&str> = source.lines().collect();
    for access in [&finding.access, &finding.other].into_iter().flatten() {
        let line = Access::place(access).map_or(0, |place| place.line as usize);
        if !lines.get(line.wrapping_sub(1)).is_some_and(|text| text.ends_with("//~")) {
            return Err(format!("line {line} of {}", case.file));
        }
        let names_kernel = |text: &&&str| text.contains(" fn ");
        let of = lines[..line].iter().rev().find(names_kernel).copied().unwrap_or_default();
        if !of.contains(&format!("fn {}(", case.name())) {
            return Err(format!("line {line}, of `{}`", of.trim()));
        }
    }
    Ok(())
}

fn source(case: &Case) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    std::fs::read_to_string(repository.join(case.file)).unwrap()
}
