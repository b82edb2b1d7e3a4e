//! Definitions of tools: their history, which of them are trusted, and which look suspicious.
//!
//! A definition is trusted when it is seen for the first time, or when an administrator trusts it. One
//! that changed later, or that a known server adds with the name of another server's tool, is not. A task
//! reviews every new catalog and adds the reviews to it, where they can hide tools; until a definition
//! is reviewed and stored as trusted, it passes for neither.

mod diff;
mod history;
mod review;
mod store;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
pub use diff::DefinitionChange;
pub(crate) use history::DefinitionHistory;
pub use history::ToolVersion;
use parking_lot::Mutex;
pub use review::DefinitionState;
use review::{ReviewInput, ReviewedDefinition};
use serde_json::json;
use store::TrustStore;
pub(crate) use store::TrustedDefinition;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::catalog::{DefinitionReviews, Tool};
use toolgate_core::config::DefinitionSettings;
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::scan::DefinitionFinding;
use toolgate_core::{Catalog, Config};
use toolgate_mcp::registry::Registry;

use crate::audit::{AdminAction, AuditLog};
use crate::store::{Store, StoreError, clock};

/// Tools of a server whose definitions are remembered. A server may list other tools again and again;
/// further ones are never trusted by themselves.
const MAX_TOOLS_PER_SERVER: usize = 20_000;
/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Reviews definitions and remembers which ones are trusted. Clones share state.
#[derive(Clone, Debug)]
pub struct Definitions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: TrustStore,
    audit: AuditLog,
    registry: Weak<Registry>,
    settings: ArcSwap<HashMap<ServerName, DefinitionSettings>>,
    trusted: Mutex<TrustedDefinitions>,
    /// The last review, of the catalog of a generation.
    reviewed: watch::Sender<CatalogReview>,
    /// Signals that a catalog must be reviewed again.
    outdated: watch::Sender<()>,
    /// Held while trust is stored, so that the memory agrees with the store.
    changing: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What is trusted, as stored.
#[derive(Clone, Debug, Default)]
struct TrustedDefinitions {
    tools: HashMap<ToolId, TrustedDefinition>,
    /// Servers whose tools have been seen. What they add later is not seen for the first time.
    servers: HashSet<ServerName>,
}

#[derive(Clone, Debug, Default)]
struct CatalogReview {
    generation: u64,
    definitions: Arc<Vec<ReviewedDefinition>>,
    /// As added to the catalog.
    reviews: Arc<DefinitionReviews>,
}

/// A definition, and what is known about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DefinitionReport {
    /// The tool.
    pub tool: ToolId,
    /// Name under which models see it.
    pub alias: Arc<str>,
    /// Whether it is trusted.
    pub state: DefinitionState,
    /// Whether the tool is hidden because of its definition.
    pub is_hidden: bool,
    /// Suspicious text.
    pub findings: Vec<DefinitionFinding>,
    /// Hash of everything in the definition that matters to callers.
    pub hash: String,
    /// Time at which the trusted definition was trusted, in milliseconds since the Unix epoch.
    pub trusted_at: Option<i64>,
    /// Who trusted it; `None` if it was seen for the first time.
    pub trusted_by: Option<String>,
    /// Differences from the trusted definition, or from that of the other server's tool.
    pub changes: Vec<DefinitionChange>,
}

/// A definition that an administrator has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDefinition {
    /// The tool.
    pub tool: ToolId,
    /// Hash of the definition.
    pub hash: String,
}

