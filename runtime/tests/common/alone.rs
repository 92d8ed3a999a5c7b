//! Support for tests that need their own process because they change its environment, fork, lose a device, or end with
//! the process.

use std::ffi::OsStr;
use std::process::Command;

/// Name of the enclosing test in the test harness.
macro_rules! this_test {
    () => {{
        fn here() {}
        crate::alone::test_of(std::any::type_name_of_val(&here))
    }};
}

/// Runs the enclosing test again in a separate process with these environment variables. In that process the macro
/// immediately returns `None`, and the test does its work. In the original process the macro returns the child's output
/// after the child has passed.
///
/// ```ignore
/// #[test]
/// fn one_device_is_hidden() {
///     only_alone!("CUDA_VISIBLE_DEVICES" => "1");
///     assert_eq!(Device::cuda_count(), 1);
/// }
/// ```
macro_rules! alone {
    ($($variable:expr => $value:expr),* $(,)?) => {{
        let environment: &[(&str, &std::ffi::OsStr)] = &[$(($variable, $value.as_ref())),*];
        crate::alone::run(crate::alone::this_test!(), environment)
    }};
}

/// Same as [`alone!`], for a test that has nothing left to do after it has passed in its own process.
#[allow(unused_macros, reason = "each program uses some of it")]
macro_rules! only_alone {
    ($($environment:tt)*) => {
        if crate::alone::alone!($($environment)*).is_some() {
            return;
        }
    };
}

#[allow(unused_imports, reason = "each program uses some of it")]
pub(crate) use {alone, only_alone, this_test};

/// Strips the leading program name and the name of the function within the test.
pub fn test_of(function: &str) -> &str {
    let path = function.split_once("::").and_then(|(_, path)| path.rsplit_once("::"));
    path.expect("the path of a function in a test").0
}

/// Returns a command that runs one test of this program, even if the test is ignored by default.
pub fn command(test: &str) -> Command {
    let mut program = Command::new(std::env::current_exe().expect("the path of this program"));
    program.args(["--exact", test, "--include-ignored", "--nocapture"]);
    program
}

/// Runs a test in a separate process; see [`alone!`].
#[track_caller]
pub fn run(test: &str, environment: &[(&str, &OsStr)]) -> Option<String> {
    const ALONE: &str = "WARPSMITH_TEST_ALONE";
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return None;
    }
    let environment = environment.iter().copied();
    let output = command(test).env(ALONE, test).envs(environment).output().expect("this program runs again");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let passed = output.status.success() && text[0].contains("1 passed");
    assert!(passed, "{test}, alone, {}:\n{}{}", output.status, text[0], text[1]);
    Some(text.concat())
}
