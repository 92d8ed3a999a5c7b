//! From what was given to a request: sizes, axes, ranges, effort, device.
//!
//! Guarantees: whatever cannot be read is an error that repeats it and says how to write it.

use warpsmith_runtime::Device;

use super::args::What;
use super::failure::{Failure, unusable_device};
use crate::error::{Error, Result};
use crate::measure::{Effort, Rule};
use crate::run::Request;
use crate::size::parse_size;
use crate::value::Value;

/// Most values of one range.
const MOST_VALUES: u64 = 4096;
/// Most samples of a configuration.
const MOST_SAMPLES: usize = 100_000;

/// The device that was asked for, or the best there is.
///
/// # Errors
/// A device that is not there is wrong use.
pub fn device(name: Option<&str>) -> std::result::Result<Device, Failure> {
    name.map_or_else(Device::best, Device::open).map_err(unusable_device)
}

/// The request for `kernels`.
///
/// # Errors
/// The first value that cannot be read.
pub fn request(kernels: &[String], what: &What) -> Result<Request> {
    Ok(Request {
        kernels: kernels.to_vec(),
        dtypes: what.dtypes.clone(),
        sizes: sizes(&what.sizes)?,
        axes: axes(&what.axes)?,
        mode: what.mode.into(),
        effort: effort(what)?,
    })
}

/// Element counts: single ones and ranges.
///
/// # Errors
/// [`Error::Size`].
pub fn sizes(texts: &[String]) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for text in texts {
        let fail = |reason: String| Error::Size { text: text.clone(), reason };
        match range(text).map_err(fail)? {
            Some(sizes) if sizes.contains(&0) => {
                return Err(fail("it begins at 0; give sizes of at least 1".to_owned()));
            }
            Some(sizes) => all.extend(sizes),
            None => all.push(parse_size(text)?),
        }
    }
    Ok(all)
}

/// Axes with their values, each given once.
fn axes(texts: &[String]) -> Result<Vec<(String, Vec<Value>)>> {
    let mut all: Vec<(String, Vec<Value>)> = Vec::new();
    for text in texts {
        let (name, values) = axis(text)?;
        if let Some((_, before)) = all.iter().find(|(known, _)| *known == name) {
            let both = before.iter().chain(&values).map(ToString::to_string).collect::<Vec<_>>().join(",");
            let reason =
                format!("the axis is given twice; give all of its values at once: --axis {name}={both}");
            return Err(Error::Axis { axis: name, text: text.clone(), reason });
        }
        all.push((name, values));
    }
    Ok(all)
}

/// `NAME=V,…`: an axis with its values, single ones and ranges.
///
/// ```
/// use warpsmith_tuner::command::request::axis;
///
/// assert_eq!(axis("block=[64:256:64]")?.1.len(), 4);
/// assert_eq!(axis("grid=auto,waves:4")?.1.len(), 2);
/// # Ok::<(), warpsmith_tuner::error::Error>(())
/// ```
///
/// # Errors
/// [`Error::Axis`].
pub fn axis(text: &str) -> Result<(String, Vec<Value>)> {
    let how = "write NAME=VALUE with commas between values, for example block=128,256 or block=[64:512:64]";
    let fail = |axis: &str, text: &str, reason: &str| Error::Axis {
        axis: axis.to_owned(),
        text: text.to_owned(),
        reason: reason.to_owned(),
    };
    let (name, list) = text.split_once('=').ok_or_else(|| fail("axis", text, how))?;
    let name = name.trim();
    if name.is_empty() {
        return Err(fail("axis", text, how));
    }
    let mut values = Vec::new();
    for part in list.split(',').map(str::trim) {
        if part.is_empty() {
            return Err(fail(name, list, how));
        }
        match range(part).map_err(|reason| fail(name, part, &reason))? {
            Some(numbers) => values.extend(numbers.into_iter().map(Value::from)),
            None => values.push(Value::from(part)),
        }
    }
    Ok((name.to_owned(), values))
}

/// The numbers of `[FROM:TO:STEP]` or `BASE^[FROM:TO:STEP]`, both ends included, the step 1 if left out; `None` for what
/// is no range.
fn range(text: &str) -> std::result::Result<Option<Vec<u64>>, String> {
    let how = "write ranges as [FROM:TO:STEP] or 2^[FROM:TO:STEP], for example 2^[16:28:4]";
    let Some((before, rest)) = text.trim().split_once('[') else { return Ok(None) };
    let inner = rest.strip_suffix(']').ok_or(how)?;
    let base = match before.strip_suffix('^') {
        Some(base) => Some(base.parse::<u64>().map_err(|_| how)?),
        None if before.is_empty() => None,
        None => return Err(how.to_owned()),
    };
    let parts: Vec<u64> =
        inner.split(':').map(|part| part.trim().parse().map_err(|_| how)).collect::<Result<_, _>>()?;
    let (from, to, step) = match parts[..] {
        [from, to] => (from, to, 1),
        [from, to, step] => (from, to, step),
        _ => return Err(how.to_owned()),
    };
    if step == 0 || from > to {
        return Err(format!("a range goes up in steps of at least 1; {how}"));
    }
    if (to - from) / step >= MOST_VALUES {
        return Err(format!("it has more than {MOST_VALUES} values; take larger steps"));
    }
    let power = |exponent: u64| {
        let Some(base) = base else { return Ok(exponent) };
        let power = u32::try_from(exponent).ok().and_then(|exponent| base.checked_pow(exponent));
        power.ok_or_else(|| format!("{base}^{exponent} does not fit in 64 bits"))
    };
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    (from..=to).step_by(step).map(power).collect::<Result<_, _>>().map(Some)
}

