//! Doctests for operations that macros define, so that each operation has its own example.

/// Doctest lines that create `stream`, a stream on the emulated device.
macro_rules! example {
    ($($line:expr),+ $(,)?) => {
        concat!(
            "\n```\n# use warpsmith::{gpu_std::Checked, ops, prelude::*};\n",
            "# let stream = Stream::new(&Device::open(\"cpu\")?)?;\n",
            $($line, "\n",)+
            "# Ok::<(), warpsmith::Error>(())\n```"
        )
    };
}

/// Doctest statement that creates the buffer `$name` from an array.
macro_rules! buffer {
    ($name:ident, $elements:tt) => {
        concat!(
            "let ",
            stringify!($name),
            " = DeviceBuffer::from_host(&stream, &",
            stringify!($elements),
            ")?;"
        )
    };
}

/// Doctest statement that compares the buffer `$name` with an array, or with a string that shows each element with
/// three decimals.
macro_rules! holds {
    ($name:ident, [$($element:tt)*]) => {
        concat!("assert_eq!(", stringify!($name), ".to_host()?, [", stringify!($($element)*), "]);")
    };
    ($name:ident, ($($elements:tt)*)) => {
        concat!("assert_eq!(", stringify!($name), ".to_host()?, ", stringify!($($elements)*), ");")
    };
    ($name:ident, $text:literal) => {
        concat!("assert_eq!(format!(\"{:.3?}\", ", stringify!($name), ".to_host()?), ", stringify!($text), ");")
    };
}

/// Doctest of an operation with one input.
macro_rules! unary_example {
    ($name:ident, $x:tt, $out:tt) => {
        $crate::ops::example::example!(
            $crate::ops::example::buffer!(x, $x),
            "let mut out = DeviceBuffer::uninit(&stream, x.len())?;",
            concat!("ops::", stringify!($name), "(&stream, &x, &mut out)?;"),
            $crate::ops::example::holds!(out, $out),
        )
    };
}

/// Doctest of an operation with two inputs. The second input is an array or a number.
macro_rules! binary_example {
    ($name:ident, $x:tt, [$($y:tt)*], $out:tt) => {
        $crate::ops::example::example!(
            $crate::ops::example::buffer!(x, $x),
            $crate::ops::example::buffer!(y, [$($y)*]),
            "let mut out = DeviceBuffer::uninit(&stream, x.len())?;",
            concat!("ops::", stringify!($name), "(&stream, &x, &y, &mut out)?;"),
            $crate::ops::example::holds!(out, $out),
        )
    };
    ($name:ident, $x:tt, $y:literal, $out:tt) => {
        $crate::ops::example::example!(
            $crate::ops::example::buffer!(x, $x),
            "let mut out = DeviceBuffer::uninit(&stream, x.len())?;",
            concat!("ops::", stringify!($name), "(&stream, &x, ", stringify!($y), ", &mut out)?;"),
            $crate::ops::example::holds!(out, $out),
        )
    };
}

/// Doctest of a reduction that leaves its value on the device.
macro_rules! into_example {
    ($name:ident, $x:tt, $out:tt) => {
        $crate::ops::example::example!(
            $crate::ops::example::buffer!(x, $x),
            "let mut out = DeviceBuffer::uninit(&stream, 1)?;",
            concat!("ops::", stringify!($name), "(&stream, &x, &mut out)?;"),
            $crate::ops::example::holds!(out, $out),
        )
    };
}

pub(crate) use {binary_example, buffer, example, holds, into_example, unary_example};
