//! `toolgate tools list|describe|explain|call`: works with tools from the command line.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate::Arguments;
use toolgate_core::name::ServerName;
use toolgate_core::pattern::strip_server_prefixes;

use super::names::suggest;
use super::output::{Cell, Table, Tone, print_error, print_line};
use super::target::{CommandTarget, TargetFlags};
use crate::http::admin::explain::{ExplanationView, UnmatchedFilterView};
use crate::http::admin::tools::ToolEntry;
use crate::http::execute::{MessageContent, MessagePart, ToolMessage};
use crate::remote::is_forbidden;

const LIST_COMMAND: &str = "toolgate tools list";

#[derive(Debug, clap::Args)]
pub(super) struct ToolsCommand {
    #[command(flatten)]
    target: TargetFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List tools
    List {
        /// Only tools of this server
        #[arg(long)]
        server: Option<String>,
        /// Only tools with this text in their name or description
        search: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a tool's description and schema
    Describe {
        /// Tool name, in any style: `fs_read_file`, `fs-read_file`, `mcp__fs__read_file`, `fs.read_file`
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain step by step why a tool is or is not visible to a caller
    Explain {
        /// Tool name, in any style
        name: String,
        /// Name of the caller's key [default: a caller without a key]
        #[arg(long = "as", value_name = "KEY_NAME")]
        caller: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Call a tool
    Call {
        /// Tool name, in any style
        name: String,
        /// Arguments as `key=value`; values other than strings are given as JSON
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<String>,
        /// All arguments as a JSON object; `-` reads it from standard input
        #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
        args: Option<String>,
        /// Print the full result as JSON
        #[arg(long)]
        json: bool,
    },
}

impl ToolsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { target, action } = self;
        target
            .run_with(async |target| action.run(target).await)
            .await
    }
}

impl Action {
    /// Returns the name of the tool that the action needs, if it needs only one.
    fn tool_name(&self) -> Option<&str> {
        match self {
            Self::List { .. } => None,
            Self::Describe { name, .. } | Self::Explain { name, .. } | Self::Call { name, .. } => {
                Some(name)
            }
        }
    }

