//! A loaded component: checked, compiled, linked, and asked what it is.
//!
//! Invariant: a [`Plugin`] is an operator of this host's world with a sensible descriptor; anything else is an error of
//! [`Plugin::load`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use wasmtime::component::{Component, ComponentExportIndex};

use super::bindings::{ExportsPre, types};
use super::cache::VerifiedCode;
use super::descriptor::{Declared, Descriptor, Redistribution, TableKind};
use super::engine::{Engine, Engines, Linked};
use super::error::{Call, Failure, GuestError, OperatorError, Problem};
use super::examine::{self, Interface};
use super::imports::HostState;
use super::instance::{Instance, InstanceContext, Unopened};
use super::limits::{Limits, StackSize};
use super::world::{MIGRATION, MIGRATION_FUNCTIONS, OPERATOR, OPERATOR_FUNCTIONS, WORLD};
use super::{OperatorFactory, OperatorInstance, compiled, wasi};
use crate::id::{Name, SubtaskId};
use crate::telemetry::CompilationStarted;

/// The largest component that is read.
pub const COMPONENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// A larger component isn't kept in memory beside its code.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// The smallest component that takes seconds to compile, so that the user is told.
const TOLD_BYTES_MIN: usize = 1024 * 1024;

/// A component that can be instantiated any number of times. Clones share everything.
#[derive(Clone)]
pub struct Plugin(Arc<Loaded>);

struct Loaded {
    descriptor: Descriptor,
    interface: Interface,
    hash: String,
    size_bytes: u64,
    path: PathBuf,
    /// A small component, as it was loaded.
    wasm: Option<Vec<u8>>,
    component: Component,
    /// What has been linked so far, by the size of the stack.
    linked: Mutex<BTreeMap<StackSize, ExportsPre<HostState>>>,
    /// With their clock, which deadlines need.
    engines: Arc<Engines>,
}

impl Loaded {
    /// The component, linked for an engine with such a stack.
    fn pre(&self, stack: StackSize) -> wasmtime::Result<ExportsPre<HostState>> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pre) = linked.get(&stack) {
            return Ok(pre.clone());
        }
        let engine = self.engines.linked(stack)?;
        // Compiled code doesn't depend on the stack.
        let component = compiled::component(&engine.wasmtime, &VerifiedCode::of(&self.component)?)?;
        let pre = link(&engine, &component, &self.interface)?;
        linked.insert(stack, pre.clone());
        Ok(pre)
    }
}

impl Plugin {
    pub(super) fn load(
        engine: &Engine,
        operator: Option<&Name>,
        wasm: &Path,
        limits: Limits,
    ) -> Result<Plugin, GuestError> {
        // A component that has no name in a job still needs one in messages.
        let subtask = SubtaskId {
            operator: operator.cloned().unwrap_or_else(|| Name::new("plugin").expect("a usable name")),
            index: 0,
        };
        load(engine, subtask, wasm, limits).map_err(|problem| GuestError::Plugin {
            operator: operator.cloned(),
            path: wasm.to_owned(),
            problem: Box::new(problem),
        })
    }

    /// What the operator says of itself.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    /// The component's SHA-256 in hexadecimal digits.
    pub fn hash(&self) -> &str {
        &self.0.hash
    }

    /// The size of the component's file.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// The component itself. A large one is read again.
    ///
    /// # Errors
    /// If its file can't be read, or isn't the one any more that was loaded.
    pub fn component_bytes(&self) -> std::io::Result<Vec<u8>> {
        if let Some(wasm) = &self.0.wasm {
            return Ok(wasm.clone());
        }
        let wasm = std::fs::read(&self.0.path)?;
        if hexadecimal(&Sha256::digest(&wasm)) == self.0.hash {
            return Ok(wasm);
        }
        let changed = format!("{} isn't the component any more that was loaded", self.0.path.display());
        Err(std::io::Error::other(changed))
    }

