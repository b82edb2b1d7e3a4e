//! `toolgate models|roles|rules|results`: lists what a running gateway is configured with, and prints
//! results that were truncated for a model.

use std::process::ExitCode;

use serde_json::Value;

use super::output::{Cell, Table, Tone, format_id, format_time, print_line};
use super::target::RemoteFlags;

/// List the models that can be used, and their providers
#[derive(Debug, clap::Args)]
pub(super) struct ModelsCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Only models with this text in their name
    search: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List the roles that keys can have
#[derive(Debug, clap::Args)]
pub(super) struct RolesCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List the permission rules in force and the standing approvals
#[derive(Debug, clap::Args)]
pub(super) struct RulesCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Print the full text of a tool result that was truncated for the model
#[derive(Debug, clap::Args)]
pub(super) struct ResultsCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    /// `result_handle` of the tool message
    handle: String,
}

impl ModelsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let list: Value = self.remote.open()?.get("v1/models", &[]).await?;
        let wanted = self.search.unwrap_or_default().to_lowercase();
        let is_wanted = |model: &&Value| text(model, "id").to_lowercase().contains(&wanted);
        let models = list["data"].as_array().into_iter().flatten();
        let models: Vec<&Value> = models.filter(is_wanted).collect();
        if self.json {
            print_line(&serde_json::to_string_pretty(&models)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(["MODEL", "PROVIDER"]);
        for model in models {
            table.push([text(model, "id").into(), text(model, "owned_by").into()]);
        }
        table.print(
            "no models; set a provider key such as OPENAI_API_KEY in the gateway's environment",
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl RolesCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        let roles = remote.list_items("api/roles", "roles", &[], usize::MAX);
        let roles = roles.await?;
        if self.json {
            print_line(&format!("{:#}", Value::Array(roles)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(["NAME", "TOOLS", "KEYS", "SOURCE", "DESCRIPTION"]);
        for role in &roles {
            let tools = match &role["tools"] {
                Value::Null => "all".to_owned(),
                tools => names(tools),
            };
            table.push([
                text(role, "name").into(),
                tools.into(),
                names(&role["keys"]).into(),
                text(role, "source").into(),
                text(role, "description").into(),
            ]);
        }
        table.print("no roles")?;
        Ok(ExitCode::SUCCESS)
    }
}

impl RulesCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let permissions: Value = self.remote.open()?.get("api/permissions", &[]).await?;
        if self.json {
            print_line(&format!("{permissions:#}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let items = |member: &str| permissions[member].as_array().into_iter().flatten();
        let mut rules = Table::new(["RULE", "ACTION", "APPLIES TO", "CONDITIONS"]);
        for rule in items("rules") {
            let action = text(rule, "action");
            rules.push([
                text(rule, "place").into(),
                Cell::from(action).tone(Tone::of_state(action)),
                subject(rule).into(),
                conditions(rule).into(),
            ]);
        }
        let default = permissions["default"].as_str();
        rules.push([
            "default".into(),
            Cell::from(default.unwrap_or("-")).tone(Tone::of_state(default.unwrap_or(""))),
            "everything that no rule matches".into(),
            Cell::default(),
        ]);
        rules.print("no rules")?;
        let mut grants = Table::new(["GRANT", "CALLER", "TOOL", "GRANTED BY", "SINCE"]);
        for grant in items("grants") {
            grants.push([
                Cell::whole(format_id(text(grant, "id"))),
                grant["caller"].as_str().unwrap_or("-").into(),
                format!("{}.{}", text(grant, "server"), text(grant, "tool")).into(),
                text(grant, "granted_by").into(),
                Cell::whole(format_time(text(grant, "created_at"))),
            ]);
        }
        if items("grants").next().is_some() {
            print_line("")?;
            grants.print("")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ResultsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let text = self.remote.open()?.read_full_result(&self.handle).await?;
        print_line(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn subject(rule: &Value) -> String {
    let parts = ["tool", "server", "resource", "prompt"]
        .map(|key| rule[key].as_str().map(|value| format!("{key} {value}")));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        "every tool".to_owned()
    } else {
        parts.join(", ")
    }
}

fn conditions(rule: &Value) -> String {
    let arguments = rule["arguments"].as_object().into_iter().flatten();
    let mut parts: Vec<String> = arguments
        .map(|(name, pattern)| format!("{name} = {pattern}"))
        .collect();
    for key in ["roles", "environment", "approval_by"] {
        if let Some(Value::Array(_)) = rule.get(key) {
            parts.push(format!("{key} {}", names(&rule[key])));
        }
    }
    parts.extend(rule["hint"].as_str().map(|hint| format!("hint {hint}")));
    parts.join("; ")
}

fn names(list: &Value) -> String {
    let names = list.as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    names.join(", ")
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_default()
}
