//! `toolgate keys list|create|rotate|enable|disable|delete|require|make-optional`: manages the caller
//! keys of a running gateway.

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::print_line;
use super::target::RemoteFlags;
use crate::http::admin::key_requirement::KeyRequirementView;
use crate::http::admin::keys::{KeyPage, KeyView, NewKey};
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
        /// Maximum rate of calls, such as `60/min`
        #[arg(long, value_name = "RATE")]
        rate_limit: Option<String>,
        /// Expiry time, such as `2027-01-31T00:00:00Z`
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
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
                let page = remote.get("api/keys", &[("limit", "1000")]).await?;
                print_list(remote, &page, json).await
            }
            Self::Create {
                name,
                roles,
                tools,
                rate_limit,
                expires_at,
            } => {
                let mut body = Map::new();
                body.insert("name".to_owned(), name.into());
                body.insert("roles".to_owned(), roles.into());
                if !tools.is_empty() {
                    body.insert("tools".to_owned(), tools.into());
                }
                let texts = [("rate_limit", rate_limit), ("expires_at", expires_at)];
                for (key, text) in texts {
                    body.extend(text.map(|text| (key.to_owned(), Value::from(text))));
                }
                let body = Value::Object(body);
                let new_key: NewKey = remote.send_json(Method::POST, "api/keys", &body).await?;
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
    print_line(&format_key(&key))
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

async fn print_list(remote: &RemoteGateway, page: &KeyPage, json: bool) -> anyhow::Result<()> {
    if json {
        return print_line(&serde_json::to_string_pretty(&page.keys)?);
    }
    if page.keys.is_empty() {
        let view: KeyRequirementView = remote.get(KEY_REQUIREMENT, &[]).await?;
        return print_line(&format!("no keys; {}", describe_requirement(&view)));
    }
    page.keys
        .iter()
        .try_for_each(|key| print_line(&format_key(key)))
}

fn format_key(key: &KeyView) -> String {
    let state = match (key.enabled, key.expired) {
        (false, _) => "disabled",
        (true, true) => "expired",
        (true, false) => "enabled",
    };
    let mut parts = vec![format!("{}: {state}", key.name)];
    if !key.roles.is_empty() {
        parts.push(format!("roles {}", key.roles.join(", ")));
    }
    match &key.tools {
        Some(tools) if tools.is_empty() => parts.push("no tools".to_owned()),
        Some(tools) => parts.push(format!("tools {}", tools.join(", "))),
        None => {}
    }
    parts.extend(key.rate_limit.clone());
    parts.extend(key.expires_at.as_ref().map(|end| format!("until {end}")));
    parts.push(format!("from {}", key.source));
    parts.join("; ")
}
