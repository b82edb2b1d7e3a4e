//! `toolgate check`: finds everything that `toolgate serve` refuses or that has no effect.
//!
//! Unset variables are errors where the gateway would not start, and warnings where only a server, a
//! key or a provider could not be used. The tools of servers are known only to the servers, so those
//! of which the configuration names tools are started; but only those of a file that the user named,
//! not of one that was found in the working folder.

use std::process::ExitCode;
use std::time::Duration;

use toolgate::{Environment, Gateway};
use toolgate_core::Config;
use toolgate_core::config::{
    AuditSinkSettings, KeyCredential, NameOwner, ServerConfig, ServerConnection, Severity,
    StoreKeySource, Tls,
};
use toolgate_core::plural::count;
use toolgate_core::secret::{Secret, UnsetVariable};

use super::{ConfigFlags, print_line};
use crate::configuration::find_exposed_files;
use crate::files::{self, ProjectState};

/// Maximum time to wait for a server to list its tools.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
const PEM_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

#[derive(Debug, clap::Args)]
pub(super) struct CheckCommand {
    #[command(flatten)]
    config: ConfigFlags,
}

/// Prints findings and counts the errors.
struct Report {
    environment: Environment,
    errors: usize,
}

impl CheckCommand {
    pub(super) async fn run(&self) -> anyhow::Result<ExitCode> {
        let mut report = Report {
            environment: files::environment(),
            errors: 0,
        };
        let selection = self.config.selection();
        let files = files::load(&selection, &report.environment)?;
        let documents = files.all_documents();
        let names: Vec<&str> = documents
            .iter()
            .map(|document| document.name.as_str())
            .collect();
        let (config, findings) = match Config::load(&documents) {
            Ok((config, findings)) => (Some(config), findings),
            Err(invalid) => (None, invalid.0),
        };
        for finding in &findings {
            print_line(&finding.to_string())?;
            report.errors += usize::from(finding.severity >= Severity::UnknownName);
        }
        if let Some(config) = &config {
            report.check_startup(config)?;
            report.check_use(config)?;
            // Servers of a project are started only once its file is trusted.
            if !matches!(files.project, ProjectState::Untrusted(_)) {
                report.check_tool_names(config).await?;
            }
        }
        let Some(config) = config.filter(|_| report.errors == 0) else {
            print_line(&count(report.errors as u64, "error", "errors"))?;
            return Ok(ExitCode::FAILURE);
        };
        let data_dir = config.listen.data_dir.as_deref();
        let own_files = files::own_files(&selection, data_dir, &report.environment);
        for warning in find_exposed_files(&config, &own_files) {
            print_line(&format!("warning: {warning}"))?;
        }
        if let ProjectState::Untrusted(project) = &files.project {
            print_line(&format!(
                "warning: `{}` is not trusted; it is used after `toolgate trust`, and the names of tools in it were not checked",
                project.path.display()
            ))?;
        }
        match names.as_slice() {
            [] => print_line("no configuration file found; using the defaults")?,
            names => print_line(&format!(
                "{} is valid: {}",
                names.join(" and "),
                count(config.servers.len() as u64, "server", "servers")
            ))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Report {
    /// Checks what the gateway cannot start without.
    fn check_startup(&mut self, config: &Config) -> anyhow::Result<()> {
        let mut secrets: Vec<(&str, &Secret)> = Vec::new();
        secrets.extend(config.listen.admin_key.iter().map(|key| ("admin_key", key)));
        secrets.extend(
            config
                .audit
                .seal_key
                .iter()
                .map(|key| ("audit.seal_key", key)),
        );
        if let Some(AuditSinkSettings::Http { headers, .. }) = &config.audit.sink {
            secrets.extend(headers.values().map(|value| ("audit.sink.headers", value)));
        }
        let store_key = config.listen.store_key.as_ref();
        if let Some(StoreKeySource::Command(command)) = store_key {
            let values = command.env.values();
            secrets.extend(values.map(|value| ("store.key_command_env", value)));
        }
        for (key, secret) in secrets {
            if let Err(unset) = self.resolve(secret) {
                self.error(&format!("{key}: error: {unset}"))?;
            }
        }
        match store_key {
            Some(StoreKeySource::Variable(name)) => {
                if let Err(unset) = self.resolve(&Secret::Env(name.clone())) {
                    self.error(&format!("store.key: error: {unset}"))?;
                }
            }
            Some(StoreKeySource::File(file)) if !file.is_file() => {
                let file = file.display();
                self.error(&format!("store.key_file: error: no file `{file}`"))?;
            }
            Some(StoreKeySource::File(_) | StoreKeySource::Command(_)) | None => {}
        }
        Ok(())
    }

    /// Checks what single keys, servers and providers cannot be used without.
    fn check_use(&mut self, config: &Config) -> anyhow::Result<()> {
        for key in &config.keys {
            if let KeyCredential::Key(secret) = &key.proof
                && let Err(unset) = self.resolve(secret)
            {
                print_line(&format!("key `{}`: warning: {unset}", key.name))?;
            }
        }
        for server in &config.servers {
            let owner = format!("server `{}`", server.name);
            for secret in server_secrets(server) {
                if let Err(unset) = self.resolve(secret) {
                    print_line(&format!("{owner}: warning: {unset}"))?;
                }
            }
            if let ServerConnection::Http(http) = &server.connection {
                self.check_tls(&owner, &http.tls)?;
            }
        }
        for provider in &config.models.providers {
            let owner = format!("provider `{}`", provider.name);
            for key in &provider.keys {
                if let Err(unset) = self.resolve(&key.value) {
                    print_line(&format!("{owner}: warning: {unset}"))?;
                }
            }
            self.check_tls(&owner, &provider.network.tls)?;
        }
        Ok(())
    }

    fn check_tls(&mut self, owner: &str, tls: &Tls) -> anyhow::Result<()> {
        match tls.ca_cert_pem.as_ref().map(|pem| self.resolve(pem)) {
            None => Ok(()),
            Some(Err(unset)) => self.error(&format!("{owner}: error: `ca_cert_pem`: {unset}")),
            Some(Ok(pem)) if pem.contains(PEM_CERTIFICATE) => Ok(()),
            Some(Ok(_)) => self.error(&format!(
                "{owner}: error: `ca_cert_pem` contains no PEM certificate; it takes the certificate itself, preferably as `env.NAME`, not the path of a file"
            )),
        }
    }

    /// Checks names of tools against the servers themselves.
    async fn check_tool_names(&mut self, config: &Config) -> anyhow::Result<()> {
        let named = config.servers_with_named_tools().into_iter().cloned();
        let mut started = Config {
            servers: named.collect(),
            security: config.security.clone(),
            ..Config::default()
        };
        let can_start = |server: &ServerConfig| {
            server.enabled && config.security.refusal_key(&server.name).is_none()
        };
        started.servers.retain(can_start);
        for server in &mut started.servers {
            // The fallback may be missing here, and no script runs.
            server.fallback = None;
            server.code_mode = false;
        }
        if started.servers.is_empty() {
            return Ok(());
        }
        let hidden = files::hidden_from_servers(None, config, &self.environment);
        let gateway = Gateway::builder(started)
            .server_launcher(hidden)
            .environment(self.environment.clone())
            .start()
            .await?;
        for entry in gateway.servers().list() {
            let settled = tokio::time::timeout(LISTING_TIMEOUT, entry.wait_settled()).await;
            if settled.is_err() || gateway.catalog().listing(&entry.server.name).is_none() {
                let reason = entry.status().reason.clone();
                let reason = reason.unwrap_or_else(|| "no response".to_owned());
                print_line(&format!(
                    "server `{}`: warning: its tools are not known, so their names were not checked: {reason}",
                    entry.server.name
                ))?;
            }
        }
        let problems = config.find_name_problems(&gateway.catalog());
        gateway.stop(Duration::ZERO).await;
        let unknown_servers = config.find_name_problems(&toolgate_core::Catalog::default());
        for problem in problems {
            // Those have been reported with their location.
            if problem.is_in(&unknown_servers) {
                continue;
            }
            match problem.owner {
                NameOwner::Server(_) => {
                    print_line(&format!("{}: warning: {}", problem.owner, problem.reason))?
                }
                _ => self.error(&format!("{}: error: {}", problem.owner, problem.reason))?,
            }
        }
        Ok(())
    }

    fn resolve(&self, secret: &Secret) -> Result<String, UnsetVariable> {
        secret.resolve(&|name| self.environment.get(name))
    }

    fn error(&mut self, line: &str) -> anyhow::Result<()> {
        self.errors += 1;
        print_line(line)
    }
}

fn server_secrets(server: &ServerConfig) -> Vec<&Secret> {
    match &server.connection {
        ServerConnection::Stdio(stdio) => stdio.env.values().collect(),
        ServerConnection::Http(http) => std::iter::once(&http.url)
            .chain(http.headers.values())
            .collect(),
        ServerConnection::InProcess => Vec::new(),
    }
}