/// The reason definitions could not be trusted. None of them is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The tool does not exist.
    #[error("there is no tool `{0}`; the server may be disconnected")]
    Unknown(ToolId),
    /// The definition is not the one that was read.
    #[error("the definition of `{0}` has changed since it was read; read it again")]
    Changed(ToolId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Definitions {
    /// Starts the task that reviews each catalog.
    pub(crate) async fn start(
        store: Store,
        audit: AuditLog,
        registry: &Arc<Registry>,
        config: &Config,
    ) -> Result<Self, StoreError> {
        let store = TrustStore::new(store);
        let definitions = Self(Arc::new(Inner {
            trusted: Mutex::new(store.load().await?),
            store,
            audit,
            registry: Arc::downgrade(registry),
            settings: ArcSwap::from_pointee(settings_of(config)),
            reviewed: watch::Sender::default(),
            outdated: watch::Sender::default(),
            changing: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }));
        let inner = &definitions.0;
        let task = review_catalogs(
            Arc::downgrade(inner),
            registry.subscribe(),
            inner.outdated.subscribe(),
            inner.stop.clone(),
        );
        inner.tasks.spawn(task);
        inner.tasks.close();
        Ok(definitions)
    }

    /// Applies a new configuration.
    pub(crate) fn apply(&self, config: &Config) {
        self.0.settings.store(Arc::new(settings_of(config)));
        self.0.outdated.send_replace(());
    }

    pub(crate) async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.wait().await;
    }

    /// Waits until no tool is hidden because its definition has not been reviewed yet.
    pub(crate) async fn wait_reviewed(&self) {
        let can_hide = {
            let settings = self.0.settings.load();
            settings.values().any(|settings| settings.can_hide())
        };
        if can_hide {
            self.current_review().await;
        }
    }

    /// Returns the review of the current catalog.
    async fn current_review(&self) -> Arc<Vec<ReviewedDefinition>> {
        let registry = self.0.registry.upgrade();
        let generation = registry.map_or(0, |registry| registry.catalog().generation());
        let mut reviewed = self.0.reviewed.subscribe();
        let is_reviewed = |review: &CatalogReview| review.generation >= generation;
        tokio::select! {
            _ = reviewed.wait_for(is_reviewed) => {}
            () = self.0.stop.cancelled() => {}
        }
        Arc::clone(&self.0.reviewed.borrow().definitions)
    }

    /// Returns what is known about all definitions, ordered by tool. The differences are those from the
    /// trusted definition.
    pub async fn list(&self) -> Result<Vec<DefinitionReport>, StoreError> {
        let definitions = self.current_review().await;
        let mut reports = Vec::with_capacity(definitions.len());
        for definition in definitions.iter() {
            reports.push(self.report(definition).await?);
        }
        Ok(reports)
    }

    /// Returns the definitions that an administrator should read, ordered by tool.
    pub async fn list_unreviewed(&self) -> Result<Vec<DefinitionReport>, StoreError> {
        let definitions = self.current_review().await;
        let mut reports = Vec::new();
        for definition in definitions.iter().filter(|one| one.needs_attention()) {
            reports.push(self.report(definition).await?);
        }
        Ok(reports)
    }

    /// Describes each server whose definitions an administrator should read.
    pub fn problems(&self) -> Vec<(ServerName, String)> {
        review::summarize(&self.0.reviewed.borrow().definitions)
    }

    /// Trusts definitions that an administrator has read: all of them or none.
    pub async fn trust(&self, actor: &str, read: &[ReadDefinition]) -> Result<(), TrustError> {
        let inner = &self.0;
        let _guard = inner.changing.lock().await;
        // A stopped gateway has no tools.
        let registry = inner.registry.upgrade();
        let catalog = registry.map_or_else(Arc::default, |registry| registry.catalog());
        let mut rows = Vec::with_capacity(read.len());
        for ReadDefinition { tool, hash } in read {
            let definitions = catalog.definitions_of(tool);
            if definitions.is_empty() {
                return Err(TrustError::Unknown(tool.clone()));
            }
            let mut definitions = definitions.iter();
            let read = definitions.find(|entry| entry.tool.contract_hash() == hash);
            let entry = read.ok_or_else(|| TrustError::Changed(tool.clone()))?;
            let before = inner.trusted.lock().tools.get(tool).cloned();
            let now = clock::now();
            let trusted = TrustedDefinition {
                hash: hash.clone(),
                first_seen: before.as_ref().map_or(now, |before| before.first_seen),
                trusted_at: now,
                trusted_by: Some(actor.to_owned()),
            };
            rows.push((Arc::clone(&entry.tool), trusted, before));
        }
        let hashes = |hash: Option<String>| hash.map(|hash| json!({"definition": hash}));
        let actions = rows.iter().map(|(tool, trusted, before)| {
            let before = before.as_ref().map(|before| before.hash.clone());
            let after = hashes(Some(trusted.hash.clone()));
            AdminAction::new(actor, "definition.trust", &tool.id.to_string())
                .with_change(hashes(before), after)
        });
        let entries = actions.map(|action| inner.audit.prepare(action.into_record()));
        let entries = entries.collect();
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(tool, trusted, _)| (tool, trusted))
            .collect();
        let transaction = inner.store.begin_trust(&rows).await?;
        inner.audit.commit(transaction, entries).await?;
        inner.remember(rows);
        let reviewed = inner.compute_review(&catalog).await;
        inner.publish(&catalog, reviewed).await;
        Ok(())
    }

    async fn report(
        &self,
        definition: &ReviewedDefinition,
    ) -> Result<DefinitionReport, StoreError> {
        let tool = &definition.tool;
        let compared = match &definition.state {
            DefinitionState::Changed => Some(&tool.id),
            DefinitionState::Shadowing(other) => Some(other),
            DefinitionState::New | DefinitionState::Trusted => None,
        };
        let changes = match compared {
            Some(compared) => {
                let before = self.0.store.definition(compared).await?;
                diff::compare(before.as_deref(), tool.sent_definition().get())
            }
            None => Vec::new(),
        };
        let trusted = self.0.trusted.lock().tools.get(&tool.id).cloned();
        Ok(DefinitionReport {
            tool: tool.id.clone(),
            alias: Arc::clone(&definition.alias),
            state: definition.state.clone(),
            is_hidden: definition.is_hidden(),
            findings: definition.findings.clone(),
            hash: tool.contract_hash().to_owned(),
            trusted_at: trusted.as_ref().map(|trusted| trusted.trusted_at),
            trusted_by: trusted.and_then(|trusted| trusted.trusted_by),
            changes,
        })
    }
}

