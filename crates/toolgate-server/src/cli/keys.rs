//! `toolgate keys list|create|rotate|enable|disable|delete|require|make-optional`: manages the caller
//! keys of a running gateway.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Map, Value, json};
use toolgate_core::plural::count;

use super::output::{Cell, Table, Tone, format_time, parse_future_time, print_line};
use super::target::RemoteFlags;
use crate::http::admin::key_requirement::KeyRequirementView;
use crate::http::admin::keys::{BudgetView, KeyView, NewKey};
use crate::remote::RemoteGateway;

const KEY_REQUIREMENT: &str = "api/keys-required";

#[derive(Debug, clap::Args)]
pub(super) struct KeysCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the keys
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Create a key and print it; it is not shown again
    Create {
        /// Name of the key, such as `ci`
        name: String,
        /// Role to give the key; can be repeated
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// Pattern of tools that the key may use, such as `github.*`; can be repeated [default: all]
        #[arg(long = "tool", value_name = "PATTERN")]
        tools: Vec<String>,
        #[command(flatten)]
        limits: LimitFlags,
        /// What the key is for
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Expiry: `30d` from now, or a time such as `2027-01-31` or `2027-01-31T00:00:00Z`
        #[arg(long = "expires", visible_alias = "expires-at", value_name = "TIME", value_parser = parse_future_time)]
        expires_at: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace a key with a new one and print it; the old one stops working
    Rotate {
        /// Name of the key
        name: String,
    },
    /// Enable a disabled key
    Enable {
        /// Name of the key
        name: String,
    },
    /// Disable a key without deleting it
    Disable {
        /// Name of the key
        name: String,
    },
    /// Delete a key
    Delete {
        /// Name of the key
        name: String,
    },
    /// Require a key of all callers, even if none is defined
    Require,
    /// Let callers on the gateway's machine do without a key, until one is created; delete all keys first
    MakeOptional,
}

/// Limits of a new key.
#[derive(Debug, clap::Args)]
struct LimitFlags {
    /// Maximum rate of calls, such as `60/min`
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<String>,
    /// Maximum number of calls and model requests at the same time
    #[arg(long, value_name = "NUMBER")]
    max_in_flight: Option<u32>,
    /// Budget in dollars, such as `5` or `2.50`
    #[arg(long, value_name = "USD")]
    budget: Option<serde_json::Number>,
    /// Budget in tool calls
    #[arg(long, value_name = "NUMBER")]
    budget_calls: Option<u64>,
    /// Period after which the budget is available again [default: never]
    #[arg(long, value_name = "PERIOD", value_enum)]
    budget_per: Option<PeriodArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PeriodArg {
    Hour,
    Day,
    Month,
}

impl LimitFlags {
    /// Returns the fields of the key.
    fn into_fields(self) -> anyhow::Result<Map<String, Value>> {
        let mut fields = Map::new();
        let mut budget = Map::new();
        let per = self.budget_per.map(|per| match per {
            PeriodArg::Hour => "hour",
            PeriodArg::Day => "day",
            PeriodArg::Month => "month",
        });
        if let Some(usd) = self.budget {
            budget.insert("usd".to_owned(), Value::Number(usd));
        }
        if let Some(calls) = self.budget_calls {
            budget.insert("calls".to_owned(), calls.into());
        }
        match per {
            Some(_) if budget.is_empty() => {
                bail!("--budget-per needs --budget or --budget-calls");
            }
            Some(per) => drop(budget.insert("per".to_owned(), per.into())),
            None => {}
        }
        if !budget.is_empty() {
            fields.insert("budget".to_owned(), budget.into());
        }
        if let Some(rate) = self.rate_limit {
            fields.insert("rate_limit".to_owned(), rate.into());
        }
        if let Some(number) = self.max_in_flight {
            fields.insert("max_in_flight".to_owned(), number.into());
        }
        Ok(fields)
    }
}

impl KeysCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        self.action.run(&remote).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Action {
    async fn run(self, remote: &RemoteGateway) -> anyhow::Result<()> {
        match self {
            Self::List { json } => {
                let keys = remote.list_items("api/keys", "keys", &[], usize::MAX);
                let keys: Vec<KeyView> = serde_json::from_value(keys.await?.into())?;
                print_list(remote, &keys, json).await
            }
            Self::Create {
                name,
                roles,
                tools,
                limits,
                description,
                expires_at,
                json,
            } => {
                let mut body = limits.into_fields()?;
                body.insert("name".to_owned(), name.into());
                body.insert("roles".to_owned(), roles.into());
                if !tools.is_empty() {
                    body.insert("tools".to_owned(), tools.into());
                }
                let texts = [("description", description), ("expires_at", expires_at)];
                for (key, text) in texts {
                    body.extend(text.map(|text| (key.to_owned(), Value::from(text))));
                }
                let body = Value::Object(body);
                let new_key: NewKey = remote.send_json(Method::POST, "api/keys", &body).await?;
                if json {
                    return print_line(&serde_json::to_string_pretty(&new_key)?);
                }
                print_line(&new_key.key)
            }
            Self::Rotate { name } => {
                let path = format!("api/keys/{name}/rotate");
                let new_key: NewKey = remote.send_json(Method::POST, &path, &json!({})).await?;
                print_line(&new_key.key)
            }
            Self::Enable { name } => set_enabled(remote, &name, true).await,
            Self::Disable { name } => set_enabled(remote, &name, false).await,
            Self::Delete { name } => {
                let path = format!("api/keys/{name}");
                let _: Value = remote.send_json(Method::DELETE, &path, &json!({})).await?;
                print_line(&format!("deleted `{name}`"))
            }
            Self::Require => set_required(remote, true).await,
            Self::MakeOptional => set_required(remote, false).await,
        }
    }
}

async fn set_enabled(remote: &RemoteGateway, name: &str, enabled: bool) -> anyhow::Result<()> {
    let path = format!("api/keys/{name}");
    let body = json!({"enabled": enabled});
    let key: KeyView = remote.send_json(Method::PUT, &path, &body).await?;
    print_keys(&[key])
}

async fn set_required(remote: &RemoteGateway, required: bool) -> anyhow::Result<()> {
    let body = json!({"required": required});
    let view: KeyRequirementView = remote
        .send_json(Method::PUT, KEY_REQUIREMENT, &body)
        .await?;
    print_line(describe_requirement(&view))
}

fn describe_requirement(view: &KeyRequirementView) -> &'static str {
    if view.required {
        "callers need a key"
    } else {
        "callers on the gateway's machine do not need a key"
    }
}

