//! The WIT world that operators are built against.
//!
//! Invariant: the names here are those of `wit/operator.wit`; a test compares them.

/// The package and version that this host speaks.
pub const WORLD: World = World { package: "lockgate:operator", version: "0.1.0" };

/// A version of the operator package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    pub package: &'static str,
    pub version: &'static str,
}

impl World {
    /// The full name of one of its interfaces.
    pub fn interface(self, name: &str) -> String {
        format!("{}/{name}@{}", self.package, self.version)
    }
}

/// The interface that an operator exports.
pub(super) const OPERATOR: &str = "operator";
/// The functions of that interface.
pub(super) const OPERATOR_FUNCTIONS: [&str; 9] =
    ["describe", "open", "restore", "process", "timers", "watermark", "snapshot", "trim", "close"];
/// The interface that an operator exports if it can migrate its state, and the functions of that.
pub(super) const MIGRATION: &str = "migration";
pub(super) const MIGRATION_FUNCTIONS: [&str; 3] = ["prepare", "migrate", "merge"];
/// The interfaces that an operator may import.
pub(super) const OFFERED: [&str; 5] = ["types", "output", "state", "timers", "runtime"];