    /// What it imports and exports.
    pub fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// Finds out whether it starts, and says what it is, under other limits than those that it was loaded under.
    ///
    /// # Errors
    /// As [`Engine::load_within`].
    pub fn start_within(&self, operator: &Name, limits: Limits) -> Result<(), GuestError> {
        let try_out = || {
            let mismatch = |error: wasmtime::Error| Problem::Mismatch(format!("{error:#}"));
            let pre = self.0.pre(limits.stack()).map_err(mismatch)?;
            let subtask = SubtaskId { operator: operator.clone(), index: 0 };
            started(&pre, &self.0.engines, subtask, limits)?.describe().map(drop).map_err(Problem::Describe)
        };
        try_out().map_err(|problem| GuestError::Plugin {
            operator: Some(operator.clone()),
            path: self.0.path.clone(),
            problem: Box::new(problem),
        })
    }

    /// Makes an instance for one subtask and opens it.
    ///
    /// # Errors
    /// If the operator refuses its configuration, traps or breaks a limit.
    pub fn instantiate(&self, context: InstanceContext) -> Result<Instance, OperatorError> {
        let counters = context.counters.clone();
        self.unopened(&context.job, &context.subtask, context.limits, counters)?.open(self.clone(), context)
    }

    /// Makes an instance for one subtask.
    pub(super) fn unopened(
        &self,
        job: &Name,
        subtask: &SubtaskId,
        limits: Limits,
        counters: super::Counters,
    ) -> Result<Unopened, OperatorError> {
        let pre = self.0.pre(limits.stack()).map_err(|error| {
            let failure = Failure::Unfit { problem: format!("{error:#}") };
            OperatorError::new(subtask.clone(), Call::Instantiate, failure)
        })?;
        Unopened::new(&pre, self.0.engines.clock(), Some(job), subtask.clone(), limits, counters)
    }
}

impl OperatorFactory for Plugin {
    fn descriptor(&self) -> &Descriptor {
        self.descriptor()
    }

    fn component(&self) -> Option<&str> {
        Some(self.hash())
    }

    fn migrates(&self) -> bool {
        self.interface().migrates()
    }

    fn open(&self, context: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError> {
        Ok(Box::new(self.instantiate(context)?))
    }
}

fn load(engine: &Engine, subtask: SubtaskId, path: &Path, limits: Limits) -> Result<Plugin, Problem> {
    let wasm = read(path)?;
    let interface = examine::interface(&wasm)?;
    interface.check()?;
    let hash = hexadecimal(&Sha256::digest(&wasm));
    let mismatch = |error: wasmtime::Error| Problem::Mismatch(format!("{error:#}"));
    let linked = engine.engines.linked(limits.stack()).map_err(mismatch)?;
    let component = compile(engine, &linked.wasmtime, &hash, &wasm)?;
    check_functions(&component, &interface)?;
    let pre = link(&linked, &component, &interface).map_err(mismatch)?;
    let mut unopened = started(&pre, &engine.engines, subtask, limits)?;
    if interface.migrates() {
        unopened.check_migration()?;
    }
    let descriptor = checked(&unopened.describe().map_err(Problem::Describe)?)?;
    let (size_bytes, path) = (wasm.len() as u64, path.to_owned());
    let wasm = (wasm.len() <= KEPT_BYTES_MAX).then_some(wasm);
    let linked = Mutex::new(BTreeMap::from([(limits.stack(), pre)]));
    let engines = Arc::clone(&engine.engines);
    Ok(Plugin(Arc::new(Loaded { descriptor, interface, hash, size_bytes, path, wasm, component, linked, engines })))
}

/// An instance that is only asked what it is.
fn started(
    pre: &ExportsPre<HostState>,
    engines: &Engines,
    subtask: SubtaskId,
    limits: Limits,
) -> Result<Unopened, Problem> {
    Unopened::new(pre, engines.clock(), None, subtask, limits, super::Counters::default()).map_err(|error| {
        if let Failure::Unfit { problem } = &*error.failure {
            return Problem::Mismatch(problem.clone());
        }
        Problem::Describe(error)
    })
}

/// Gives a component what it imports.
fn link(engine: &Linked, component: &Component, interface: &Interface) -> wasmtime::Result<ExportsPre<HostState>> {
    let pre = if interface.wasi_imports().next().is_some() {
        let mut linker = (*engine.linker).clone();
        wasi::link(&mut linker, component)?;
        linker.instantiate_pre(component)?
    } else {
        engine.linker.instantiate_pre(component)?
    };
    ExportsPre::new(pre)
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    // Asked before it is opened: to open a pipe is to wait for its writer.
    if !std::fs::metadata(path).map_err(Problem::Read)?.is_file() {
        return Err(Problem::NotAFile);
    }
    let file = File::open(path).map_err(Problem::Read)?;
    let found = file.metadata().map_err(Problem::Read)?;
    if found.len() > COMPONENT_BYTES_MAX {
        return Err(Problem::TooLarge { size_bytes: found.len(), limit_bytes: COMPONENT_BYTES_MAX });
    }
    let mut wasm = Vec::with_capacity(found.len() as usize);
    // The file may grow while it is read.
    file.take(COMPONENT_BYTES_MAX).read_to_end(&mut wasm).map_err(Problem::Read)?;
    Ok(wasm)
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string takes everything");
        digits
    })
}

