//! Graph nodes in traces of a GPU through CUPTI, which must be installed. If every place is known and correct, the
//! driver numbers nodes as `ActivityDriver::activity_node` describes.

use crate::alone::only_alone;
use crate::node_programs::{self, Fixture};
use crate::under_test::gpu;

macro_rules! tests {
    ($($program:ident)*) => {$(
        #[test]
        #[ignore = "is not supported on the emulated device"]
        fn $program() {
            only_alone!();
            node_programs::$program(Fixture::of(gpu()));
        }
    )*};
}

tests! {
    captured_nodes_have_range_and_line_of_their_capture
    added_nodes_have_range_and_line
    nodes_that_are_added_to_a_capture_join_it
    clones_and_children_keep_where_they_come_from
    conditional_parts_keep_where_they_come_from
    each_executable_of_a_graph_has_its_nodes
    an_update_brings_the_places_of_the_other_graph
    a_node_with_other_arguments_stays_where_it_was_added
    streams_and_threads_of_a_capture_have_their_own_places
    an_abandoned_capture_leaves_nothing
    a_graph_captured_before_has_lines_and_says_so
    a_later_recording_knows_the_lines
}
