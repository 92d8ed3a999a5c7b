//! Corpora of the protocol's fuzz targets.

use warpsmith_collective::store::fuzzed;

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn the_corpus_of_the_server_holds() {
    replay::replay("store_server", fuzzed::server);
}

#[test]
fn the_corpus_of_the_client_holds() {
    replay::replay("store_client", fuzzed::client);
}

#[test]
fn random_bytes_harm_neither_end() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..20_000 {
        let length = random.usize(..200);
        // Operation codes and small lengths are more likely than other bytes.
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                if random.bool() {
                    random.u8(..20)
                } else {
                    [0, 0, 0, 1, b'/', b'k', 160, 255][random.usize(..8)]
                }
            })
            .collect();
        fuzzed::server(&bytes);
        fuzzed::client(&bytes);
    }
}
