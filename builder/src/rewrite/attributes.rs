//! Removes from attribute groups the architecture that rustc compiled for, because `opt` and `llc` select the
//! architecture.

/// Returns the line without `"target-cpu"` and `"target-features"`.
pub fn strip_target(line: &str) -> String {
    let mut line = line.to_owned();
    for key in [" \"target-cpu\"=\"", " \"target-features\"=\""] {
        while let Some(start) = line.find(key) {
            let value = start + key.len();
            let Some(end) = line[value..].find('"') else { break };
            line.replace_range(start..value + end + 1, "");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::strip_target;

    #[test]
    fn only_the_target_goes() {
        assert_eq!(
            strip_target(
                "attributes #0 = { convergent nounwind \"no-builtins\" \"target-cpu\"=\"sm_80\" \"target-features\"=\"+ptx70\" }"
            ),
            "attributes #0 = { convergent nounwind \"no-builtins\" }"
        );
        assert_eq!(strip_target("attributes #2 = { nofree nosync }"), "attributes #2 = { nofree nosync }");
    }
}