    async fn run(self, target: &CommandTarget) -> anyhow::Result<ExitCode> {
        target.wait_until_ready(self.tool_name()).await;
        match self {
            Self::List {
                server,
                search,
                json,
            } => {
                let mut tools = target.list_tools().await?;
                if let Some(server) = &server {
                    check_server(target, &tools, server).await?;
                }
                let wanted = search.unwrap_or_default().to_lowercase();
                tools.retain(|tool| {
                    server.as_ref().is_none_or(|server| *server == tool.server)
                        && (tool.alias.to_lowercase().contains(&wanted)
                            || first_line(tool).to_lowercase().contains(&wanted))
                });
                print_list(&tools, json)?;
                let is_listed = |name: &str| server.as_deref().is_none_or(|server| server == name);
                print_unavailable_servers(target, is_listed).await;
            }
            Self::Describe { name, json } => {
                print_tool(find_tool(&target.list_tools().await?, &name)?, json)?
            }
            Self::Explain { name, caller, json } => {
                print_explanation(&target.explain(&name, caller.as_deref()).await?, json)?;
            }
            Self::Call {
                name,
                pairs,
                args,
                json,
            } => {
                let arguments = match args.as_deref() {
                    Some("-") => {
                        let mut text = String::new();
                        std::io::stdin().read_to_string(&mut text)?;
                        Arguments::parse(&text)?
                    }
                    Some(text) => Arguments::parse(text)?,
                    None if pairs.is_empty() => Arguments::parse("")?,
                    None => arguments_from_pairs(&pairs, target, &name).await?,
                };
                let message = target.call(&name, arguments).await?;
                print_tool_message(&message, json)?;
                if message.is_error {
                    explain_failure(target, &name).await;
                }
                return Ok(ExitCode::from(u8::from(message.is_error)));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the states of those unavailable servers that concern the command to standard error.
async fn print_unavailable_servers(target: &CommandTarget, concerns: impl Fn(&str) -> bool) {
    match target.unavailable_servers().await {
        Ok(servers) => {
            for (name, state) in servers.iter().filter(|(name, _)| concerns(name)) {
                print_error(&anyhow::anyhow!("server `{name}` is {state}"));
            }
        }
        // A caller key may call tools without permission to read server states.
        Err(error) if is_forbidden(&error) => {}
        Err(error) => print_error(&error.context("cannot read the states of the servers")),
    }
}

/// Tells if the server of a tool whose call failed is unavailable.
async fn explain_failure(target: &CommandTarget, name: &str) {
    let is_server_of_tool = |server: &str| {
        let server = ServerName::parse(server);
        server.is_ok_and(|server| strip_server_prefixes(name, &server).next().is_some())
    };
    print_unavailable_servers(target, is_server_of_tool).await;
}

/// Fails for the name of a server that does not exist.
async fn check_server(
    target: &CommandTarget,
    tools: &[ToolEntry],
    name: &str,
) -> anyhow::Result<()> {
    if tools.iter().any(|tool| tool.server == name) {
        return Ok(());
    }
    let servers = match target.list_servers().await {
        Ok(servers) => servers.into_iter().map(|server| server.name).collect(),
        Err(error) if is_forbidden(&error) => {
            let servers: BTreeSet<String> = tools.iter().map(|tool| tool.server.clone()).collect();
            servers
        }
        Err(error) => return Err(error),
    };
    if servers.contains(name) {
        return Ok(());
    }
    let known = servers.iter().map(String::as_str);
    let hint = suggest(name, known, "toolgate servers list");
    bail!("there is no server `{name}`; {hint}")
}

fn print_list(tools: &[ToolEntry], json: bool) -> anyhow::Result<()> {
    if json {
        return print_line(&serde_json::to_string_pretty(tools)?);
    }
    let mut table = Table::new(["NAME", "VERDICT", "DESCRIPTION"]);
    for tool in tools {
        let verdict = format!("{:?}", tool.verdict).to_lowercase();
        table.push([
            tool.alias.as_str().into(),
            Cell::from(verdict.as_str()).tone(Tone::of_state(&verdict)),
            first_line(tool).into(),
        ]);
    }
    table.print("no tools")
}

fn print_tool(tool: &ToolEntry, json: bool) -> anyhow::Result<()> {
    if json {
        return print_line(&serde_json::to_string_pretty(tool)?);
    }
    print_line(&tool.alias)?;
    print_line(&format!(
        "  tool `{}` of server `{}`",
        tool.name, tool.server
    ))?;
    print_line(&format!("  {:?} by {}", tool.verdict, tool.because).to_lowercase())?;
    if let Some(description) = &tool.description {
        print_line(&format!("\n{}", description.trim()))?;
    }
    print_line(&format!(
        "\ninput schema:\n{}",
        pretty_json(&tool.input_schema)
    ))?;
    if let Some(schema) = &tool.output_schema {
        print_line(&format!("\noutput schema:\n{}", pretty_json(schema)))?;
    }
    Ok(())
}

fn print_explanation(explanation: &ExplanationView, json: bool) -> anyhow::Result<()> {
    if json {
        return print_line(&serde_json::to_string_pretty(explanation)?);
    }
    let width = explanation.steps.iter().map(|step| step.key.len());
    let width = width.max().unwrap_or(0).min(40);
    for step in &explanation.steps {
        let mark = if step.passes { "✓" } else { "✗" };
        print_line(&format!("{mark} {:width$}  {}", step.key, step.says))?;
    }
    for UnmatchedFilterView {
        header,
        name,
        suggestion,
    } in &explanation.unmatched_filters
    {
        let hint = suggestion
            .as_ref()
            .map(|suggestion| format!("; did you mean `{suggestion}`?"));
        let hint = hint.unwrap_or_default();
        print_line(&format!("! {header}: `{name}` matches nothing{hint}"))?;
    }
    match (&explanation.alias, &explanation.verdict) {
        (Some(alias), Some(verdict)) => print_line(&format!("visible as `{alias}`: {verdict}")),
        _ => print_line("not visible"),
    }
}

pub(super) fn print_tool_message(message: &ToolMessage, json: bool) -> anyhow::Result<()> {
    if json {
        return print_line(&serde_json::to_string_pretty(message)?);
    }
    match &message.content {
        MessageContent::Text(text) => print_line(text),
        MessageContent::Parts(parts) => parts.iter().try_for_each(|part| match part {
            MessagePart::Text { text } => print_line(text),
            MessagePart::ImageUrl { image_url } => {
                let kind = image_url.url.split([':', ';']).nth(1).unwrap_or("image");
                print_line(&format!(
                    "[{kind}, {} bytes as base64; use --json to show it]",
                    image_url.url.len()
                ))
            }
        }),
    }
}

fn find_tool<'t>(tools: &'t [ToolEntry], name: &str) -> anyhow::Result<&'t ToolEntry> {
    let spellings = |tool: &ToolEntry| {
        let (server, raw) = (&tool.server, &tool.name);
        [
            format!("{server}_{raw}"),
            format!("{server}-{raw}"),
            format!("mcp__{server}__{raw}"),
            format!("{server}.{raw}"),
        ]
    };
    if let Some(tool) = tools.iter().find(|tool| tool.alias == name) {
        return Ok(tool);
    }
    let found: Vec<&ToolEntry> = tools
        .iter()
        .filter(|tool| spellings(tool).iter().any(|s| s == name))
        .collect();
    match found.as_slice() {
        [tool] => Ok(tool),
        [] => {
            let aliases = tools.iter().map(|tool| tool.alias.as_str());
            bail!(
                "unknown tool `{name}`; {}",
                suggest(name, aliases, LIST_COMMAND)
            )
        }
        several => {
            let names: Vec<&str> = several.iter().map(|tool| tool.alias.as_str()).collect();
            bail!("`{name}` is ambiguous; it matches {}", names.join(", "))
        }
    }
}

/// Builds arguments from `key=value` pairs. A value is a string if the schema says so or if it is not
/// valid JSON; otherwise it is parsed as JSON.
async fn arguments_from_pairs(
    pairs: &[String],
    target: &CommandTarget,
    name: &str,
) -> anyhow::Result<Arguments> {
    let tools = match target.list_tools().await {
        Ok(tools) => tools,
        // A caller key may call tools without permission to list them.
        Err(error) if is_forbidden(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    let schema: Value = match find_tool(&tools, name) {
        Ok(tool) => serde_json::from_str(tool.input_schema.get())
            .with_context(|| format!("cannot parse the schema of `{name}`; use --args"))?,
        Err(_) => Value::Null, // the engine reports what is wrong with the name
    };
    let mut members = Vec::new();
    for pair in pairs {
        let (key, value) = pair.split_once('=').with_context(|| {
            format!("`{pair}` is not a valid argument; use key=value, or --args with a JSON object")
        })?;
        let is_string = schema["properties"][key]["type"] == "string";
        let raw: Result<&RawValue, _> = serde_json::from_str(value);
        let json = match raw {
            Ok(raw) if !is_string => raw.get().to_owned(),
            _ => Value::from(value).to_string(),
        };
        members.push(format!("{}:{json}", Value::from(key)));
    }
    Ok(Arguments::parse(&format!("{{{}}}", members.join(",")))?)
}

fn pretty_json(raw: &RawValue) -> String {
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(value) => format!("{value:#}"),
        // Nested too deeply to be parsed.
        Err(_) => raw.get().to_owned(),
    }
}

fn first_line(tool: &ToolEntry) -> &str {
    let text = tool
        .description
        .as_deref()
        .or(tool.title.as_deref())
        .unwrap_or_default();
    text.trim().lines().next().unwrap_or_default()
}