fn effort(what: &What) -> Result<Effort> {
    let mut effort = if what.quick { Effort::QUICK } else { Effort::NORMAL };
    let fail = |axis: &str, text: String, reason: &str| Error::Axis {
        axis: axis.to_owned(),
        text,
        reason: reason.to_owned(),
    };
    if let Some(text) = &what.stop {
        let count = || text.strip_prefix("samples:")?.parse().ok().filter(|&count: &usize| count > 0);
        effort = match (text.as_str(), count()) {
            ("precision", _) => effort,
            ("entropy", _) => Effort::ENTROPY,
            (_, Some(count)) if count > MOST_SAMPLES => {
                let how = format!("take at most {MOST_SAMPLES} samples of a configuration");
                return Err(fail("--stop", text.clone(), &how));
            }
            (_, Some(count)) => Effort::samples(count),
            _ => {
                let how = "use precision, entropy or samples:N with N from 1, for example samples:100";
                return Err(fail("--stop", text.clone(), how));
            }
        };
    }
    if let Some(text) = &what.precision {
        let how = "write a percentage above 0 and below 100, for example 0.5%";
        if effort.rule != Rule::Precision {
            return Err(fail("--precision", text.clone(), "it goes with --stop precision only"));
        }
        effort.precision = share(text).ok_or_else(|| fail("--precision", text.clone(), how))?;
    }
    if let Some(seconds) = what.budget {
        if !(seconds > 0.0 && seconds.is_finite()) {
            return Err(fail("--budget", seconds.to_string(), "give a number of seconds above 0"));
        }
        // What JSON can write for a worker.
        let budget_us = (seconds * 1e6).min(f64::MAX);
        effort = match effort.rule {
            // As many as have an interval, whatever they take; the others only as far as the time lasts.
            Rule::Samples => effort.with_budget(budget_us),
            _ => Effort { budget_us, ..effort },
        };
    }
    Ok(effort)
}

/// `0.5%` or `0.5` as the share 0.005; `None` for what is no percentage above 0 and below 100.
pub fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.trim().trim_end_matches('%').trim_end().parse().ok()?;
    (percent > 0.0 && percent < 100.0).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::FEWEST;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn ranges_include_both_ends() {
        assert_eq!(sizes(&texts(&["2^[16:28:4]", "7"])).unwrap(), [1 << 16, 1 << 20, 1 << 24, 1 << 28, 7]);
        assert_eq!(sizes(&texts(&["[10:30:10]"])).unwrap(), [10, 20, 30]);
        assert_eq!(sizes(&texts(&["2^[3:5]"])).unwrap(), [8, 16, 32]);
        let (name, values) = axis("block=[64:192:64],512").unwrap();
        assert_eq!((name.as_str(), values), ("block", [64, 128, 192, 512].map(Value::from).to_vec()));
        assert_eq!(axis("grid=auto,waves:4").unwrap().1, ["auto", "waves:4"].map(Value::from).to_vec());
    }

    #[test]
    fn what_is_no_range_or_axis_says_how_to_write_it() {
        for bad in
            ["2^[16:28:4", "3*[1:2]", "[1]", "[1:2:3:4]", "[a:2]", "[5:2]", "[1:5:0]", "[0:4]", "2^[60:70]"]
        {
            let message = sizes(&texts(&[bad])).unwrap_err().to_string();
            assert!(message.contains(&format!("{bad:?}")), "{message}");
        }
        assert!(sizes(&texts(&["[1:100000000000]"])).unwrap_err().to_string().contains("larger steps"));
        for bad in ["block", "=4", "block=", "block=1,,2", "block=[1:2"] {
            let message = axis(bad).unwrap_err().to_string();
            assert!(message.contains("write"), "{message}");
        }
    }

    #[test]
    fn an_axis_that_is_given_twice_says_how_to_write_it() {
        assert_eq!(axes(&texts(&["block=64", "grid=auto"])).unwrap().len(), 2);
        let message = axes(&texts(&["block=64", "grid=auto", "block=128"])).unwrap_err().to_string();
        assert!(message.contains("twice") && message.contains("--axis block=64,128"), "{message}");
    }

    #[test]
    fn a_number_of_samples_is_kept_within_the_budget_and_within_reason() {
        let what = |stop: &str, budget| {
            let mut what = crate::command::args::BenchArgs::quick(Vec::new()).what;
            (what.stop, what.budget) = (Some(stop.to_owned()), budget);
            effort(&what)
        };
        let free = what("samples:500", None).unwrap();
        assert_eq!((free.least, free.most, free.budget_us), (500, 500, f64::MAX));
        let bound = what("samples:500", Some(0.5)).unwrap();
        assert_eq!((bound.least, bound.most, bound.budget_us), (FEWEST, 500, 5e5));
        assert_eq!(what("samples:2", Some(0.5)).unwrap().least, 2);
        let message = what("samples:100001", None).unwrap_err().to_string();
        assert!(message.contains("at most 100000"), "{message}");
        for budget in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
            assert!(
                what("samples:5", Some(budget)).unwrap_err().to_string().contains("--budget"),
                "{budget}"
            );
        }
        assert!(what("precision", Some(1e300)).is_ok());
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(share("0.5%"), Some(0.005));
        assert_eq!(share(" 2 "), Some(0.02));
        for bad in ["0", "-1%", "100%", "x", "", "nan", "inf"] {
            assert_eq!(share(bad), None, "{bad}");
        }
    }
}
