//! The task that owns the configuration: takes changes from the API, and watches the files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolgate::store::{Override, Store};
use toolgate::{Config, Environment, Gateway};
use toolgate_core::ServerName;
use toolgate_core::config::{Document, Finding, Listen, Server, entries};

use super::layers::{Layers, Named, Outdated, Section, Source};
use super::watch::Watch;
use super::{Ask, ChangeError, Configuration, Done, Published, Put, Request, apply};
use crate::files;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Where the files are.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) named: Option<PathBuf>,
    /// Which of the configuration's environments was chosen when the gateway was started.
    pub(crate) chosen: Option<String>,
    pub(crate) environment: Environment,
}

#[derive(Debug)]
pub(crate) struct Keeper {
    files: Files,
    store: Store,
    layers: Layers,
    /// What the gateway was told at its start about being reached.
    listen: Listen,
}

impl Keeper {
    /// Reads the store over the files. A change that no longer fits is left out, and told.
    pub(crate) async fn load(
        files: Files,
        documents: Vec<Document>,
        store: Store,
    ) -> Result<(Self, Config), anyhow::Error> {
        let mut layers = Layers {
            documents,
            ..Layers::default()
        };
        let (listen, _) = layers
            .config()
            .map(|(config, findings)| (config.listen, findings))?;
        layers.overrides = store.overrides().await?;
        for section in Section::ALL {
            let stored = store.setting(section.as_str()).await?;
            layers
                .sections
                .extend(stored.map(|stored| (section, stored)));
        }
        for table in Named::ALL {
            if let Some((Value::Object(entries), _)) = store.setting(table.as_str()).await? {
                layers.named.insert(table, entries);
            }
        }
        let mut keeper = Self {
            files,
            store,
            layers,
            listen,
        };
        let outdated = keeper.layers.drop_outdated();
        keeper.forget(&outdated).await;
        if keeper.layers.sections.contains_key(&Section::Permissions) {
            tracing::warn!(
                "permissions that were set through the API hold instead of those in the files; DELETE /api/permissions goes back"
            );
        }
        while let Err(invalid) = keeper.layers.config() {
            let Some(change) = keeper.layers.take_misfit(&invalid) else {
                break;
            };
            tracing::error!(
                change,
                "what the API set no longer fits the files and is left out: {invalid}"
            );
        }
        let (config, _) = keeper.layers.config()?;
        Ok((keeper, config))
    }

    /// Takes changes until `stop`.
    pub(crate) fn start(
        self,
        gateway: Gateway,
        stop: CancellationToken,
    ) -> (Configuration, impl Future<Output = ()> + Send) {
        let (requests, inbox) = mpsc::channel(16);
        let published = Arc::new(ArcSwap::default());
        let handle = Configuration {
            gateway: gateway.clone(),
            requests,
            published: Arc::clone(&published),
        };
        let running = Running {
            keeper: self,
            gateway,
            published,
        };
        if let Ok((config, _)) = running.keeper.layers.config() {
            let published = running.published(&config);
            running.published.store(Arc::new(published));
        }
        (handle, running.run(inbox, stop))
    }

    /// Drops changes from the store that the files have overtaken.
    async fn forget(&self, outdated: &Outdated) {
        for server in &outdated.servers {
            tracing::warn!(
                server,
                "the file's entry has changed, so what the API set is dropped"
            );
            if let Err(error) = self.store.drop_override(server).await {
                tracing::error!(%error, "it could not be dropped from the store");
            }
        }
        for section in &outdated.sections {
            let section = section.as_str();
            tracing::warn!("the file's `{section}` has changed, so what the API set is dropped");
            if let Err(error) = self.store.drop_setting(section).await {
                tracing::error!(%error, "it could not be dropped from the store");
            }
        }
    }
}

/// A keeper at work.
struct Running {
    keeper: Keeper,
    gateway: Gateway,
    published: Arc<ArcSwap<Published>>,
}

