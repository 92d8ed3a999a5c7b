//! Tests on the corpora of the fuzz targets, which include inputs that once caused failures.

#[path = "../common/fuzzed.rs"]
mod fuzzed;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn option_texts_do_no_harm() {
    replay("allocator_options", fuzzed::allocator_options);
}

#[test]
fn device_lists_do_no_harm() {
    replay("device_lists", fuzzed::device_lists);
}
