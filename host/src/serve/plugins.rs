//! The plugins of a daemon: kept by the hash of their content, loaded once however many jobs use them.
//!
//! Invariant: what stands under a hash has that hash, or isn't used; it never changes. Compiled code of a plugin that no job runs
//! isn't in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::durable::{blocking, names_in, now_ms, read_sealed, remove_file, rename, replace_sealed};
use super::error::ServeError;
use super::folder::DataFolder;
use super::info::{InputInfo, PluginFacts, PluginInfo, TableInfo};
use crate::crash;
use crate::guest::{Engine, GuestError, Limits, Plugin, WORLD};
use crate::id::{Name, PluginHash};

/// The compiler uses all processors for one component.
const COMPILING_MAX: usize = 1;
const FACTS_VERSION: u32 = 1;

pub struct Plugins {
    folder: Arc<DataFolder>,
    engine: Arc<Engine>,
    plugins_max: usize,
    known: Mutex<BTreeMap<PluginHash, Known>>,
    compiling: Arc<Semaphore>,
}

struct Known {
    size_bytes: u64,
    added_at_ms: u64,
    /// Or why it can't be used.
    facts: Result<PluginFacts, String>,
    /// As long as a job has it.
    loaded: Weak<Plugin>,
    /// Somebody has brought it again, and was told that it is there.
    is_shared: bool,
}

/// A component that was taken in.
pub struct Added {
    /// Without its users.
    pub info: PluginInfo,
    /// It wasn't there before.
    pub is_new: bool,
}

/// What stands beside a component.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beside {
    version: u32,
    size_bytes: u64,
    added_at_ms: u64,
    facts: PluginFacts,
}

impl Known {
    fn info(&self, hash: &PluginHash, used_by: Vec<Name>) -> PluginInfo {
        let (operator, problem) = match &self.facts {
            Ok(facts) => (Some(facts.clone()), None),
            Err(problem) => (None, Some(problem.clone())),
        };
        let Known { size_bytes, added_at_ms, .. } = *self;
        PluginInfo { hash: hash.clone(), size_bytes, added_at_ms, operator, problem, used_by }
    }
}