impl Running {
    async fn run(mut self, mut inbox: mpsc::Receiver<Request>, stop: CancellationToken) {
        self.forget_keys_that_went_offline().await;
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut watch = Watch::new(&self.keeper.layers.documents);
        loop {
            tokio::select! {
                request = inbox.recv() => {
                    let Some((ask, answer)) = request else { return };
                    let done = tokio::select! {
                        done = self.change(ask) => done,
                        () = stop.cancelled() => Err(ChangeError::Stopping),
                    };
                    let _ = answer.send(done);
                }
                _ = looks.tick() => self.look(&mut watch).await,
                () = stop.cancelled() => return,
            }
        }
    }

    /// Keys may have left the files while no gateway ran.
    async fn forget_keys_that_went_offline(&self) {
        let published = self.published.load_full();
        let keys = &published.config.keys;
        let grants = self.keeper.store.grants().await.unwrap_or_default();
        let callers = grants.iter().filter_map(|grant| grant.caller.as_deref());
        let gone = callers.filter(|name| keys.iter().all(|key| key.name != *name));
        forget_callers(&self.gateway, gone).await;
    }

    /// Takes up files that have changed since they were last seen.
    async fn look(&mut self, watch: &mut Watch) {
        let files = &self.keeper.files;
        let stamps = files::stamps(files.named.as_deref(), &files.environment);
        if watch.is_same(stamps) {
            return;
        }
        let documents = match files::documents(
            files.named.as_deref(),
            files.chosen.as_deref(),
            &files.environment,
        ) {
            Ok(documents) => documents,
            // An editor may be replacing the file just now; the next look finds it.
            Err(error) => {
                tracing::debug!("{error:#}");
                watch.could_not_read();
                return;
            }
        };
        if !watch.is_new(&documents) {
            return;
        }
        let before = self.keeper.layers.clone();
        self.keeper.layers.documents = documents;
        let outdated = self.keeper.layers.drop_outdated();
        match self.take_up().await {
            Ok(findings) => {
                findings
                    .iter()
                    .for_each(|finding| tracing::warn!("{finding}"));
                tracing::info!("the changed configuration is taken up");
                self.keeper.forget(&outdated).await;
            }
            Err(error) => {
                tracing::error!("the changed configuration is not taken up: {error}");
                self.keeper.layers = before;
            }
        }
    }

    async fn change(&mut self, ask: Ask) -> Result<Done, ChangeError> {
        match ask {
            Ask::Add { entry } => self.add(entry).await,
            Ask::Check { entry } => {
                let (server, _) = self.with_entry(entry)?;
                Ok(Done::Checked(Box::new(server)))
            }
            Ask::Patch { id, patch } => self.patch(&id, &patch).await,
            Ask::Remove { id } => self.remove(&id).await,
            Ask::ToolManager { patch } => self.set_tool_manager(&patch).await,
            Ask::Permissions { section } => self.set_section(Section::Permissions, section).await,
            Ask::Put { table, name, put } => self.put(table, name, put).await,
        }
    }

    async fn add(&mut self, mut entry: Value) -> Result<Done, ChangeError> {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        let folded = ServerName::parse(&name).map(|name| name.folded());
        let taken = self
            .gateway
            .servers()
            .into_iter()
            .find(|known| Ok(known.server.name.folded()) == folded);
        if let Some(taken) = taken {
            return Err(ChangeError::Exists(taken.server.name.to_string()));
        }
        if entry.is_object() && entry["client_id"].is_null() {
            entry["client_id"] = uuid::Uuid::new_v4().to_string().into();
        }
        let (_, layers) = self.with_entry(entry)?;
        self.keep(layers, &name).await
    }

    async fn patch(&mut self, id: &str, patch: &Map<String, Value>) -> Result<Done, ChangeError> {
        let (name, known_id) = self.find(id)?;
        for (key, fixed) in [("name", &name), ("client_id", &known_id)] {
            if patch
                .get(key)
                .is_some_and(|value| value.as_str() != Some(fixed))
            {
                let message =
                    format!("`{key}` cannot be changed; add the server anew and delete this one");
                return Err(ChangeError::Invalid(vec![message]));
            }
        }
        let entry = self
            .keeper
            .layers
            .entry(&name)
            .ok_or_else(|| of_the_program(&name))?;
        let (_, layers) = self.with_entry(patched(&entry, patch)?)?;
        self.keep(layers, &name).await
    }

