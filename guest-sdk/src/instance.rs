//! One instance of an operator with its cache and its output: what a host drives.
//!
//! Invariant: after an error the instance is of no more use, for its cache may be ahead of the host.

use crate::context::{Context, OpenContext, Place};
use crate::error::Error;
use crate::host::{BatchRef, Host};
use crate::operator::{Declaration, Operator};
use crate::output::OutputBuffer;
use crate::record::Rows;
use crate::state::Cache;

/// An operator that can be called. The exports of a component come here, and so do hosts that run operators natively.
///
/// Whatever the host is given during a call that fails is to be dropped.
pub struct Instance<Op> {
    operator: Op,
    cache: Cache,
    /// By port; made when first used.
    outputs: Vec<Option<Box<OutputBuffer>>>,
}

impl<Op: Operator> Instance<Op> {
    /// # Errors
    /// If the operator refuses its configuration.
    pub fn open(place: &Place, host: &mut dyn Host) -> Result<Instance<Op>, Error> {
        let (mut operator, declaration) = Declaration::with::<Op>();
        let outputs = declaration.outputs().iter().map(|_| None).collect();
        let mut cache = Cache::new(declaration.into_columns());
        operator.open(&mut OpenContext { host, cache: &mut cache, place }).map_err(|error| error.at_row(None))?;
        Ok(Instance { operator, cache, outputs })
    }

    /// # Errors
    /// If the operator refuses its state.
    pub fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        self.operator.restore(states).map_err(|error| error.at_row(None))
    }

    /// # Errors
    /// If the operator fails; [`Error::row`] says at which record.
    pub fn process(&mut self, host: &mut dyn Host, port: u32, batch: BatchRef<'_>) -> Result<(), Error> {
        let mut ctx = Context::new(host, &mut self.cache, &mut self.outputs, port, Rows::new(batch));
        let result = self.operator.process_batch(&mut ctx);
        ctx.end(result)
    }

    /// # Errors
    /// If the operator fails.
    pub fn watermark(&mut self, host: &mut dyn Host, timestamp: i64) -> Result<(), Error> {
        let mut ctx = Context::new(host, &mut self.cache, &mut self.outputs, 0, Rows::default());
        let result = self.operator.watermark(timestamp, &mut ctx);
        ctx.end(result)
    }

    /// Writes all changed keyed state to the host and gives the state that isn't keyed.
    ///
    /// # Errors
    /// If the operator fails or a value can't be encoded.
    pub fn snapshot(&mut self, host: &mut dyn Host) -> Result<Vec<u8>, Error> {
        self.cache.write_back(host).map_err(|error| error.at_row(None))?;
        self.operator.snapshot().map_err(|error| error.at_row(None))
    }

    /// Writes all changed keyed state to the host and frees cache until about `bytes_target` are in use.
    ///
    /// # Errors
    /// If a value can't be encoded.
    pub fn trim(&mut self, host: &mut dyn Host, bytes_target: u64) -> Result<(), Error> {
        let bytes_target = usize::try_from(bytes_target).unwrap_or(usize::MAX);
        self.cache.trim(bytes_target, host).map_err(|error| error.at_row(None))
    }

    /// # Errors
    /// If the operator fails.
    pub fn close(&mut self) -> Result<(), Error> {
        self.operator.close().map_err(|error| error.at_row(None))
    }

    /// About how much memory the cache uses.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }
}
