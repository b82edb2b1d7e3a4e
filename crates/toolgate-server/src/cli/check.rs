//! `toolgate check`

use std::process::ExitCode;

use toolgate_core::Config;
use toolgate_core::config::{Link, Proof, Server, Severity};
use toolgate_core::secret::Secret;

use super::{ConfigFlag, say};
use crate::files;

#[derive(Debug, clap::Args)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigFlag,
}

impl Check {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let documents = self.config.documents(&environment)?;
        let names: Vec<&str> = documents
            .iter()
            .map(|document| document.name.as_str())
            .collect();
        let (config, findings) = match Config::load(&documents) {
            Ok((config, findings)) => (Some(config), findings),
            Err(invalid) => (None, invalid.0),
        };
        for finding in &findings {
            say(&finding.to_string())?;
        }
        let Some(config) = config else {
            let errors = findings
                .iter()
                .filter(|finding| finding.severity == Severity::Error)
                .count();
            say(&format!(
                "{errors} mistake{}",
                if errors == 1 { "" } else { "s" }
            ))?;
            return Ok(ExitCode::FAILURE);
        };
        for key in &config.keys {
            if let Proof::Key(secret) = &key.proof
                && let Err(unset) = secret.resolve(&|name| environment.get(name))
            {
                say(&format!("key `{}`: warning: {unset}", key.name))?;
            }
        }
        for server in &config.servers {
            for secret in secrets(server) {
                if let Err(unset) = secret.resolve(&|name| environment.get(name)) {
                    say(&format!("server `{}`: warning: {unset}", server.name))?;
                }
            }
        }
        match names.as_slice() {
            [] => say("no configuration file; the defaults are fine")?,
            names => say(&format!(
                "{} is fine: {} servers",
                names.join(" and "),
                config.servers.len()
            ))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn secrets(server: &Server) -> Vec<&Secret> {
    match &server.link {
        Link::Stdio(stdio) => stdio.env.values().collect(),
        Link::Http(http) => std::iter::once(&http.url)
            .chain(http.headers.values())
            .collect(),
        Link::InProcess => Vec::new(),
    }
}