    async fn remove(&mut self, id: &str) -> Result<Done, ChangeError> {
        let (name, _) = self.find(id)?;
        if self.keeper.layers.entry(&name).is_none() {
            return Err(of_the_program(&name));
        }
        let mut layers = self.keeper.layers.clone();
        match layers.file_hash(&name) {
            None => layers.overrides.retain(|change| change.server != name),
            file_hash => layers.put(Override {
                server: name.clone(),
                entry: None,
                file_hash,
            }),
        }
        layers
            .config()
            .map_err(|invalid| ChangeError::invalid(&invalid.0))?;
        self.keep(layers, &name).await
    }

    async fn set_tool_manager(&mut self, patch: &Map<String, Value>) -> Result<Done, ChangeError> {
        let sections = &self.keeper.layers.sections;
        let before = sections.get(&Section::ToolManager);
        let before = before.map(|(settings, _)| settings.clone());
        let settings = patched(&before.unwrap_or_default(), patch)?;
        self.set_section(Section::ToolManager, Some(settings)).await
    }

    async fn set_section(
        &mut self,
        section: Section,
        value: Option<Value>,
    ) -> Result<Done, ChangeError> {
        let mut layers = self.keeper.layers.clone();
        let file_hash = layers.section_hash(section);
        match &value {
            Some(value) => {
                let set = (value.clone(), file_hash.clone());
                layers.sections.insert(section, set);
            }
            None => drop(layers.sections.remove(&section)),
        }
        layers
            .config()
            .map_err(|invalid| ChangeError::invalid(&invalid.0))?;
        let (store, key) = (&self.keeper.store, section.as_str());
        match &value {
            Some(value) => store.put_setting(key, value, &file_hash).await?,
            None => store.drop_setting(key).await?,
        }
        self.keeper.layers = layers;
        self.take_up().await?;
        tracing::info!("`{key}` set through the API");
        Ok(Done::Settings)
    }

    async fn put(&mut self, table: Named, name: String, put: Put) -> Result<Done, ChangeError> {
        let kind = table.as_str().trim_end_matches('s').replace('_', " ");
        let mut layers = self.keeper.layers.clone();
        let what = put.verb();
        if layers.in_files(table).contains(&name) {
            return Err(ChangeError::Conflict(format!(
                "{kind} `{name}` is defined in a configuration file; change it there"
            )));
        }
        if let (Named::Roles, Put::Remove) = (table, &put) {
            let published = self.published.load();
            let mut keys = published.config.keys.iter();
            if let Some(key) = keys.find(|key| key.roles.contains(&name)) {
                return Err(ChangeError::Conflict(format!(
                    "key `{}` has the role `{name}`; take it from the key first",
                    key.name
                )));
            }
        }
        let known = layers.named_entry(table, &name).cloned();
        let missing = || ChangeError::Missing(format!("no {kind} is called `{name}`"));
        let entry = match (put, known) {
            (Put::New(_), Some(_)) => {
                return Err(ChangeError::Conflict(format!(
                    "a {kind} called `{name}` exists already"
                )));
            }
            (Put::New(entry), None) | (Put::Whole(entry), _) => Some(entry),
            (Put::Patch(patch), Some(known)) => Some(patched(&known, &patch)?),
            (Put::Remove, Some(_)) => None,
            (Put::Patch(_) | Put::Remove, None) => return Err(missing()),
        };
        let entries = layers.named.entry(table).or_default();
        match entry {
            Some(entry) => drop(entries.insert(name.clone(), entry)),
            None => drop(entries.shift_remove(&name)),
        }
        let stored = Value::Object(entries.clone());
        layers
            .config()
            .map_err(|invalid| ChangeError::invalid(&invalid.0))?;
        let store = &self.keeper.store;
        store.put_setting(table.as_str(), &stored, "").await?;
        self.keeper.layers = layers;
        self.take_up().await?;
        tracing::info!(name, "{kind} {what} through the API");
        Ok(Done::Settings)
    }

