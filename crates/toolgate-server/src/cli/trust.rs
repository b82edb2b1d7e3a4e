//! `toolgate trust`: shows what the configuration file in the working folder does, and trusts it.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::bail;
use toolgate_core::Config;

use super::print_line;
use crate::files;
use crate::project::{self, ProjectFile, TrustStore};

/// Trust the configuration file in the working folder
///
/// Prints the commands, URLs, environment variables and rules of `toolgate.toml` or `config.json`, and
/// remembers the hash of the file. After any change, it has to be trusted again. On a terminal, asks first.
#[derive(Debug, clap::Args)]
pub(super) struct TrustCommand {}

impl TrustCommand {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let Some(project) = ProjectFile::find()? else {
            bail!("there is no `toolgate.toml` and no `config.json` of Toolgate in this folder");
        };
        if project.document.has_syntax_error() {
            Config::load(std::slice::from_ref(&project.document))?;
        }
        let store = TrustStore::open(&files::environment())?;
        print_line(&project::summarize(&project))?;
        if store.contains(&project)? {
            print_line("this file is trusted already")?;
            return Ok(ExitCode::SUCCESS);
        }
        if !is_confirmed()? {
            print_line("not trusted")?;
            return Ok(ExitCode::FAILURE);
        }
        store.add(&project)?;
        print_line("trusted; a running gateway uses it within seconds")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the person at the terminal. Without one, running the command is the confirmation.
fn is_confirmed() -> anyhow::Result<bool> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(true);
    }
    let mut output = std::io::stdout();
    write!(output, "\nTrust this file? [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
