//! Operations in graphs.

use warpsmith_collective::{CommunicatorOptions, ReduceOp};
use warpsmith_runtime::DeviceBuffer;
use warpsmith_runtime::graph::{Capture, CaptureMode};

use crate::support::{LONG, on_ranks};

#[test]
fn captured_operations_run_at_each_launch() {
    on_ranks(3, &CommunicatorOptions::new().checked(true), |mut ranks| {
        let (rank, stream) = (ranks.rank(), ranks.stream().clone());
        let mut x = DeviceBuffer::from_host(&stream, &[rank as u32 + 1; 100]).expect("x");
        let mut gathered = DeviceBuffer::<u32>::zeros(&stream, 300).expect("y");
        let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
        let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("captured");
        drop(ranks.all_gather(&x, &mut gathered).expect("captured"));
        drop(ranks.barrier().expect("captured"));
        let graph = capture.end().expect("a graph").instantiate().expect("an executable");
        assert!(!work.query().expect("it has not run"));
        for launches in 1..=3u32 {
            graph.launch(&stream).expect("launched");
            // The sums are equal on all ranks from the first launch on, so each later launch multiplies by 3.
            let expected = 6 * 3u32.pow(launches - 1);
            assert_eq!(x.to_host().expect("x"), [expected; 100]);
            assert_eq!(gathered.to_host().expect("y"), [expected; 300]);
            // Calls between launches must keep their position in the order.
            drop(ranks.barrier().expect("enqueued"));
        }
        work.wait(LONG).expect("done");
        stream.synchronize().expect("no fault");
        let sequences: Vec<_> =
            ranks.dump().operations.iter().map(|recorded| recorded.operation.sequence).collect();
        assert_eq!(sequences, (0..12).collect::<Vec<_>>());
        ranks.finish().expect("the end in common");
    });
}
