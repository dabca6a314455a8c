//! A loaded component: checked, compiled, linked, and asked what it is.
//!
//! Invariant: a [`Plugin`] is an operator of this host's world with a sensible descriptor; anything else is an error of
//! [`Plugin::load`].

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::{Component, ComponentExportIndex};

use super::bindings::{ExportsPre, types};
use super::descriptor::{Declared, Descriptor, Redistribution, TableKind};
use super::engine::{Engine, Ticker};
use super::error::{Call, Failure, GuestError, OperatorError, Problem};
use super::examine::{self, Interface};
use super::imports::HostState;
use super::instance::{Instance, InstanceContext, Unopened};
use super::limits::Limits;
use super::world::{OPERATOR, OPERATOR_FUNCTIONS, WORLD};
use super::{OperatorFactory, OperatorInstance, compiled};
use crate::id::{Name, SubtaskId};

/// The largest component that is read.
const COMPONENT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A component that can be instantiated any number of times. Clones share everything.
#[derive(Clone)]
pub struct Plugin(Arc<Loaded>);

struct Loaded {
    descriptor: Descriptor,
    interface: Interface,
    hash: String,
    size_bytes: u64,
    pre: ExportsPre<HostState>,
    /// Deadlines need the clock.
    _ticker: Arc<Ticker>,
}

impl Plugin {
    pub(super) fn load(engine: &Engine, operator: Option<&Name>, wasm: &Path) -> Result<Plugin, GuestError> {
        // A component that has no name in a job still needs one in messages.
        let subtask = SubtaskId {
            operator: operator.cloned().unwrap_or_else(|| Name::new("plugin").expect("a usable name")),
            index: 0,
        };
        load(engine, subtask, wasm).map_err(|problem| GuestError::Plugin {
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

    /// What it imports and exports.
    pub fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// Makes an instance for one subtask and opens it.
    ///
    /// # Errors
    /// If the operator refuses its configuration, traps or breaks a limit.
    pub fn instantiate(&self, context: InstanceContext) -> Result<Instance, OperatorError> {
        Unopened::new(&self.0.pre, context.subtask.clone(), context.limits, context.counters.clone())?
            .open(self.clone(), context)
    }
}

impl OperatorFactory for Plugin {
    fn descriptor(&self) -> &Descriptor {
        self.descriptor()
    }

    fn open(&self, context: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError> {
        Ok(Box::new(self.instantiate(context)?))
    }
}

fn load(engine: &Engine, subtask: SubtaskId, path: &Path) -> Result<Plugin, Problem> {
    let wasm = read(path)?;
    let interface = examine::interface(&wasm)?;
    interface.check()?;
    let hash = hexadecimal(&Sha256::digest(&wasm));
    let component = compile(engine, &hash, &wasm)?;
    check_functions(&component, &interface)?;
    let mismatch = |error: wasmtime::Error| Problem::Mismatch(format!("{error:#}"));
    let pre = engine.linker.instantiate_pre(&component).and_then(ExportsPre::new).map_err(mismatch)?;
    let unopened = Unopened::new(&pre, subtask, Limits::default(), super::Counters::default());
    let mut unopened = unopened.map_err(|error| {
        if let Failure::Unfit { problem } = &*error.failure {
            return Problem::Mismatch(problem.clone());
        }
        Problem::Describe(error)
    })?;
    let descriptor = checked(&unopened.describe().map_err(Problem::Describe)?)?;
    let size_bytes = wasm.len() as u64;
    Ok(Plugin(Arc::new(Loaded { descriptor, interface, hash, size_bytes, pre, _ticker: engine.ticker.clone() })))
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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string takes everything");
        digits
    })
}

/// Compiled code from the cache, else from the compiler.
fn compile(engine: &Engine, hash: &str, wasm: &[u8]) -> Result<Component, Problem> {
    if let Some(cache) = &engine.cache
        && let Some(code) = cache.read(hash)
    {
        match compiled::component(&engine.wasmtime, &code) {
            Ok(component) => return Ok(component),
            Err(error) => tracing::warn!(hash, %error, "cached code doesn't fit and will be compiled again"),
        }
    }
    let component = Component::from_binary(&engine.wasmtime, wasm).map_err(|error| invalid_or_too_much(&error))?;
    if let Some(cache) = &engine.cache {
        match component.serialize() {
            Ok(code) => cache.write(hash, &code),
            Err(error) => tracing::warn!(hash, %error, "cannot cache compiled code"),
        }
    }
    Ok(component)
}

/// The compiler validates first; what fails there was never valid.
fn invalid_or_too_much(error: &wasmtime::Error) -> Problem {
    if error.chain().any(|cause| cause.is::<wasmparser::BinaryReaderError>()) {
        return Problem::Invalid(format!("{error:#}"));
    }
    Problem::Compile(format!("{error:#}"))
}

/// Finds every function that an operator must export, so that all missing ones are named at once.
fn check_functions(component: &Component, interface: &Interface) -> Result<(), Problem> {
    let operator: Option<ComponentExportIndex> = component.get_export_index(None, WORLD.interface(OPERATOR));
    let has = |function: &&str| component.get_export_index(operator.as_ref(), function).is_some();
    let missing = OPERATOR_FUNCTIONS.iter().filter(|function| operator.is_none() || !has(function));
    let missing = missing.map(|function| format!("{}.{function}", WORLD.interface(OPERATOR))).collect::<Vec<_>>();
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
