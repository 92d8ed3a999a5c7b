//! Operations of libraries on the device under test: `WARPSMITH_TEST_DEVICE`, the emulated one when it is not set. A
//! device or a library that is not there fails the tests.

mod blas;
mod dnn;
mod fft;
mod names;
mod numbers;
mod rand;
mod sparse;
#[path = "../../../tests/common/under_test.rs"]
mod under_test;

use warpsmith_runtime::library::{LibraryError, Vendor};

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
