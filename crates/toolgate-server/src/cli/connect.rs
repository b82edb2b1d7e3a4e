//! `toolgate connect`: writes the settings that connect an MCP client to the gateway, or prints them.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use toolgate::Environment;
use url::Url;

use super::print_line;
use crate::client_settings::{
    Client, Connection, ConnectionKey, Platform, SettingsFile, format_diff,
};
use crate::files;

/// Connect an MCP client to the gateway: show the change of its settings file, and write it once confirmed
#[derive(Debug, clap::Args)]
pub(super) struct ConnectCommand {
    /// MCP client to connect
    #[arg(value_enum)]
    client: Client,
    /// URL of the gateway [default: http://127.0.0.1:8080, or for clients that start `toolgate mcp` the gateway that it finds]
    #[arg(long, env = "TOOLGATE_URL")]
    url: Option<Url>,
    /// Name of the environment variable that holds the caller key, if one is needed
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Write the key itself into the file instead of the name of its variable, for clients that do not get the variable
    #[arg(long, requires = "key_env")]
    write_key: bool,
    /// Expose only this server, with its original tool names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Expose only this virtual server
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    virtual_server: Option<String>,
    /// Settings file to change instead of the client's usual one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write the change without asking
    #[arg(long, short)]
    yes: bool,
    /// Print the settings and change nothing
    #[arg(long, conflicts_with = "yes")]
    print: bool,
}

impl ConnectCommand {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let connection = self.connection(&environment)?;
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self
                .client
                .settings_file(Platform::current(), &environment)?,
        };
        let entry = self.client.entry(&connection, file);
        if self.print {
            // On standard error, so that the output can be redirected into a file.
            let _ = writeln!(std::io::stderr(), "in {}:", entry.file.display());
            print_line(entry.snippet()?.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let file = SettingsFile::read(&entry.file)?;
        let name = entry.file.display();
        let content = entry.apply(file.content()).with_context(|| {
            let snippet = entry.snippet().unwrap_or_default();
            format!(
                "`{name}` was not changed; repair it, or add these settings yourself:\n\n{}\n\n`{name}`",
                snippet.trim_end()
            )
        })?;
        if content == file.content() {
            print_line(&format!("`{name}` connects to the gateway already"))?;
            return Ok(ExitCode::SUCCESS);
        }
        print_line(&format_diff(&name.to_string(), file.content(), &content))?;
        if !self.yes && !confirm("write this change?")? {
            print_line("nothing was changed")?;
            return Ok(ExitCode::FAILURE);
        }
        let backup = file.replace(&content)?;
        print_line(&match backup {
            Some(backup) => format!(
                "wrote `{name}`; the previous file is `{}`",
                backup.display()
            ),
            None => format!("wrote `{name}`"),
        })?;
        print_line(&format!("next: {}", self.client.next_step(&connection)))?;
        Ok(ExitCode::SUCCESS)
    }

    fn connection(&self, environment: &Environment) -> anyhow::Result<Connection> {
        let (path, selection) = match (&self.server, &self.virtual_server) {
            (Some(name), _) => (format!("mcp/{name}"), vec!["--server", name]),
            (None, Some(name)) => (format!("mcp/v/{name}"), vec!["--virtual-server", name]),
            (None, None) => ("mcp".to_owned(), Vec::new()),
        };
        let mut url = match &self.url {
            Some(url) => url.clone(),
            None => Url::parse(super::DEFAULT_URL)?,
        };
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        let mut arguments = vec!["mcp"];
        if let Some(url) = &self.url {
            arguments.extend(["--url", url.as_str()]);
        }
        if let Some(variable) = &self.key_env {
            arguments.extend(["--key-env", variable]);
        }
        arguments.extend(selection);
        Ok(Connection {
            url,
            program: find_program(environment)?,
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            key: self.key(environment)?,
        })
    }

    fn key(&self, environment: &Environment) -> anyhow::Result<Option<ConnectionKey>> {
        let Some(variable) = &self.key_env else {
            return Ok(None);
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if variable.is_empty() || !variable.chars().all(is_name) {
            bail!(
                "`{variable}` is not the name of an environment variable; --key-env takes the name, not the key"
            );
        }
        let value = environment.get(variable).filter(|key| !key.is_empty());
        let value = match (self.write_key, value) {
            (true, None) => {
                bail!("{variable} is not set; set it to the key that --write-key is to write")
            }
            (true, value) => value,
            (false, _) => None,
        };
        Ok(Some(ConnectionKey {
            variable: variable.clone(),
            value,
        }))
    }
}

/// Returns the command that starts this program. Clients with a window often have another search path, so it
/// is an absolute path: the one in the search path if that leads here, since it stays the same across updates.
fn find_program(environment: &Environment) -> anyhow::Result<String> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let search_path = environment.get("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&search_path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("toolgate"));
    let found = candidates.find(|path| real(path).is_some_and(|path| Some(path) == real(&own)));
    Ok(found.unwrap_or(own).display().to_string())
}

fn confirm(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "nothing was changed, because nobody can be asked; pass --yes to write the change, or --print to print the settings"
        );
    }
    let mut output = std::io::stderr();
    write!(output, "{question} [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