impl TrustedDefinitions {
    fn count_per_server(&self) -> HashMap<ServerName, usize> {
        let mut counts = HashMap::new();
        for id in self.tools.keys() {
            *counts.entry(id.server.clone()).or_default() += 1;
        }
        counts
    }
}

impl Inner {
    /// Reviews a catalog, and trusts what was seen for the first time.
    async fn review(&self, catalog: &Arc<Catalog>) -> Result<(), StoreError> {
        let _guard = self.changing.lock().await;
        let definitions = self.compute_review(catalog).await;
        let first_seen = first_seen(&definitions, &self.trusted.lock());
        let servers = self.unknown_servers(catalog);
        if first_seen.is_empty() && servers.is_empty() {
            self.publish(catalog, definitions).await;
            return Ok(());
        }
        let stored = self.store.record_first_seen(&first_seen, &servers).await;
        let definitions = match &stored {
            Ok(()) => {
                self.remember(first_seen);
                self.trusted.lock().servers.extend(servers);
                self.compute_review(catalog).await
            }
            Err(_) => definitions,
        };
        self.publish(catalog, definitions).await;
        stored
    }

    async fn compute_review(&self, catalog: &Arc<Catalog>) -> Vec<ReviewedDefinition> {
        let input = ReviewInput {
            catalog: Arc::clone(catalog),
            settings: self.settings.load_full(),
            trusted: self.trusted.lock().clone(),
        };
        // Thousands of definitions take a while.
        let reviewed = tokio::task::spawn_blocking(move || review::review(&input)).await;
        reviewed.unwrap_or_else(|error| {
            tracing::error!(%error, "failed to review definitions");
            Vec::new()
        })
    }

