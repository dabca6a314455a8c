//! What `lockgate new` writes compiles against this version of the SDK, and its own tests pass.

#[path = "../../host/src/cli/template/src/lib.rs"]
pub mod template;