impl Plugins {
    /// Finds what the data folder has. A component that can't be used is one of them, with what is wrong with it.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub fn open(folder: Arc<DataFolder>, engine: Arc<Engine>, plugins_max: usize) -> Result<Plugins, ServeError> {
        let (known, compiling) = (Mutex::default(), Arc::new(Semaphore::new(COMPILING_MAX)));
        let plugins = Plugins { folder, engine, plugins_max, known, compiling };
        let names = names_in(&plugins.folder.plugins())?;
        let hash_of = |name: &str, end: &str| PluginHash::new(name.strip_suffix(end)?).ok();
        let components = names.iter().filter_map(|name| hash_of(name, ".wasm")).collect::<Vec<_>>();
        for hash in components {
            let known = plugins.find(&hash)?;
            plugins.known().insert(hash, known);
        }
        for name in &names {
            match hash_of(name, ".json") {
                // Its component was removed, and then the daemon died.
                Some(hash) if !plugins.has(&hash) => remove_file(&plugins.folder.plugin_facts(&hash))?,
                Some(_) => {}
                None if hash_of(name, ".wasm").is_some() => {}
                None => tracing::warn!(name, "passed over in the folder of plugins: it is none"),
            }
        }
        Ok(plugins)
    }

    /// What is known of a component that is there, asked again if nothing stands beside it that fits.
    fn find(&self, hash: &PluginHash) -> Result<Known, ServeError> {
        let (wasm, beside) = (self.folder.plugin(hash), self.folder.plugin_facts(hash));
        let found = std::fs::metadata(&wasm).map_err(ServeError::folder("look at", &wasm))?;
        let noted = read_sealed::<Beside>(&beside).ok().flatten();
        if let Some(Beside { size_bytes, added_at_ms, facts, .. }) =
            noted.filter(|noted| noted.version == FACTS_VERSION && noted.size_bytes == found.len())
        {
            return Ok(Known { size_bytes, added_at_ms, facts: Ok(facts), loaded: Weak::new(), is_shared: false });
        }
        let (size_bytes, added_at_ms) = (found.len(), now_ms());
        let facts = self.read(hash).map(|plugin| facts_of(&plugin)).map_err(|error| error.to_string());
        let known = Known { size_bytes, added_at_ms, facts, loaded: Weak::new(), is_shared: false };
        self.note(hash, &known)?;
        Ok(known)
    }

    /// Writes down what is known, so that the next start needn't compile.
    fn note(&self, hash: &PluginHash, known: &Known) -> Result<(), ServeError> {
        let Ok(facts) = known.facts.clone() else { return Ok(()) };
        let Known { size_bytes, added_at_ms, .. } = *known;
        let beside = Beside { version: FACTS_VERSION, size_bytes, added_at_ms, facts };
        replace_sealed(&self.folder.plugin_facts(hash), &beside)
    }

    /// Checks and compiles the component that stands under a hash.
    fn read(&self, hash: &PluginHash) -> Result<Plugin, ServeError> {
        let path = self.folder.plugin(hash);
        let damaged = |found: &str| ServeError::Damaged {
            path: path.clone(),
            problem: format!("its content has the hash {found}; uploading the plugin again mends it"),
        };
        // What is damaged isn't compiled: what is wrong with it then would be said of the plugin.
        let found = self.content(hash)?;
        if found != *hash {
            return Err(damaged(found.as_str()));
        }
        let plugin = self.engine.inspect(&path).map_err(|source| ServeError::Plugin { source })?;
        if plugin.hash() == hash.as_str() { Ok(plugin) } else { Err(damaged(plugin.hash())) }
    }

    /// The hash of what stands under a hash.
    fn content(&self, hash: &PluginHash) -> Result<PluginHash, ServeError> {
        let path = self.folder.plugin(hash);
        let wasm = std::fs::read(&path).map_err(ServeError::folder("read", &path))?;
        Ok(PluginHash::of_digest(&Sha256::digest(&wasm).into()))
    }

    /// Waits until nobody compiles. Work that goes on when nobody waits for it any more takes its turn along.
    async fn turn(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.compiling).acquire_owned().await.expect("never closed")
    }

    async fn is_whole(self: &Arc<Self>, hash: &PluginHash) -> Result<bool, ServeError> {
        let (plugins, hash) = (Arc::clone(self), hash.clone());
        blocking(move || Ok(plugins.content(&hash).is_ok_and(|content| content == hash))).await
    }

    /// Whether a component may be added.
    ///
    /// # Errors
    /// [`ServeError::TooManyPlugins`].
    pub fn check_room(&self) -> Result<(), ServeError> {
        if self.known().len() >= self.plugins_max {
            return Err(ServeError::TooManyPlugins { plugins_max: self.plugins_max });
        }
        Ok(())
    }

    /// Takes a file of the folder of plugins in under its hash, if it is an operator. `shown` is what errors call it. Of several at the
    /// same time with the same content, one is new. What is there and damaged is replaced.
    ///
    /// # Errors
    /// If it can't be used, there are too many, or it can't be written.
    pub async fn add(self: &Arc<Self>, temp: &Path, hash: &PluginHash, shown: &Path) -> Result<Added, ServeError> {
        let size_bytes = std::fs::metadata(temp).map_err(ServeError::folder("look at", temp))?.len();
        let turn = self.turn().await;
        // Looked at when it is our turn: another upload may have brought the same, or removed it.
        let before = self.known().get_mut(hash).map(|known| {
            known.is_shared = true;
            (known.info(hash, Vec::new()), known.added_at_ms)
        });
        match &before {
            Some((info, _)) if self.is_whole(hash).await? => {
                return Ok(Added { info: info.clone(), is_new: false });
            }
            Some(_) => tracing::warn!(plugin = hash.as_str(), "a damaged plugin is replaced by what was uploaded"),
            None => self.check_room()?,
        }
        let (plugins, temp, hash, shown) = (Arc::clone(self), temp.to_owned(), hash.clone(), shown.to_owned());
        blocking(move || {
            let _turn = turn;
            let plugin = plugins
                .engine
                .inspect(&temp)
                .map_err(|source| ServeError::Plugin { source: renamed(source, &shown) })?;
            assert_eq!(plugin.hash(), hash.as_str(), "both are the hash of the same file");
            let added_at_ms = before.as_ref().map_or_else(now_ms, |(_, added_at_ms)| *added_at_ms);
            let (facts, is_new) = (Ok(facts_of(&plugin)), before.is_none());
            let known = Known { size_bytes, added_at_ms, facts, loaded: Weak::new(), is_shared: !is_new };
            crash::point("serve.plugin.before");
            rename(&temp, &plugins.folder.plugin(&hash))?;
            crash::point("serve.plugin.after");
            // Known even if this fails: the component is there, and can be asked again.
            let noted = plugins.note(&hash, &known);
            let info = known.info(&hash, Vec::new());
            plugins.known().insert(hash, known);
            noted.map(|()| Added { info, is_new })
        })
        .await
    }

    /// Loads a plugin for an operator, or gives the one that another has, if it can start under the operator's own limits.
    ///
    /// # Errors
    /// If there is none, it is damaged, or needs more than the limits allow.
    pub async fn load(
        self: &Arc<Self>,
        hash: &PluginHash,
        operator: &Name,
        limits: Limits,
    ) -> Result<Arc<Plugin>, ServeError> {
        let (plugin, operator) = (self.load_any(hash).await?, operator.clone());
        blocking(move || {
            plugin.start_within(&operator, limits).map_err(|source| ServeError::Plugin { source })?;
            Ok(plugin)
        })
        .await
    }

    async fn load_any(self: &Arc<Self>, hash: &PluginHash) -> Result<Arc<Plugin>, ServeError> {
        if let Some(plugin) = self.loaded(hash)? {
            return Ok(plugin);
        }
        let turn = self.turn().await;
        // Another job may have loaded it meanwhile.
        if let Some(plugin) = self.loaded(hash)? {
            return Ok(plugin);
        }
        let (plugins, hash) = (Arc::clone(self), hash.clone());
        blocking(move || {
            let _turn = turn;
            let plugin = Arc::new(plugins.read(&hash)?);
            match plugins.known().get_mut(&hash) {
                Some(known) => known.loaded = Arc::downgrade(&plugin),
                None => return Err(ServeError::NoPlugin { hash }),
            }
            Ok(plugin)
        })
        .await
    }

    fn loaded(&self, hash: &PluginHash) -> Result<Option<Arc<Plugin>>, ServeError> {
        let known = self.known();
        let plugin = known.get(hash).ok_or_else(|| ServeError::NoPlugin { hash: hash.clone() })?;
        Ok(plugin.loaded.upgrade())
    }

    /// Removes a plugin that no job names.
    ///
    /// # Errors
    /// If there is none, or it can't be removed for certain.
    pub async fn remove(self: &Arc<Self>, hash: &PluginHash) -> Result<(), ServeError> {
        let _turn = self.turn().await;
        self.remove_in_turn(hash).await
    }

    /// [`remove`](Self::remove), unless somebody else has been told that it is there.
    ///
    /// # Errors
    /// As `remove`.
    pub async fn remove_unshared(self: &Arc<Self>, hash: &PluginHash) -> Result<(), ServeError> {
        let _turn = self.turn().await;
        let is_shared = self.known().get(hash).is_some_and(|known| known.is_shared);
        if is_shared { Ok(()) } else { self.remove_in_turn(hash).await }
    }

    async fn remove_in_turn(self: &Arc<Self>, hash: &PluginHash) -> Result<(), ServeError> {
        if !self.has(hash) {
            return Err(ServeError::NoPlugin { hash: hash.clone() });
        }
        let (plugins, hash) = (Arc::clone(self), hash.clone());
        blocking(move || {
            crash::point("serve.remove-plugin.before");
            remove_file(&plugins.folder.plugin(&hash))?;
            crash::point("serve.remove-plugin.after");
            plugins.known().remove(&hash);
            remove_file(&plugins.folder.plugin_facts(&hash))
        })
        .await
    }

    pub fn has(&self, hash: &PluginHash) -> bool {
        self.known().contains_key(hash)
    }

    /// All there are, in order of their hash.
    pub fn hashes(&self) -> Vec<PluginHash> {
        self.known().keys().cloned().collect()
    }

    /// # Errors
    /// [`ServeError::NoPlugin`].
    pub fn info(&self, hash: &PluginHash, used_by: Vec<Name>) -> Result<PluginInfo, ServeError> {
        let known = self.known();
        let known = known.get(hash).ok_or_else(|| ServeError::NoPlugin { hash: hash.clone() })?;
        Ok(known.info(hash, used_by))
    }

    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    #[cfg(test)]
    pub fn is_in_memory(&self, hash: &PluginHash) -> bool {
        self.known().get(hash).is_some_and(|known| known.loaded.strong_count() > 0)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<PluginHash, Known>> {
        // A map of whole entries is sound whatever a panicking thread was doing.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error that calls the component what its sender does.
fn renamed(error: GuestError, shown: &Path) -> GuestError {
    match error {
        GuestError::Plugin { operator, problem, .. } => {
            GuestError::Plugin { operator, path: shown.to_owned(), problem }
        }
        other => other,
    }
}

fn facts_of(plugin: &Plugin) -> PluginFacts {
    let (operator, interface) = (plugin.descriptor(), plugin.interface());
    let redistribution = serde_json::to_value(operator.redistribution).expect("plain data");
    PluginFacts {
        name: operator.name.clone(),
        version: operator.version.clone(),
        world: format!("{}@{}", WORLD.package, interface.world_version().unwrap_or(WORLD.version)),
        inputs: operator
            .inputs
            .iter()
            .map(|input| InputInfo { name: input.name.to_string(), broadcast: input.broadcast })
            .collect(),
        outputs: operator.outputs.iter().map(Name::to_string).collect(),
        tables: operator
            .tables
            .iter()
            .map(|table| TableInfo {
                name: table.name.to_string(),
                kind: table.kind.as_str().to_owned(),
                version: table.version,
            })
            .collect(),
        timers: operator.timers,
        redistribution: redistribution.as_str().unwrap_or_default().to_owned(),
        imports: interface.imports.clone(),
        exports: interface.exports.clone(),
    }
}