    /// Returns the servers that list something for the first time.
    fn unknown_servers(&self, catalog: &Catalog) -> Vec<ServerName> {
        let (settings, trusted) = (self.settings.load(), self.trusted.lock());
        let is_watched = |server: &ServerName| {
            let settings = settings.get(server);
            settings.is_some_and(|settings| !settings.is_off())
        };
        let listed = catalog.listings().map(|(server, _)| server);
        listed
            .filter(|server| is_watched(server) && !trusted.servers.contains(*server))
            .cloned()
            .collect()
    }

    /// Adds the reviews to the catalog if they can hide tools.
    async fn publish(&self, catalog: &Catalog, definitions: Vec<ReviewedDefinition>) {
        review::log_changes(&self.reviewed.borrow().definitions, &definitions);
        let mut reviews = DefinitionReviews::default();
        for definition in definitions.iter().filter(|one| one.settings.can_hide()) {
            reviews.insert(&definition.tool, definition.review());
        }
        let is_changed = *self.reviewed.borrow().reviews != reviews;
        let reviews = Arc::new(reviews);
        if is_changed && let Some(registry) = self.registry.upgrade() {
            registry.set_definition_reviews(Arc::clone(&reviews)).await;
        }
        self.reviewed.send_replace(CatalogReview {
            generation: catalog.generation(),
            definitions: Arc::new(definitions),
            reviews,
        });
    }

    fn remember(&self, rows: Vec<(Arc<Tool>, TrustedDefinition)>) {
        let mut trusted = self.trusted.lock();
        for (tool, definition) in rows {
            trusted.servers.insert(tool.id.server.clone());
            trusted.tools.insert(tool.id.clone(), definition);
        }
    }
}

/// Returns the definitions that were seen for the first time, to be trusted: as many as may be
/// remembered of each server.
fn first_seen(
    definitions: &[ReviewedDefinition],
    trusted: &TrustedDefinitions,
) -> Vec<(Arc<Tool>, TrustedDefinition)> {
    let now = clock::now();
    let mut counts = trusted.count_per_server();
    let mut tools = HashSet::new();
    let new = definitions
        .iter()
        // Of a tool with several definitions, the one that most clients see comes first.
        .filter(|one| one.state == DefinitionState::New && tools.insert(&one.tool.id))
        .filter(|one| {
            let count = counts.entry(one.tool.id.server.clone()).or_default();
            *count += 1;
            *count <= MAX_TOOLS_PER_SERVER
        });
    let trusted = new.map(|one| {
        let trusted = TrustedDefinition {
            hash: one.tool.contract_hash().to_owned(),
            first_seen: now,
            trusted_at: now,
            trusted_by: None,
        };
        (Arc::clone(&one.tool), trusted)
    });
    trusted.collect()
}

fn settings_of(config: &Config) -> HashMap<ServerName, DefinitionSettings> {
    let servers = config.servers.iter();
    servers
        .map(|server| (server.name.clone(), config.definition_settings(server)))
        .collect()
}

/// Reviews each catalog until stopped.
async fn review_catalogs(
    definitions: Weak<Inner>,
    mut catalogs: watch::Receiver<Arc<Catalog>>,
    mut outdated: watch::Receiver<()>,
    stop: CancellationToken,
) {
    loop {
        let catalog = Arc::clone(&catalogs.borrow_and_update());
        outdated.mark_unchanged();
        let Some(inner) = definitions.upgrade() else {
            return;
        };
        let started = Instant::now();
        let reviewed = inner.review(&catalog).await;
        drop(inner);
        // A server that changes its list all the time must not keep a processor busy.
        tokio::select! {
            () = tokio::time::sleep(started.elapsed()) => {}
            () = stop.cancelled() => return,
        }
        let retry = async {
            match &reviewed {
                Ok(()) => std::future::pending().await,
                Err(error) => {
                    tracing::error!(%error, "failed to store trusted definitions; retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        };
        tokio::select! {
            changed = catalogs.changed() => if changed.is_err() { return },
            changed = outdated.changed() => if changed.is_err() { return },
            () = retry => {}
            () = stop.cancelled() => return,
        }
    }
}
