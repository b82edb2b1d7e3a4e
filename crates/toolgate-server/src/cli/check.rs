//! `toolgate check`: validates the configuration and reports unset secrets.

use std::process::ExitCode;

use toolgate_core::Config;
use toolgate_core::config::{KeyCredential, ServerConfig, ServerConnection, Severity};
use toolgate_core::secret::Secret;

use super::{ConfigFlags, print_line};
use crate::files;

#[derive(Debug, clap::Args)]
pub(super) struct CheckCommand {
    #[command(flatten)]
    config: ConfigFlags,
}

impl CheckCommand {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let documents = self.config.load_documents(&environment)?;
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
        }
        let Some(config) = config else {
            let errors = findings
                .iter()
                .filter(|finding| finding.severity == Severity::Error)
                .count();
            print_line(&format!(
                "{errors} error{}",
                if errors == 1 { "" } else { "s" }
            ))?;
            return Ok(ExitCode::FAILURE);
        };
        for key in &config.keys {
            if let KeyCredential::Key(secret) = &key.proof
                && let Err(unset) = secret.resolve(&|name| environment.get(name))
            {
                print_line(&format!("key `{}`: warning: {unset}", key.name))?;
            }
        }
        for server in &config.servers {
            for secret in server_secrets(server) {
                if let Err(unset) = secret.resolve(&|name| environment.get(name)) {
                    print_line(&format!("server `{}`: warning: {unset}", server.name))?;
                }
            }
        }
        match names.as_slice() {
            [] => print_line("no configuration file found; using the defaults")?,
            names => print_line(&format!(
                "{} is valid: {} servers",
                names.join(" and "),
                config.servers.len()
            ))?,
        }
        Ok(ExitCode::SUCCESS)
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
