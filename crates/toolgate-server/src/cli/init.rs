//! `toolgate init`: asks three questions, writes a configuration file for the working folder, and trusts it.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use toolgate_core::Config;
use toolgate_core::name::ServerName;
use url::Url;

use super::output::print_line;
use crate::files;
use crate::project::{PROJECT_TOML, ProjectFile, TrustStore};

/// Write a configuration file for the working folder, and trust it
///
/// Asks what has no flag: which folder models may work in, which other MCP server to use, and which tools may
/// run without asking.
#[derive(Debug, clap::Args)]
pub(super) struct InitCommand {
    /// Folder whose files models may use, through the filesystem server; `none` for none
    #[arg(long, value_name = "DIR")]
    folder: Option<String>,
    /// Another MCP server, as a URL or a command; `none` for none
    #[arg(long, value_name = "URL|COMMAND")]
    server: Option<String>,
    /// Tools that agent runs may call without asking
    #[arg(long, value_enum, value_name = "TOOLS")]
    allow: Option<Allowed>,
    /// Ask nothing; what has no flag gets its default
    #[arg(long, short)]
    yes: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// Tools that runs may call without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Allowed {
    /// Tools that their servers declare as read-only
    #[value(name = "read-only")]
    ReadOnly,
    /// All tools
    All,
    /// No tools
    None,
}

/// Answers to the questions.
#[derive(Debug)]
struct Answers {
    folder: Option<String>,
    server: Option<String>,
    allowed: Allowed,
}

impl InitCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = Path::new(PROJECT_TOML);
        if file.exists() && !self.force {
            bail!("`{PROJECT_TOML}` exists already; use --force to replace it");
        }
        if !self.yes && !std::io::stdin().is_terminal() {
            bail!(
                "nobody is present to answer questions; use --yes for the defaults of what has no flag"
            );
        }
        let answers = self.into_answers()?;
        let text = answers.to_toml()?;
        // A mistake in an answer is reported before anything is written.
        let document = files::parse(file, &text);
        Config::load(std::slice::from_ref(&document))?;
        std::fs::write(file, &text).with_context(|| format!("cannot write `{PROJECT_TOML}`"))?;
        let project = ProjectFile::find()?.context("the file has disappeared")?;
        TrustStore::open(&files::environment())?.add(&project)?;
        print_line(&format!("wrote `{PROJECT_TOML}` and trusted it:\n\n{text}"))?;
        print_line(
            "next: set a key such as OPENAI_API_KEY or ANTHROPIC_API_KEY if you want to use models, then start the gateway with `toolgate serve`",
        )?;
        Ok(ExitCode::SUCCESS)
    }

    fn into_answers(self) -> anyhow::Result<Answers> {
        let ask = |answer: Option<String>, question: &str, default: &str| match answer {
            Some(answer) => Ok(answer),
            None if self.yes => Ok(default.to_owned()),
            None => ask(question, default),
        };
        let folder = ask(
            self.folder,
            "Folder whose files models may use, or `none`",
            ".",
        )?;
        let server = ask(
            self.server,
            "Another MCP server, as a URL or a command, or `none`",
            "none",
        )?;
        let allowed = match self.allow {
            Some(allowed) => allowed,
            None if self.yes => Allowed::ReadOnly,
            None => ask_allowed()?,
        };
        let unless_none = |answer: String| Some(answer).filter(|answer| answer != "none");
        Ok(Answers {
            folder: unless_none(folder),
            server: unless_none(server),
            allowed,
        })
    }
}

impl Answers {
    fn to_toml(&self) -> anyhow::Result<String> {
        let mut text = String::from(
            "# Written by `toolgate init`. `toolgate check` finds mistakes; docs/configuration.md has all settings.\n",
        );
        if let Some(folder) = &self.folder {
            let folder = std::fs::canonicalize(folder)
                .with_context(|| format!("there is no folder `{folder}`"))?;
            let folder = folder
                .to_str()
                .context("the path of the folder is not valid UTF-8")?;
            let args = ["-y", "@modelcontextprotocol/server-filesystem", folder];
            let connection = format!("command = \"npx\"\nargs = [{}]\n", quote_all(args));
            self.add_server(&mut text, "filesystem", &connection);
        }
        if let Some(server) = &self.server {
            let (name, connection) = match Url::parse(server) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => {
                    let host = url.host_str().unwrap_or("server").to_owned();
                    (host, format!("url = {}\n", quote(server)))
                }
                _ => describe_command(server)?,
            };
            let name = ServerName::derive(&name, |name| name.to_folded() != "filesystem");
            self.add_server(&mut text, name.as_str(), &connection);
        }
        match self.allowed {
            Allowed::All => {}
            Allowed::None => text.push_str("\n[permissions]\ndefault = \"ask\"\n"),
            Allowed::ReadOnly => text.push_str(
                "\n[permissions]\ndefault = \"ask\"\n\n[[permissions.rules]]\ntool = \"*\"\nhint = \"read_only\"\naction = \"allow\"\n",
            ),
        }
        Ok(text)
    }

    fn add_server(&self, text: &mut String, name: &str, connection: &str) {
        text.push_str(&format!("\n[mcp_servers.{name}]\n{connection}"));
        if self.allowed != Allowed::None {
            text.push_str("tools_to_auto_execute = [\"*\"]\n");
        }
    }
}

/// Returns a name for the server that a command starts, and the settings of its connection.
fn describe_command(line: &str) -> anyhow::Result<(String, String)> {
    let mut words = line.split_whitespace();
    let command = words.next().context("the command is empty")?;
    let args: Vec<&str> = words.collect();
    // The package, in commands such as `npx -y @scope/server-name`.
    let package = args.iter().rev().find(|word| !word.starts_with('-'));
    let name = package.unwrap_or(&command);
    let name = name.rsplit('/').next().unwrap_or(name).to_owned();
    let args = quote_all(args);
    Ok((
        name,
        format!("command = {}\nargs = [{args}]\n", quote(command)),
    ))
}

fn quote_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(quote).collect();
    texts.join(", ")
}

fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Asks a question on the terminal; an empty answer is the default.
fn ask(question: &str, default: &str) -> anyhow::Result<String> {
    let mut output = std::io::stdout();
    write!(output, "{question} [{default}]: ")?;
    output.flush()?;
    let mut answer = String::new();
    if std::io::stdin().lock().read_line(&mut answer)? == 0 {
        bail!("cancelled; nothing was written");
    }
    let answer = answer.trim();
    let answer = if answer.is_empty() { default } else { answer };
    Ok(answer.to_owned())
}

fn ask_allowed() -> anyhow::Result<Allowed> {
    loop {
        let answer = ask(
            "Tools that agent runs may call without asking: read-only, all or none",
            "read-only",
        )?;
        if let Ok(allowed) = Allowed::from_str(&answer, true) {
            return Ok(allowed);
        }
        print_line(&format!("`{answer}` is not one of read-only, all, none"))?;
    }
}
