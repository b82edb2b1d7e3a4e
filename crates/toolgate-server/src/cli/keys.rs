//! `toolgate keys list|create|rotate|enable|disable|delete`

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::say;
use super::target::RemoteFlags;
use crate::http::admin::keys::{KeyPage, KeyView, NewKey};
use crate::remote::Remote;

#[derive(Debug, clap::Args)]
pub(super) struct Keys {
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
    /// Make a key and print it; it is not shown again
    Create {
        /// A name for it, such as `ci`
        name: String,
        /// Give it a role; may be repeated
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// Let it use only these tools, such as `github.*`; may be repeated
        #[arg(long = "tool", value_name = "PATTERN")]
        tools: Vec<String>,
        /// Calls in a period, such as `60/min`
        #[arg(long, value_name = "RATE")]
        rate_limit: Option<String>,
        /// When it ends, such as `2027-01-31T00:00:00Z`
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Put a new key in the place of the old one and print it
    Rotate { name: String },
    /// Let a key in again
    Enable { name: String },
    /// Keep a key without letting it in
    Disable { name: String },
    /// Remove a key
    Delete { name: String },
}

impl Keys {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        self.action.run(&remote).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Action {
    async fn run(self, remote: &Remote) -> anyhow::Result<()> {
        match self {
            Self::List { json } => list(&remote.get("api/keys", &[("limit", "1000")]).await?, json),
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
                let made: NewKey = remote.write(Method::POST, "api/keys", &body).await?;
                say(&made.key)
            }
            Self::Rotate { name } => {
                let path = format!("api/keys/{name}/rotate");
                let made: NewKey = remote.write(Method::POST, &path, &json!({})).await?;
                say(&made.key)
            }
            Self::Enable { name } => switch(remote, &name, true).await,
            Self::Disable { name } => switch(remote, &name, false).await,
            Self::Delete { name } => {
                let path = format!("api/keys/{name}");
                let _: Value = remote.write(Method::DELETE, &path, &json!({})).await?;
                say(&format!("deleted `{name}`"))
            }
        }
    }
}

async fn switch(remote: &Remote, name: &str, enabled: bool) -> anyhow::Result<()> {
    let path = format!("api/keys/{name}");
    let body = json!({"enabled": enabled});
    let key: KeyView = remote.write(Method::PUT, &path, &body).await?;
    say(&line(&key))
}

fn list(page: &KeyPage, json: bool) -> anyhow::Result<()> {
    if json {
        return say(&serde_json::to_string_pretty(&page.keys)?);
    }
    if page.keys.is_empty() {
        return say("no keys: callers on this machine need none");
    }
    page.keys.iter().try_for_each(|key| say(&line(key)))
}

fn line(key: &KeyView) -> String {
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
