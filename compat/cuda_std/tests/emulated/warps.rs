//! Shuffles, votes, matches and reductions.

use cuda_std::prelude::*;
use cuda_std::warp::{self, WarpReductionOp};

use crate::common::{Args, launch_shared};

const ALL: u32 = u32::MAX;

#[kernel]
pub unsafe fn exchange(out: *mut [(u128, bool); 4], width: u32) {
    let lane = warp::lane_id();
    let value = u128::from(lane) << 100 | u128::from(lane);
    let exchanged = unsafe {
        [
            warp::warp_shuffle_down(ALL, value, 3, width),
            warp::warp_shuffle_up(ALL, value, 3, width),
            warp::warp_shuffle_idx(ALL, value, 5, width),
            warp::warp_shuffle_xor(ALL, value, 9, width),
        ]
    };
    unsafe { *out.add(lane as usize) = exchanged };
}

#[test]
fn shuffles_say_whether_the_lane_is_inside() {
    for width in [32, 16, 8, 1] {
        let mut out = vec![[(0u128, false); 4]; 32];
        let args = Args::new().value(out.as_mut_ptr()).value(width);
        launch_shared::<exchange_kernel>([1; 3], [32, 1, 1], 0, &args).unwrap();
        for (lane, found) in (0..32u32).zip(&out) {
            let (first, own) = (lane & !(width - 1), lane & (width - 1));
            let expected = [
                (own + 3 < width).then(|| lane + 3),
                (own >= 3).then(|| lane.wrapping_sub(3)),
                Some(first + (5 & (width - 1))),
                (lane ^ 9 < first + width).then_some(lane ^ 9),
            ];
            for (operation, (expected, found)) in expected.iter().zip(found).enumerate() {
                let source = expected.unwrap_or(lane);
                let value = u128::from(source) << 100 | u128::from(source);
                assert_eq!(*found, (value, expected.is_some()), "{operation} of lane {lane}, width {width}");
            }
        }
    }
}

#[kernel]
pub unsafe fn votes(out: *mut [u32; 8]) {
    let lane = warp::lane_id();
    unsafe {
        let reduce = |op| warp::warp_reduce(ALL, lane as i32 - 20, op) as u32;
        let row = [
            warp::warp_vote_ballot(ALL, lane % 3 == 0),
            u32::from(warp::warp_vote_any(ALL, lane == 7))
                + 2 * u32::from(warp::warp_vote_all(ALL, lane > 0)),
            warp::warp_match_any(ALL, lane / 8),
            warp::warp_match_all(ALL, lane / 32).map_or(0, |mask| mask),
            u32::from(warp::warp_match_all(ALL, lane).is_none()),
            reduce(WarpReductionOp::Add),
            reduce(WarpReductionOp::Min),
            reduce(WarpReductionOp::Xor),
        ];
        warp::sync_warp(ALL);
        *out.add(lane as usize) = row;
    }
}

#[test]
fn votes_matches_and_reductions() {
    let mut out = vec![[0u32; 8]; 32];
    launch_shared::<votes_kernel>([1; 3], [32, 1, 1], 0, &Args::new().value(out.as_mut_ptr())).unwrap();
    let values = (0..32).map(|lane| lane - 20);
    let (sum, xor) = (values.clone().sum::<i32>(), values.clone().fold(0, |x, y| x ^ y));
    for (lane, row) in out.iter().enumerate() {
        let expected =
            [0x4924_9249, 1, 0xff << (lane / 8 * 8), ALL, 1, sum as u32, -20i32 as u32, xor as u32];
        assert_eq!(*row, expected, "lane {lane}");
    }
}
