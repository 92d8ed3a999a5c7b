//! [`Label`]: the description of a range or mark.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;

/// Numeric payload of a range or mark.
///
/// ```
/// use warpsmith_runtime::ranges::Payload;
///
/// assert_eq!(Payload::from(3_u64), Payload::Int(3));
/// assert_eq!(Payload::from(u64::MAX), Payload::Float(u64::MAX as f64));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Payload {
    /// No payload.
    #[default]
    None,
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

macro_rules! payload_from {
    ($($from:ty => $variant:ident),*) => {
        $(impl From<$from> for Payload {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
payload_from!(i8 => Int, i16 => Int, i32 => Int, i64 => Int, u8 => Int, u16 => Int, u32 => Int, f32 => Float, f64 => Float);

impl From<u64> for Payload {
    /// Converts a value above [`i64::MAX`] to the nearest [`Self::Float`].
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Float(value as f64), Self::Int)
    }
}

impl From<usize> for Payload {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

/// Description of a range or mark: its name, its attributes and its source location.
///
/// ```
/// use warpsmith_runtime::ranges::Label;
///
/// let (line, label) = (line!(), Label::new("forward").category("training").color(0x3070d0));
/// assert_eq!((label.name.as_ref(), label.color, label.line), ("forward", 0xff30_70d0, line));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// Name.
    pub name: Cow<'static, str>,
    /// Category; may be empty.
    pub category: &'static str,
    /// Color as 0xAARRGGBB; 0 if no color is set.
    pub color: u32,
    /// Numeric payload.
    pub payload: Payload,
    /// Source file; empty if unknown.
    pub file: &'static str,
    /// Source line, starting at 1; 0 if unknown.
    pub line: u32,
}

impl Label {
    /// Creates a label with a name and the caller's source location.
    #[track_caller]
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        let caller = Location::caller();
        Self {
            name: name.into(),
            category: "",
            color: 0,
            payload: Payload::None,
            file: caller.file(),
            line: caller.line(),
        }
    }

    /// Sets the category.
    #[must_use]
    pub fn category(mut self, category: &'static str) -> Self {
        self.category = category;
        self
    }

    /// Sets the color: 0xRRGGBB, or 0xAARRGGBB with a nonzero alpha.
    #[must_use]
    pub fn color(mut self, color: u32) -> Self {
        self.color = if color != 0 && color >> 24 == 0 { color | 0xff00_0000 } else { color };
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Payload>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Sets the source location.
    #[must_use]
    pub fn at(mut self, file: &'static str, line: u32) -> Self {
        (self.file, self.line) = (file, line);
        self
    }
}

impl fmt::Display for Label {
    /// Formats the name and the source location, for example as `` `step 3` (src/train.rs:12) ``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        if self.file.is_empty() { Ok(()) } else { write!(f, " ({}:{})", self.file, self.line) }
    }
}

/// Returns the text of the arguments, allocating only if they need formatting. Used by [`range!`](crate::range) and
/// [`mark!`](crate::mark).
#[doc(hidden)]
pub fn text(arguments: fmt::Arguments<'_>) -> Cow<'static, str> {
    arguments.as_str().map_or_else(|| Cow::Owned(arguments.to_string()), Cow::Borrowed)
}
