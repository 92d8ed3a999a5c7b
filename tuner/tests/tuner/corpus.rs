//! Replays the seeds of the fuzz targets and the inputs that fuzzing has found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use super::parsers;
use replay::replay;

#[test]
fn seeds_of_fuzz_targets_break_nothing() {
    replay("document", parsers::document);
    replay("store_line", parsers::store_line);
    replay("options", parsers::options);
}