async fn print_list(remote: &RemoteGateway, keys: &[KeyView], json: bool) -> anyhow::Result<()> {
    if json {
        return print_line(&serde_json::to_string_pretty(keys)?);
    }
    if keys.is_empty() {
        let view: KeyRequirementView = remote.get(KEY_REQUIREMENT, &[]).await?;
        return print_line(&format!("no keys; {}", describe_requirement(&view)));
    }
    print_keys(keys)
}

fn print_keys(keys: &[KeyView]) -> anyhow::Result<()> {
    let mut table = Table::new([
        "NAME", "STATE", "ROLES", "TOOLS", "LIMITS", "EXPIRES", "SOURCE",
    ]);
    for key in keys {
        let state = match (key.enabled, key.expired) {
            (false, _) => "disabled",
            (true, true) => "expired",
            (true, false) => "enabled",
        };
        let tools = match &key.tools {
            Some(tools) if tools.is_empty() => "none".to_owned(),
            Some(tools) => tools.join(", "),
            None => "all".to_owned(),
        };
        let expiry = key.expires_at.as_deref();
        table.push([
            key.name.as_str().into(),
            Cell::from(state).tone(Tone::of_state(state)),
            key.roles.join(", ").into(),
            tools.into(),
            describe_limits(key).into(),
            Cell::whole(expiry.map_or_else(|| "never".to_owned(), format_time)),
            key.source.as_str().into(),
        ]);
    }
    table.print("no keys")
}

fn describe_limits(key: &KeyView) -> String {
    let mut limits: Vec<String> = key.rate_limit.iter().cloned().collect();
    limits.extend(
        key.max_in_flight
            .map(|number| format!("{number} in flight")),
    );
    if let Some(BudgetView { calls, usd, per }) = &key.budget {
        let per = per
            .as_ref()
            .map_or_else(String::new, |per| format!("/{per}"));
        limits.extend(usd.map(|usd| format!("${usd}{per}")));
        limits.extend(calls.map(|calls| format!("{}{per}", count(calls, "call", "calls"))));
    }
    limits.join(", ")
}
