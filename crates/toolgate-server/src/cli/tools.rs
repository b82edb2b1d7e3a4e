//! `toolgate tools list|describe|explain|call`

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolgate::Arguments;

use super::target::{Target, TargetFlags};
use super::{complain, say};
use crate::http::admin::explain::ExplanationView;
use crate::http::admin::tools::ToolEntry;
use crate::http::execute::{Content, Part, ToolMessage};

/// Characters of a description in a list.
const SUMMARY: usize = 90;

#[derive(Debug, clap::Args)]
pub(super) struct Tools {
    #[command(flatten)]
    target: TargetFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the tools
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
    /// Show a tool with its schema
    Describe {
        /// The tool's name, in any style: `fs_read_file`, `fs-read_file`, `mcp__fs__read_file`, `fs.read_file`
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say why a caller sees a tool or misses it, step by step
    Explain {
        /// The tool's name, in any style
        name: String,
        /// The name of a caller's key; without it, a caller who needs none
        #[arg(long = "as", value_name = "KEY_NAME")]
        caller: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Call a tool
    Call {
        /// The tool's name, in any style
        name: String,
        /// Arguments as `key=value`; values of other types than text are written as JSON
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<String>,
        /// All arguments as one JSON object; `-` reads it from standard input
        #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
        args: Option<String>,
        /// Print the whole answer as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Tools {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { target, action } = self;
        target.during(async |target| action.run(target).await).await
    }
}

impl Action {
    /// The tool it is about.
    fn tool(&self) -> Option<&str> {
        match self {
            Self::List { .. } => None,
            Self::Describe { name, .. } | Self::Explain { name, .. } | Self::Call { name, .. } => {
                Some(name)
            }
        }
    }

    async fn run(self, target: &Target) -> anyhow::Result<ExitCode> {
        target.ready(self.tool()).await;
        match self {
            Self::List {
                server,
                search,
                json,
            } => {
                let mut tools = target.tools().await?;
                let wanted = search.unwrap_or_default().to_lowercase();
                tools.retain(|tool| {
                    server.as_ref().is_none_or(|server| *server == tool.server)
                        && (tool.alias.to_lowercase().contains(&wanted)
                            || first_line(tool).to_lowercase().contains(&wanted))
                });
                list(&tools, json)?;
                tell_away(target).await;
            }
            Self::Describe { name, json } => describe(find(&target.tools().await?, &name)?, json)?,
            Self::Explain { name, caller, json } => {
                explain(&target.explain(&name, caller.as_deref()).await?, json)?;
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
                    None => from_pairs(&pairs, target, &name).await?,
                };
                let message = target.call(&name, arguments).await?;
                show(&message, json)?;
                if message.is_error {
                    tell_away(target).await;
                }
                return Ok(ExitCode::from(u8::from(message.is_error)));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Says which servers cannot be used, and why.
async fn tell_away(target: &Target) {
    // Whoever may call need not be allowed to see how servers are.
    for (name, how) in target.away().await.unwrap_or_default() {
        complain(&anyhow::anyhow!("server `{name}` is {how}"));
    }
}

fn list(tools: &[ToolEntry], json: bool) -> anyhow::Result<()> {
    if json {
        return say(&serde_json::to_string_pretty(tools)?);
    }
    let width = tools
        .iter()
        .map(|tool| tool.alias.len())
        .max()
        .unwrap_or(0)
        .min(40);
    for tool in tools {
        say(&format!("{:width$}  {}", tool.alias, summary(tool)))?;
    }
    match tools.is_empty() {
        true => say("no tools"),
        false => Ok(()),
    }
}

fn describe(tool: &ToolEntry, json: bool) -> anyhow::Result<()> {
    if json {
        return say(&serde_json::to_string_pretty(tool)?);
    }
    say(&tool.alias)?;
    say(&format!(
        "  tool `{}` of server `{}`",
        tool.name, tool.server
    ))?;
    say(&format!("  {:?} by {}", tool.verdict, tool.because).to_lowercase())?;
    if let Some(description) = &tool.description {
        say(&format!("\n{}", description.trim()))?;
    }
    say(&format!("\ninput schema:\n{}", pretty(&tool.input_schema)))?;
    if let Some(schema) = &tool.output_schema {
        say(&format!("\noutput schema:\n{}", pretty(schema)))?;
    }
    Ok(())
}

fn explain(explanation: &ExplanationView, json: bool) -> anyhow::Result<()> {
    if json {
        return say(&serde_json::to_string_pretty(explanation)?);
    }
    let width = explanation.steps.iter().map(|step| step.key.len());
    let width = width.max().unwrap_or(0).min(40);
    for step in &explanation.steps {
        let mark = if step.passes { "✓" } else { "✗" };
        say(&format!("{mark} {:width$}  {}", step.key, step.says))?;
    }
    match (&explanation.alias, &explanation.verdict) {
        (Some(alias), Some(verdict)) => say(&format!("visible as `{alias}`: {verdict}")),
        _ => say("not visible"),
    }
}

pub(super) fn show(message: &ToolMessage, json: bool) -> anyhow::Result<()> {
    if json {
        return say(&serde_json::to_string_pretty(message)?);
    }
    match &message.content {
        Content::Text(text) => say(text),
        Content::Parts(parts) => parts.iter().try_for_each(|part| match part {
            Part::Text { text } => say(text),
            Part::ImageUrl { image_url } => {
                let kind = image_url.url.split([':', ';']).nth(1).unwrap_or("image");
                say(&format!(
                    "[{kind}, {} bytes in base64; --json shows it]",
                    image_url.url.len()
                ))
            }
        }),
    }
}

fn find<'t>(tools: &'t [ToolEntry], name: &str) -> anyhow::Result<&'t ToolEntry> {
    let spelled = |tool: &ToolEntry| {
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
        .filter(|tool| spelled(tool).iter().any(|s| s == name))
        .collect();
    match found.as_slice() {
        [tool] => Ok(tool),
        [] => bail!("unknown tool `{name}`; `toolgate tools list` shows all"),
        several => {
            let names: Vec<&str> = several.iter().map(|tool| tool.alias.as_str()).collect();
            bail!("`{name}` fits several tools: {}", names.join(", "))
        }
    }
}

/// Text stays text where the schema says so; everything else is JSON if it reads as JSON.
async fn from_pairs(pairs: &[String], target: &Target, name: &str) -> anyhow::Result<Arguments> {
    // Whoever may call need not be allowed to see the list.
    let tools = target.tools().await.unwrap_or_default();
    let schema: Value = match find(&tools, name) {
        Ok(tool) => serde_json::from_str(tool.input_schema.get()).unwrap_or_default(),
        Err(_) => Value::Null, // the engine says what is wrong with the name
    };
    let mut members = Vec::new();
    for pair in pairs {
        let (key, value) = pair.split_once('=').with_context(|| {
            format!("`{pair}` is no argument; write key=value, or use --args with a JSON object")
        })?;
        let is_text = schema["properties"][key]["type"] == "string";
        let raw: Result<&RawValue, _> = serde_json::from_str(value);
        let json = match raw {
            Ok(raw) if !is_text => raw.get().to_owned(),
            _ => Value::from(value).to_string(),
        };
        members.push(format!("{}:{json}", Value::from(key)));
    }
    Ok(Arguments::parse(&format!("{{{}}}", members.join(",")))?)
}

fn pretty(raw: &RawValue) -> String {
    let value: Value = serde_json::from_str(raw.get()).unwrap_or(Value::Object(Map::new()));
    format!("{value:#}")
}

/// As much of the description as fits beside a name.
fn summary(tool: &ToolEntry) -> String {
    let line = first_line(tool);
    match line.char_indices().nth(SUMMARY) {
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
        None => line.to_owned(),
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
