//! Findings as SARIF 2.1.0, which code hosts can display.

use serde_json::{Value, json};

use crate::finding::{Access, Finding};

/// Returns a document that contains `findings`.
pub fn sarif(findings: &[Finding]) -> Value {
    let mut rules: Vec<&str> = findings.iter().map(|finding| finding.kind.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "warpsmith check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|rule| json!({"id": rule})).collect::<Vec<_>>(),
            }},
            "results": findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn result(finding: &Finding) -> Value {
    let mut result = json!({
        "ruleId": finding.kind,
        "level": "error",
        "message": {"text": format!("kernel `{}`: {}", finding.kernel, finding.text)},
    });
    if let Some(location) = finding.access.as_ref().and_then(location) {
        result["locations"] = json!([location]);
    }
    if let Some(mut other) = finding.other.as_ref().and_then(location) {
        other["id"] = json!(1);
        other["message"] = json!({"text": "the earlier access"});
        result["relatedLocations"] = json!([other]);
    }
    result
}

fn location(access: &Access) -> Option<Value> {
    let frame = access.frame().filter(|frame| frame.line != 0)?;
    let file = frame.file.strip_prefix("./").unwrap_or(&frame.file);
    Some(json!({"physicalLocation": {
        "artifactLocation": {"uri": file},
        "region": {"startLine": frame.line},
    }}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_has_both_places() {
        let line = r#"{"kind":"race","kernel":"k","memory":"m","advice":"a","text":"t",
            "access":{"operation":"read","block":[0,0,0],"thread":[1,0,0],"place":0,"frames":[{"function":"k","file":"./src/lib.rs","line":7}]},
            "other":{"operation":"write","block":[0,0,0],"thread":[0,0,0],"place":0,"frames":[{"function":"k","file":"src/lib.rs","line":5}]}}"#;
        let finding: Finding = serde_json::from_str(line).unwrap();
        let document = sarif(std::slice::from_ref(&finding));
        let result = &document["runs"][0]["results"][0];
        assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "src/lib.rs");
        assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 7);
        assert_eq!(result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"], 5);
        let mut turned = finding.clone();
        std::mem::swap(&mut turned.access, &mut turned.other);
        assert!(finding.is_same(&turned));
    }
}
