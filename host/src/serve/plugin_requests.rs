//! What a daemon is asked about plugins: to take one in, to tell of them, to remove one.
//!
//! Invariant: no plugin is removed that a job names, or is about to.

use std::sync::Arc;

use super::daemon::Daemon;
use super::error::ServeError;
use super::info::PluginInfo;
use super::plugins::Added;
use super::upload;
use crate::id::{Name, PluginHash};

/// A component that is being uploaded. Dropped, it leaves nothing.
pub struct Upload {
    upload: upload::Upload,
    daemon: Arc<Daemon>,
}

/// What came of an upload.
#[derive(Clone, Debug, PartialEq)]
pub struct Uploaded {
    pub plugin: PluginInfo,
    /// The daemon didn't have it before.
    pub is_new: bool,
}

impl Upload {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// If it gets too large, or they can't be written. Then it can only be dropped.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ServeError> {
        self.upload.write(bytes).await
    }

    /// Checks the component, compiles it and takes it in under its hash. The same content twice is one plugin.
    ///
    /// # Errors
    /// If it isn't an operator, there are too many, or it can't be written.
    pub async fn finish(self) -> Result<Uploaded, ServeError> {
        let Added { info, is_new } = self.upload.finish().await?;
        let used_by = self.daemon.users_of(&info.hash);
        Ok(Uploaded { plugin: PluginInfo { used_by, ..info }, is_new })
    }
}

impl Daemon {
    /// Begins to take in a component.
    ///
    /// # Errors
    /// If too many are under way, or nothing can be written.
    pub async fn begin_upload(self: &Arc<Self>) -> Result<Upload, ServeError> {
        self.refuse_when_shutting_down()?;
        Ok(Upload { upload: self.uploads.begin().await?, daemon: Arc::clone(self) })
    }

    /// All plugins, in order of their hash.
    pub fn plugins(&self) -> Vec<PluginInfo> {
        let hashes = self.plugins.hashes();
        hashes.iter().filter_map(|hash| self.plugins.info(hash, self.users_of(hash)).ok()).collect()
    }

    /// # Errors
    /// If the text is no hash, or there is no such plugin.
    pub fn plugin(&self, hash: &str) -> Result<PluginInfo, ServeError> {
        let hash = hash_of(hash)?;
        self.plugins.info(&hash, self.users_of(&hash))
    }

    /// Removes a plugin.
    ///
    /// # Errors
    /// If there is none, a job names it, or it can't be removed for certain.
    pub async fn remove_plugin(&self, hash: &str) -> Result<(), ServeError> {
        self.refuse_when_shutting_down()?;
        let hash = hash_of(hash)?;
        let _naming = self.naming.lock().await;
        let jobs = self.users_of(&hash);
        if !jobs.is_empty() {
            return Err(ServeError::PluginInUse { hash, jobs });
        }
        self.plugins.remove(&hash).await
    }

    /// Removes a plugin that a request has brought which came to nothing, unless somebody else needs it.
    ///
    /// # Errors
    /// As [`remove_plugin`](Self::remove_plugin).
    pub(super) async fn forget_plugin(&self, hash: &PluginHash) -> Result<(), ServeError> {
        let _naming = self.naming.lock().await;
        if self.users_of(hash).is_empty() { self.plugins.remove_unshared(hash).await } else { Ok(()) }
    }

    fn users_of(&self, hash: &PluginHash) -> Vec<Name> {
        self.entries().iter().filter(|entry| entry.names(hash)).map(|entry| entry.name.clone()).collect()
    }
}

/// A hash, with or without what stands before it in a job file.
pub(super) fn hash_of(given: &str) -> Result<PluginHash, ServeError> {
    let digits = given.strip_prefix(PluginHash::PREFIX).unwrap_or(given);
    PluginHash::new(digits).map_err(|_| ServeError::BadHash { given: given.chars().take(80).collect() })
}
