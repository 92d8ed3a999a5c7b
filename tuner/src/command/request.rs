//! Conversion of arguments to a request: sizes, axes, ranges, effort and device.
//!
//! If a value cannot be parsed, an error repeats the value and shows the correct form.

use warpsmith_runtime::Device;

use super::args::MeasureArgs;
use super::failure::{Failure, unusable_device};
use crate::error::{Error, Result};
use crate::measure::Effort;
use crate::run::Request;
use crate::size::parse_size;
use crate::value::Value;

const MAX_VALUES: u64 = 4096;

/// Opens the requested device or, if no device is requested, the best available one.
///
/// # Errors
/// Returns a usage error if the device does not exist.
pub fn device(name: Option<&str>) -> std::result::Result<Device, Failure> {
    name.map_or_else(Device::best, Device::open).map_err(unusable_device)
}

/// Creates the request for `kernels`.
///
/// # Errors
/// Returns an error for the first value that cannot be parsed.
pub fn request(kernels: &[String], what: &MeasureArgs) -> Result<Request> {
    Ok(Request {
        kernels: kernels.to_vec(),
        dtypes: what.dtypes.clone(),
        sizes: sizes(&what.sizes)?,
        axes: axes(&what.axes)?,
        mode: what.mode,
        effort: effort(what),
        seed: what.seed,
    })
}

/// Parses element counts, which may be single values or ranges.
///
/// # Errors
/// Returns [`Error::Size`] if a count or range is invalid.
pub fn sizes(texts: &[String]) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for text in texts {
        let fail = |reason: String| Error::Size { text: text.clone(), reason };
        match range(text).map_err(fail)? {
            Some(sizes) if sizes.contains(&0) => {
                return Err(fail("it starts at 0; give sizes of at least 1".to_owned()));
            }
            Some(sizes) => all.extend(sizes),
            None => all.push(parse_size(text)?),
        }
    }
    Ok(all)
}

/// Parses axes with their values. Each axis may be specified only once.
fn axes(texts: &[String]) -> Result<Vec<(String, Vec<Value>)>> {
    let mut all: Vec<(String, Vec<Value>)> = Vec::new();
    for text in texts {
        let (name, values) = axis(text)?;
        if let Some((_, before)) = all.iter().find(|(known, _)| *known == name) {
            let both = before.iter().chain(&values).map(ToString::to_string).collect::<Vec<_>>().join(",");
            let reason =
                format!("the axis occurs twice; give all of its values in one option: --axis {name}={both}");
            return Err(Error::Axis { axis: name, text: text.clone(), reason });
        }
        all.push((name, values));
    }
    Ok(all)
}

/// Parses `NAME=V,…`: the name of an axis and its values, which may be single values or ranges.
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
/// Returns [`Error::Axis`] if `text` does not have this form.
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

/// Expands `[FROM:TO:STEP]` or `BASE^[FROM:TO:STEP]`. Both ends are included, and the default step is 1. Returns `None`
/// if `text` is not a range.
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
        return Err(format!("a range must ascend in steps of at least 1; {how}"));
    }
    if (to - from) / step >= MAX_VALUES {
        return Err(format!("it has more than {MAX_VALUES} values; use larger steps"));
    }
    let power = |exponent: u64| {
        let Some(base) = base else { return Ok(exponent) };
        let power = u32::try_from(exponent).ok().and_then(|exponent| base.checked_pow(exponent));
        power.ok_or_else(|| format!("{base}^{exponent} does not fit in 64 bits"))
    };
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    (from..=to).step_by(step).map(power).collect::<Result<_, _>>().map(Some)
}

/// Returns the sampling effort that the arguments request.
pub fn effort(what: &MeasureArgs) -> Effort {
    match what.samples {
        Some(count) => Effort::samples(count as usize),
        None if what.quick => Effort::QUICK,
        None => Effort::NORMAL,
    }
}

/// Parses `0.5%` or `0.5` as the fraction 0.005.
///
/// # Errors
/// Returns a message that requests a percentage above 0 and below 100.
pub fn share(text: &str) -> std::result::Result<f64, &'static str> {
    let percent: Option<f64> = text.trim().trim_end_matches('%').trim_end().parse().ok();
    let share = percent.filter(|percent| *percent > 0.0 && *percent < 100.0).map(|percent| percent / 100.0);
    share.ok_or("write a percentage above 0 and below 100, for example 0.5%")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn bad_ranges_and_axes_are_refused() {
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
    fn an_axis_given_twice_is_refused() {
        assert_eq!(axes(&texts(&["block=64", "grid=auto"])).unwrap().len(), 2);
        let message = axes(&texts(&["block=64", "grid=auto", "block=128"])).unwrap_err().to_string();
        assert!(message.contains("twice") && message.contains("--axis block=64,128"), "{message}");
    }

    #[test]
    fn options_decide_the_effort() {
        use clap::Parser as _;

        #[derive(clap::Parser)]
        struct Given {
            #[command(flatten)]
            what: MeasureArgs,
        }
        let of = |line: &str| Given::try_parse_from(line.split(' ')).map(|given| effort(&given.what));
        assert_eq!(of("x").unwrap(), Effort::NORMAL);
        assert_eq!(of("x --quick").unwrap(), Effort::QUICK);
        assert_eq!(of("x --samples 500").unwrap(), Effort::samples(500));
        for bad in ["--samples 0", "--samples 100001", "--samples 9 --quick"] {
            assert!(of(&format!("x {bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!((share("0.5%"), share(" 2 ")), (Ok(0.005), Ok(0.02)));
        for bad in ["0", "-1%", "100%", "x", "", "nan", "inf"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
