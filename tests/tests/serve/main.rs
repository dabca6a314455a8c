//! `lockgate serve`: the real daemon, asked over HTTP and by the verbs, killed and started again.

mod crashes;
mod harm;
mod hostile;
mod kills;
mod life;
mod many;
mod set_up;
mod support;
mod verbs;
#[path = "../../../host/src/guest/tests/guest.rs"]
#[expect(dead_code, reason = "written for the tests of the room")]
mod wat_guest;
