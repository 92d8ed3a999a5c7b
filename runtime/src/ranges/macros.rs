//! [`range!`] and [`mark!`].

/// Starts a range that ends when the [result](crate::ranges::Range) is dropped.
///
/// The name is a format string with arguments, as in [`format!`]. Options follow in any order: `color` as 0xRRGGBB or
/// 0xAARRGGBB, `category` as a `&'static str`, and `payload` as a number. Arguments are evaluated only if a listener or
/// a tool receives ranges; otherwise, a range costs one load and one branch.
///
/// ```
/// use warpsmith_runtime::range;
///
/// for step in 0..3 {
///     let _step = range!("step {step}", category = "training", payload = step);
///     {
///         let _forward = range!("forward", color = 0x3070d0);
///     }
///     let _backward = range!("backward of {}", "all layers");
/// }
/// ```
#[macro_export]
macro_rules! range {
    ($name:literal $($rest:tt)*) => {
        $crate::ranges::Range::new(|| $crate::__label!([$name] [] $($rest)*))
    };
}

/// Marks a point in time. The name and the options are the same as for [`range!`](crate::range).
///
/// ```
/// use warpsmith_runtime::mark;
///
/// let loss = 0.25;
/// mark!("epoch ended", category = "training", payload = loss);
/// ```
#[macro_export]
macro_rules! mark {
    ($name:literal $($rest:tt)*) => {
        $crate::ranges::mark(|| $crate::__label!([$name] [] $($rest)*))
    };
}

/// Creates a label from a name, the parsed arguments and options, and the remaining tokens.
#[doc(hidden)]
#[macro_export]
macro_rules! __label {
    ([$($name:tt)*] [$($option:tt)*] $(,)?) => {
        $crate::ranges::Label::new($crate::ranges::text(::core::format_args!($($name)*))).at(::core::file!(), ::core::line!())$($option)*
    };
    ([$($name:tt)*] [$($option:tt)*], color = $color:expr $(, $($rest:tt)*)?) => {
        $crate::__label!([$($name)*] [$($option)* .color($color)] $(, $($rest)*)?)
    };
    ([$($name:tt)*] [$($option:tt)*], category = $category:expr $(, $($rest:tt)*)?) => {
        $crate::__label!([$($name)*] [$($option)* .category($category)] $(, $($rest)*)?)
    };
    ([$($name:tt)*] [$($option:tt)*], payload = $payload:expr $(, $($rest:tt)*)?) => {
        $crate::__label!([$($name)*] [$($option)* .payload($payload)] $(, $($rest)*)?)
    };
    ([$($name:tt)*] [$($option:tt)*], $argument:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__label!([$($name)*, $argument = $value] [$($option)*] $(, $($rest)*)?)
    };
    ([$($name:tt)*] [$($option:tt)*], $value:expr $(, $($rest:tt)*)?) => {
        $crate::__label!([$($name)*, $value] [$($option)*] $(, $($rest)*)?)
    };
}
