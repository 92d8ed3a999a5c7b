//! What the command line says.

use std::path::PathBuf;

use warpsmith::Device;

const USAGE: &str = "overlap [DEVICE] [--items N] [--mib M] [--launches N] [--svg FILE]";

/// What was asked for; `None` where nothing was.
#[derive(Default)]
pub struct Options {
    pub device: Option<String>,
    pub items: Option<usize>,
    pub mib: Option<f64>,
    pub launches: Option<usize>,
    pub svg: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments after the program's name.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value: {USAGE}"));
            match argument.as_str() {
                "--items" => options.items = Some(number(&argument, &value()?)?),
                "--mib" => options.mib = Some(number(&argument, &value()?)?),
                "--launches" => options.launches = Some(number(&argument, &value()?)?),
                "--svg" => options.svg = Some(value()?.into()),
                _ if argument.starts_with('-') => return Err(format!("unknown option {argument}: {USAGE}")),
                _ if options.device.is_some() => return Err(format!("a second device {argument}: {USAGE}")),
                _ => options.device = Some(argument),
            }
        }
        if options.items == Some(0) {
            return Err("--items is at least 1".to_owned());
        }
        if options.launches.is_some_and(|launches| !(1..=10_000).contains(&launches)) {
            return Err("--launches is from 1 to 10000".to_owned());
        }
        if options.mib.is_some_and(|mib| !(0.001..=16384.0).contains(&mib)) {
            return Err("--mib is from 0.001 to 16384".to_owned());
        }
        Ok(options)
    }

    /// How many arrays of how many elements.
    pub fn size(&self, device: &Device) -> (usize, usize) {
        let (items, mib) = if device.is_emulated() { (6, 0.0625) } else { (64, 64.0) };
        let bytes = self.mib.unwrap_or(mib) * f64::from(1 << 20);
        (self.items.unwrap_or(items), (bytes / 4.0) as usize)
    }
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} {text}: not a number that can be used here"))
}
