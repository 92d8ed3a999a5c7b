//! Kernels of warp operations.

crate::collectives::collectives! {
    collective_shuffle shuffle [1 32 33 70 96 256];
    collective_gather gather [1 32 33 70 96 256];
    collective_shuffle_up shuffle_up [1 32 33 70 96 256];
    collective_shuffle_down shuffle_down [1 32 33 70 96 256];
    collective_shuffle_xor shuffle_xor [1 32 33 70 96 256];
    collective_shuffle_types shuffle_types [32 96 256];
    collective_ballot ballot [1 32 33 70 96 256];
    collective_all_any all_any [1 32 33 70 96 256];
    collective_match_any match_any [1 32 33 70 96 256];
    collective_match_bits match_bits [1 32 33 70 96 256];
    collective_reduce_numbers reduce_numbers [1 32 33 70 96 256];
    collective_reduce_xor reduce_xor [1 32 33 70 96 256];
    collective_reduce_first reduce_first [32 96 256];
    collective_warp_scan warp_scan [1 32 33 70 96 256];
    collective_warp_exclusive_scan warp_exclusive_scan [1 32 33 70 96 256];
    collective_diverged diverged [1 32 33 70 96 256];
    collective_leave_one_by_one leave_one_by_one [1 32 33 70 96 256];
    collective_tiles tiles [32 96 256];
}
