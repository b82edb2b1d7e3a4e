//! What `toolgate serve` and a stand-alone `toolgate mcp` have in common: a gateway with its data directory,
//! its configuration and its HTTP API.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::{Environment, Gateway, Store};
use toolgate_core::Config;
use toolgate_core::config::{Document, ListenSettings};

use crate::configuration::{ConfigFiles, ConfigManager};
use crate::files::{self, ConfigSelection};
use crate::http::App;
use crate::http::auth::{AdminKey, KeylessCallers};
use crate::http::guard::HostGuard;
use crate::store_key::{self, StoreKeyFlags};
use crate::telemetry::OtelTracer;

/// The files that a gateway uses.
#[derive(Clone, Debug)]
pub(crate) struct GatewayFiles {
    pub(crate) selection: ConfigSelection,
    pub(crate) data_dir: PathBuf,
    /// Files with keys.
    pub(crate) key_files: Vec<PathBuf>,
    pub(crate) environment: Environment,
}

/// Who may use the HTTP API.
#[derive(Debug)]
pub(crate) struct HttpAccess {
    pub(crate) guard: HostGuard,
    pub(crate) admin_key: AdminKey,
    pub(crate) keyless: KeylessCallers,
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct GatewayProcess {
    pub(crate) gateway: Gateway,
    pub(crate) app: App,
    /// Ends the tasks.
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl GatewayFiles {
    /// Opens the store in the data directory, which locks that.
    pub(crate) async fn open_store(
        &self,
        config: &Config,
        store_key: &StoreKeyFlags,
    ) -> anyhow::Result<Store> {
        let place = store_key.place(config, &self.environment)?;
        let key = store_key::load(place.as_ref(), &self.environment).await?;
        Ok(Store::open_with_key(&self.data_dir, &key).await?)
    }

    /// Starts a gateway.
    pub(crate) async fn start(
        self,
        documents: Vec<Document>,
        store: Store,
        access: HttpAccess,
        tracer: Option<OtelTracer>,
    ) -> anyhow::Result<GatewayProcess> {
        let config_files = ConfigFiles {
            selection: self.selection,
            data_dir: self.data_dir.clone(),
            environment: self.environment.clone(),
        };
        let loaded = ConfigManager::load(config_files, documents, store.clone()).await;
        let (manager, config) = loaded?;
        let http = config.listen.http.clone();
        let own_paths = [self.data_dir].into_iter().chain(self.key_files);
        let hidden = files::hidden_from_servers(own_paths, &config, &self.environment);
        let builder = Gateway::builder(config)
            .script_worker()
            .server_launcher(hidden)
            .environment(self.environment)
            .store(store);
        let builder = match tracer {
            Some(tracer) => builder.tracer(tracer),
            None => builder,
        };
        let gateway = builder.start().await?;
        let stop = CancellationToken::new();
        let (configuration, manager_task) = manager.start(gateway.clone(), stop.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(manager_task);
        let app = App::new(gateway.clone(), configuration, access, http);
        Ok(GatewayProcess {
            gateway,
            app,
            stop,
            tasks,
        })
    }
}

/// Returns the admin key: from a file, the environment, the configuration, or generated.
pub(crate) fn resolve_admin_key(
    file: Option<&Path>,
    listen: &ListenSettings,
    environment: &Environment,
    data_dir: &Path,
) -> anyhow::Result<AdminKey> {
    // A flag would show the key in the list of processes. `${KEY:-}` in a shell or compose file
    // yields an empty variable, which counts as unset.
    let variable = environment
        .get("TOOLGATE_ADMIN_KEY")
        .filter(|key| !key.is_empty());
    let setting = match (file, variable, &listen.admin_key) {
        (Some(file), ..) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the admin key in `{}`", file.display()))?;
            Some(text.trim().to_owned())
        }
        (None, Some(key), _) => Some(key),
        (None, None, Some(secret)) => Some(
            secret
                .resolve(&|name| environment.get(name))
                .context("cannot resolve `admin_key`")?,
        ),
        (None, None, None) => None,
    };
    AdminKey::from_setting(setting.as_deref(), data_dir)
}
