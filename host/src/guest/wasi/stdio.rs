//! Standard input, which is at its end, and standard output and error, which are the log.
//!
//! Invariant: there are three streams, and no other is ever made.

use wasmtime::component::{LinkerInstance, Resource};

use super::HostState;
use super::streams::{InputStream, OutputStream};
use crate::guest::imports::Output;

pub(super) fn link_stdin(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("get-stdin", |_, ()| Ok((Resource::<InputStream>::new_own(0),)))
}

pub(super) fn link_stdout(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("get-stdout", |_, ()| Ok((handle(Output::Stdout),)))
}

pub(super) fn link_stderr(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("get-stderr", |_, ()| Ok((handle(Output::Stderr),)))
}

const STDERR: u32 = 1;

fn handle(output: Output) -> Resource<OutputStream> {
    Resource::new_own(match output {
        Output::Stdout => 0,
        Output::Stderr => STDERR,
    })
}

/// Which of the two a stream is.
pub(super) fn output(stream: &Resource<OutputStream>) -> Output {
    if stream.rep() == STDERR { Output::Stderr } else { Output::Stdout }
}