    /// Stores the change of a server, and takes it up.
    async fn keep(&mut self, layers: Layers, name: &str) -> Result<Done, ChangeError> {
        match layers.overrides.iter().find(|change| change.server == name) {
            Some(change) => self.keeper.store.put_override(change).await?,
            None => self.keeper.store.drop_override(name).await?,
        }
        self.keeper.layers = layers;
        self.take_up().await?;
        Ok(Done::Server(name.to_owned()))
    }

    /// The layers with this entry over them, and the server that it makes.
    fn with_entry(&self, entry: Value) -> Result<(Server, Layers), ChangeError> {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        let mut layers = self.keeper.layers.clone();
        let file_hash = layers.file_hash(&name);
        layers.put(Override {
            server: name.clone(),
            entry: Some(entry),
            file_hash,
        });
        let (config, _) = layers
            .config()
            .map_err(|invalid| ChangeError::invalid(&invalid.0))?;
        let server = config
            .servers
            .into_iter()
            .find(|server| server.name.as_str() == name);
        let server =
            server.ok_or_else(|| ChangeError::Invalid(vec!["`name` is missing".to_owned()]))?;
        Ok((server, layers))
    }

    /// Name and id of a configured server.
    fn find(&self, id: &str) -> Result<(String, String), ChangeError> {
        let servers = self.gateway.servers();
        let by_id = servers.iter().find(|entry| entry.server.id == id);
        let found = by_id.or_else(|| {
            servers
                .iter()
                .find(|entry| entry.server.name.as_str() == id)
        });
        let found = found.ok_or_else(|| ChangeError::NotFound(id.to_owned()))?;
        Ok((found.server.name.to_string(), found.server.id.clone()))
    }

    /// Makes the layers the configuration in force.
    async fn take_up(&self) -> Result<Vec<Finding>, ChangeError> {
        let (config, findings) = self
            .keeper
            .layers
            .config()
            .map_err(|invalid| ChangeError::invalid(&invalid.0))?;
        if config.listen != self.keeper.listen {
            tracing::warn!(
                "how the gateway is reached (host, port, keys, hosts, origins) changes at its next start"
            );
        }
        let published = self.published(&config);
        let before = self.published.load_full();
        apply(&self.gateway, config)?;
        let now = &published.config.keys;
        let gone = before.config.keys.iter().map(|key| key.name.as_str());
        let gone = gone.filter(|name| now.iter().all(|key| key.name != *name));
        forget_callers(&self.gateway, gone).await;
        if now.is_empty() && !before.config.keys.is_empty() {
            tracing::warn!("no keys are left: callers on this machine need none now");
        }
        self.published.store(Arc::new(published));
        Ok(findings)
    }

    /// What anyone may read of a configuration.
    fn published(&self, config: &Config) -> Published {
        let layers = &self.keeper.layers;
        let in_files = Named::ALL.map(|table| (table, layers.in_files(table)));
        let by_api = layers.sections.contains_key(&Section::Permissions);
        Published {
            sources: layers.sources(config),
            in_files: in_files.into(),
            permissions_by: by_api.then_some(Source::Api),
            config: config.clone(),
        }
    }
}

/// A key of the same name that comes later inherits nothing.
async fn forget_callers(gateway: &Gateway, names: impl Iterator<Item = &str>) {
    for name in names {
        if let Err(error) = gateway.forget_caller(name).await {
            tracing::error!(%error, key = name, "what the key was granted could not be taken back");
        }
    }
}

fn patched(entry: &Value, patch: &Map<String, Value>) -> Result<Value, ChangeError> {
    entries::patch(entry, patch).map_err(|masked| ChangeError::Invalid(vec![masked.to_string()]))
}

fn of_the_program(name: &str) -> ChangeError {
    ChangeError::Invalid(vec![format!(
        "server `{name}` belongs to the program and cannot be changed"
    )])
}
