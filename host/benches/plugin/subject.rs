//! The plugin that is loaded, instantiated and dropped: a component of about 100 KB that is written here, so that nothing has to be
//! built for it, and what this process takes of memory.
//!
//! Invariant: all of its code can run, and all of it is different, so that it costs what code of that size costs.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use lockgate_host::element::{Batch, Row};
use lockgate_host::guest::{
    Compiler, Counters, Emitted, Engine, Instance, InstanceContext, Limits, OperatorInstance, Plugin,
};
use lockgate_host::id::{Name, SubtaskId};

use crate::wat_guest::{EMIT_INPUT, Guest};

/// Makes about 100 KB of code.
const FUNCTIONS: u32 = 190;
/// As Rust's linker sets it up: a megabyte of stack, and data.
const PAGES: u32 = 17;

/// A component in a folder, and an engine with a cache beside it.
pub struct Subject {
    engine: Engine,
    name: Name,
    pub wasm: PathBuf,
    _folder: tempfile::TempDir,
}

impl Subject {
    pub fn new() -> anyhow::Result<Subject> {
        let folder = tempfile::tempdir()?;
        let engine = Engine::new(Some(folder.path().join("cache")), Compiler::InProcess)?;
        let wasm = folder.path().join("subject.wasm");
        std::fs::write(&wasm, component())?;
        Ok(Subject { engine, name: Name::new("subject").context("a name")?, wasm, _folder: folder })
    }

    pub fn load(&self) -> anyhow::Result<Plugin> {
        Ok(self.engine.load(&self.name, &self.wasm)?)
    }

    pub fn open(&self, plugin: &Plugin) -> anyhow::Result<Instance> {
        Ok(plugin.instantiate(InstanceContext {
            job: self.name.clone(),
            subtask: SubtaskId { operator: self.name.clone(), index: 0 },
            parallelism: 1,
            config_json: "{}".to_owned(),
            limits: Limits::default(),
            rejections: false,
            state: None,
            counters: Counters::default(),
        })?)
    }

    /// Loads, instantiates, calls and drops the plugin so many times.
    pub fn cycle(&self, count: u32) -> anyhow::Result<()> {
        let mut batch = Batch::default();
        batch.push(Row { key: None, value: Some(b"a record"), timestamp: 0 });
        for _ in 0..count {
            let mut instance = self.open(&self.load()?)?;
            let mut emitted = Emitted::new();
            instance.process(0, &batch, &mut emitted)?;
            ensure!(emitted.len() == 1, "it passes on what it gets");
        }
        Ok(())
    }
}

/// What this process has in memory now.
pub fn resident_bytes() -> anyhow::Result<u64> {
    Ok(status("VmRSS")? * 1024)
}

/// A number of the process's status (`proc(5)`).
pub fn status(field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field)).with_context(|| format!("no {field}"))?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
}

fn component() -> Vec<u8> {
    let mut extra = String::new();
    for function in 0..FUNCTIONS {
        let mut steps = String::new();
        for step in 0..16u32 {
            let constant = (function * 16 + step).wrapping_mul(2_654_435_761);
            write!(
                steps,
                "(local.set $a (i32.add (i32.rotl (local.get $a) (i32.const {})) (i32.xor (local.get $b) (i32.const {constant}))))
                 (local.set $b (i32.load (i32.and (local.get $a) (i32.const 0xfffc))))",
                step + 1
            )
            .expect("a string takes everything");
        }
        write!(
            extra,
            "(func $work{function} (param $a i32) (result i32) (local $b i32)
                (if (i32.eqz (local.get $a)) (then (return (i32.const 0)))) {steps}
                (i32.add (local.get $a) (call $work{} (i32.const 0))))",
            (function + 1) % FUNCTIONS
        )
        .expect("a string takes everything");
    }
    let process = format!("(drop (call $work0 (local.get 1))) {EMIT_INPUT}");
    Guest { process, extra, pages: PAGES, ..Guest::default() }.component()
}
