//! Reading results files for `compare` and `report`.
//!
//! Guarantees: of what is read, no time is zero, negative or not finite.

use std::path::Path;

use crate::document::{Document, Record};
use crate::error::{Error, Result};
use crate::size::format_size;

/// Reads a document whose times are possible.
///
/// # Errors
/// As [`Document::read`], and [`Error::Read`] for a record with a time that no launch takes.
pub fn read(path: &Path) -> Result<Document> {
    let document = Document::read(path)?;
    let found = document
        .results
        .iter()
        .enumerate()
        .find_map(|(index, record)| Some((index, record, impossible(record)?)));
    match found {
        None => Ok(document),
        Some((index, Record { kernel, dtype, n, configuration, .. }, us)) => Err(Error::Read {
            path: path.to_path_buf(),
            reason: format!(
                "record {} ({kernel} {dtype} {} {configuration}) has a time of {us} µs, which cannot be; measure again",
                index + 1,
                format_size(*n)
            ),
        }),
    }
}

/// A time of a record that cannot be.
fn impossible(record: &Record) -> Option<f64> {
    let timing = record.timing.as_ref()?;
    let interval = timing.logged.and_then(|logged| logged.interval_us);
    let ends = interval.into_iter().flat_map(|(low, high)| [low, high]);
    timing.samples_us.iter().copied().chain(ends).find(|us| !(us.is_finite() && *us > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Outcome;
    use crate::document::tests::{document, record};
    use crate::measure::Logged;

    #[test]
    fn times_that_cannot_be_are_refused_with_the_file_and_the_record() {
        let folder = std::env::temp_dir().join(format!("warpsmith-results-{}", std::process::id()));
        let path = folder.join("odd.json");
        let good = record("copy", 128, 10.0, Outcome::Correct);
        document(vec![good.clone()]).write(&path).unwrap();
        assert!(read(&path).is_ok());
        for us in [0.0, -3.0] {
            let mut sampled = record("axpy", 256, 10.0, Outcome::Correct);
            sampled.timing.as_mut().unwrap().samples_us[2] = us;
            let mut known = record("axpy", 256, 10.0, Outcome::Correct);
            known.timing.as_mut().unwrap().logged =
                Some(Logged { samples: 9, interval_us: Some((us, 11.0)) });
            for odd in [sampled, known] {
                document(vec![good.clone(), odd]).write(&path).unwrap();
                let message = read(&path).unwrap_err().to_string();
                for words in ["odd.json", "record 2 (axpy f32 2^16 block=256", &format!("a time of {us} µs")]
                {
                    assert!(message.contains(words), "{words}: {message}");
                }
            }
        }
        let mut odd = good;
        odd.timing.as_mut().unwrap().samples_us[0] = f64::INFINITY;
        assert_eq!(impossible(&odd), Some(f64::INFINITY));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
