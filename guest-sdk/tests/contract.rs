//! The crate carries the contract it is built from.

use std::fs;
use std::path::Path;

#[test]
fn the_contract_in_the_crate_is_that_of_the_repository() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(here.join(path)).expect(path);
    assert_eq!(read("wit/operator.wit"), read("../wit/operator.wit"));
}
