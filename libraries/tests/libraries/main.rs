//! Library operations on the device under test: `WARPSMITH_TEST_DEVICE`, by default the emulated one. A missing device
//! or library fails the tests.

mod blas;
mod dnn;
mod fft;
mod names;
mod numbers;
mod sparse;
#[path = "../../../runtime/tests/common/under_test.rs"]
mod under_test;

use warpsmith_libraries::{LibraryError, Vendor};

#[test]
fn libraries_are_there_on_a_gpu_or_missing() {
    for vendor in Vendor::ALL {
        match vendor.version() {
            Ok(version) => println!("{} {version}", vendor.name()),
            Err(error) => {
                assert!(under_test::device().is_emulated(), "{error}");
                let error = error.downcast_ref::<LibraryError>();
                assert!(
                    matches!(error, Some(LibraryError::Missing { library, .. }) if *library == vendor.name())
                );
            }
        }
    }
}
