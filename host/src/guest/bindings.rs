//! The generated side of what an operator exports: `wit/operator.wit` is the source.
//!
//! The imports are written by hand (`imports/`), because they read lists where they lie in the guest's memory, which generated
//! code would copy first. Invariant: types that carry records borrow, so that a batch is lowered without a copy of its own;
//! headers, where there are any, are put into one string first.

wasmtime::component::bindgen!({
    path: "../wit",
    inline: "
        package lockgate:host;
        world exports {
            export lockgate:operator/operator@0.1.0;
        }
    ",
    world: "lockgate:host/exports",
    ownership: Borrowing { duplicate_if_necessary: false },
});

/// The side of components that can also migrate their state. Here the columns are owned: each goes both ways.
pub(super) mod migrating {
    wasmtime::component::bindgen!({
        path: "../wit",
        inline: "
            package lockgate:host;
            world migration-exports {
                export lockgate:operator/migration@0.1.0;
            }
        ",
        world: "lockgate:host/migration-exports",
    });

    pub use self::exports::lockgate::operator::migration::{Entries, Guest, Keys};
    pub use self::lockgate::operator::types::{Column, ErrorKind, OpError};
}

pub(super) use self::lockgate::operator::types;
pub(super) use exports::lockgate::operator::operator::Guest;