/// Compiled code from the cache, else from the compiler.
fn compile(of: &Engine, engine: &wasmtime::Engine, hash: &str, wasm: &[u8]) -> Result<Component, Problem> {
    if let Some(cache) = &of.cache
        && let Some(code) = cache.read(hash)
    {
        match compiled::component(engine, &code) {
            Ok(component) => return Ok(component),
            Err(error) => tracing::warn!(hash, %error, "cached code doesn't fit and will be compiled again"),
        }
    }
    if wasm.len() >= TOLD_BYTES_MIN {
        CompilationStarted { sha256: hash, size_bytes: wasm.len() }.emit();
    }
    let code = of.compiler.compile(engine, wasm)?;
    let component = compiled::component(engine, &code).map_err(|error| Problem::Compile(format!("{error:#}")))?;
    if let Some(cache) = &of.cache {
        cache.write(hash, code.bytes());
    }
    Ok(component)
}

/// Finds every function that an operator must export, so that all missing ones are named at once.
fn check_functions(component: &Component, interface: &Interface) -> Result<(), Problem> {
    let missing_of = |exported: &str, functions: &[&str]| {
        let name = WORLD.interface(exported);
        let exported: Option<ComponentExportIndex> = component.get_export_index(None, &name);
        let has = |function: &&&str| component.get_export_index(exported.as_ref(), function).is_some();
        let missing = functions.iter().filter(|function| exported.is_none() || !has(function));
        missing.map(|function| format!("{name}.{function}")).collect::<Vec<_>>()
    };
    let mut missing = missing_of(OPERATOR, &OPERATOR_FUNCTIONS);
    if interface.migrates() {
        missing.extend(missing_of(MIGRATION, &MIGRATION_FUNCTIONS));
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Problem::NotAnOperator { missing, exports: interface.exports.clone() })
    }
}

fn checked(said: &types::Descriptor) -> Result<Descriptor, Problem> {
    let kind = |kind| match kind {
        types::TableKind::Value => TableKind::Value,
        types::TableKind::Map => TableKind::Map,
        types::TableKind::List => TableKind::List,
    };
    let inputs = said.inputs.iter().map(|input| (input.name.as_str(), input.broadcast)).collect::<Vec<_>>();
    let outputs = said.outputs.iter().map(String::as_str).collect::<Vec<_>>();
    let tables = said.tables.iter().map(|table| (table.name.as_str(), kind(table.kind), table.version));
    Ok(Descriptor::new(Declared {
        name: &said.name,
        version: &said.version,
        inputs: &inputs,
        outputs: &outputs,
        tables: &tables.collect::<Vec<_>>(),
        timers: said.timers,
        redistribution: match said.redistribution {
            types::Redistribution::Split => Redistribution::Split,
            types::Redistribution::Union => Redistribution::Union,
            types::Redistribution::Broadcast => Redistribution::Broadcast,
        },
    })?)
}

impl Unopened {
    fn describe(&mut self) -> Result<types::Descriptor, OperatorError> {
        self.infallible(Call::Describe, super::imports::Phase::Describing, |guest, store| guest.call_describe(store))
    }
}
