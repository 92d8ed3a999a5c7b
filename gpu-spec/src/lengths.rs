//! Length requirements on a kernel's arguments, from `#[kernel(same_len(x, y))]`, and errors about the lengths of a
//! launch.

use core::ffi::c_void;
use core::fmt;

/// A function that compares the lengths of a launch's arguments. `args` has the same format as for a
/// [`HostEntry`](crate::HostEntry). The function does not read the memory to which the arguments point. `extent` is the
/// number of threads along x, y and z that the launch requested, or `None` if the launch did not request an extent.
pub type CheckLengths =
    unsafe fn(args: *const *const c_void, extent: Option<[u64; 3]>) -> Result<(), WrongLength>;

/// The length of an argument, or the extent that a launch requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Name of the parameter, or `None` for the launch.
    pub name: Option<&'static str>,
    /// Number of elements per row, number of rows and number of planes. Missing dimensions are 1.
    pub sides: [u64; 3],
    /// Number of elements per thread of the launch; 1 for a parameter.
    pub items: u64,
}

impl Length {
    /// Returns whether two lengths agree. They must agree in all sides, or only in the number of elements if one of
    /// them is one-dimensional. A launch agrees with a parameter that has [`Self::items`] elements for each thread,
    /// where the last thread may have fewer.
    pub fn agrees(self, other: Self) -> bool {
        let total = |of: Self| of.sides.iter().try_fold(1u64, |total, side| total.checked_mul(*side));
        let is_line = |of: Self| of.sides[1] == 1 && of.sides[2] == 1;
        let threads = |of: Self, items: u64| total(of).map(|elements| elements.div_ceil(items.max(1)));
        (self.sides, self.items) == (other.sides, other.items)
            || (is_line(self) || is_line(other)) && threads(self, other.items) == threads(other, self.items)
    }

    /// Returns an error if two of the lengths do not agree. Arguments that are absent are ignored.
    pub fn all_agree(lengths: &[Option<Self>]) -> Result<(), WrongLength> {
        let mut present = lengths.iter().flatten();
        // Several lengths can agree with a launch, but not with each other, so the reference is a parameter.
        let Some(first) = present.clone().min_by_key(|length| length.name.is_none()) else { return Ok(()) };
        match present.find(|other| !first.agrees(**other)) {
            None => Ok(()),
            Some(other) => Err(WrongLength(*first, *other)),
        }
    }
}

/// Formats the length as text, such as `x has 100 elements` or `the launch is for 64 x 32 threads`.
impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, self.sides) {
            (None, [x, 1, 1]) if self.items > 1 => {
                write!(f, "the launch is for {x} threads of {} elements each", self.items)
            }
            (Some(name), [columns, 1, 1]) => write!(f, "`{name}` has {columns} elements"),
            (Some(name), [columns, rows, 1]) => write!(f, "`{name}` has {rows} x {columns} elements"),
            (Some(name), [columns, rows, planes]) => {
                write!(f, "`{name}` has {planes} x {rows} x {columns} elements")
            }
            (None, [x, 1, 1]) => write!(f, "the launch is for {x} threads"),
            (None, [x, y, 1]) => write!(f, "the launch is for {x} x {y} threads"),
            (None, [x, y, z]) => write!(f, "the launch is for {x} x {y} x {z} threads"),
        }
    }
}

/// Two lengths that must agree but do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongLength(pub Length, pub Length);

impl fmt::Display for WrongLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(first, second) = self;
        write!(f, "{first}, but {second}; the kernel requires equal lengths (`same_len`): ")?;
        match (first.name.and(second.name), first.items.max(second.items)) {
            (Some(_), _) => f.write_str("pass a part of the longer argument, for example `x.slice(..n)`"),
            (None, 1) => f.write_str("launch the kernel for the same number of threads"),
            (None, items) => write!(f, "launch one thread for each {items} elements"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    const fn length(name: &'static str, sides: [u64; 3]) -> Length {
        Length { name: Some(name), sides, items: 1 }
    }

    #[test]
    fn lengths_agree_by_sides_or_in_a_line() {
        let (x, y) = (length("x", [6, 1, 1]), length("y", [5, 1, 1]));
        let (wide, high) = (length("wide", [3, 2, 1]), length("high", [2, 3, 1]));
        assert!(x.agrees(x) && x.agrees(wide) && high.agrees(x) && wide.agrees(wide));
        assert!(!x.agrees(y) && !wide.agrees(high) && !y.agrees(high));
        let huge = length("huge", [u64::MAX, 2, 1]);
        assert!(!huge.agrees(x) && huge.agrees(huge));
        let launch = Length { name: None, sides: [6, 1, 1], items: 1 };
        assert_eq!(Length::all_agree(&[None, Some(x), None, Some(wide), Some(launch)]), Ok(()));
        assert_eq!(Length::all_agree(&[None, None]), Ok(()));
        assert_eq!(Length::all_agree(&[Some(launch), Some(y)]), Err(WrongLength(y, launch)));
    }

    #[test]
    fn threads_of_several_elements_agree_with_rounded_up_lengths() {
        let launch = Length { name: None, sides: [3, 1, 1], items: 4 };
        let x = |len| Some(length("x", [len, 1, 1]));
        for len in [9, 10, 12] {
            assert_eq!(Length::all_agree(&[Some(launch), x(len), x(len)]), Ok(()));
        }
        for len in [0, 3, 8, 13] {
            let text = Length::all_agree(&[Some(launch), x(len)]).unwrap_err().to_string();
            assert!(
                text.contains("3 threads of 4 elements each") && text.ends_with("each 4 elements"),
                "{text}"
            );
        }
        let (x, y) = (length("x", [10, 1, 1]), length("y", [11, 1, 1]));
        assert_eq!(Length::all_agree(&[Some(launch), Some(x), Some(y)]), Err(WrongLength(x, y)));
    }

    #[test]
    fn errors_name_both() {
        let launch = Length { name: None, sides: [64, 32, 1], items: 1 };
        let text = WrongLength(length("x", [100, 1, 1]), launch).to_string();
        assert_eq!(
            text,
            "`x` has 100 elements, but the launch is for 64 x 32 threads; the kernel requires equal lengths \
             (`same_len`): launch the kernel for the same number of threads"
        );
        let text = WrongLength(length("x", [2, 1, 3]), length("y", [3, 2, 1])).to_string();
        assert!(text.starts_with("`x` has 3 x 1 x 2 elements, but `y` has 2 x 3 elements;"), "{text}");
    }
}
