//! Any other gateway that speaks the same APIs, in front of the same upstreams.
//!
//! Whoever runs it has to point it at the mock: a provider at `/v1`, MCP servers at
//! `/mcp/25/1` and the like. What it does not answer rightly is left out, and said so.

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::{Results, Times, chosen, in_rounds};
use crate::case::{self, Names};
use crate::flags::Flags;
use crate::load::{Exchange, client};
use crate::measure::{Mock, Subject};
use crate::mock::mcp::Era;
use crate::mock::tools;
use crate::process::Tree;
use crate::request;
use crate::tell;

/// Where the upstreams are if nothing else is said, so that a gateway can be pointed at them.
const MOCK_PORT: u16 = 9900;

pub(super) async fn run(url: &str, flags: &Flags) -> anyhow::Result<Results> {
    let address = address(url)?;
    let mock = match flags.get("mock") {
        Some(url) => Mock::elsewhere(&self::address(url)?),
        None => Mock::start(MOCK_PORT).await?,
    };
    let (key, id) = (flags.get("target-key"), flags.get("target-pid"));
    let id = id.map(str::parse).transpose().context("--target-pid")?;
    let subject = Subject {
        address,
        tree: id.map(Tree::of),
    };
    let names = Names {
        key: key.map(str::to_owned),
        piecewise_model: flags.get("target-piecewise-model").map(str::to_owned),
        model: flags
            .get("target-model")
            .unwrap_or("bench-model")
            .to_owned(),
        foreign_model: flags.get("target-foreign-model").map(str::to_owned),
        mcp: flags.get("target-mcp").unwrap_or("/mcp").to_owned(),
    };
    let mut results = Results::default();
    let tool = tool(&subject, &names, key).await;
    if let Err(error) = &tool {
        results
            .notes
            .push(format!("no tool was found at {}: {error:#}", names.mcp));
    }
    let found = tool
        .as_ref()
        .ok()
        .map(|(name, listed)| (name.as_str(), *listed));
    let mut cases = Vec::new();
    for case in chosen(case::portable(&names, found), flags) {
        match client::once(&subject.address, &case.gate).await {
            Ok(_) => cases.push(case),
            Err(error) => results
                .notes
                .push(format!("`{}` is left out: {error:#}", case.name)),
        }
    }
    if cases.is_empty() {
        bail!(
            "{url} answers none of the cases:\n{}",
            results.notes.join("\n")
        );
    }
    tell(&format!(
        "{} cases at {url}, upstreams at {}",
        cases.len(),
        mock.address
    ));
    results.cases = in_rounds(
        &cases,
        &mock,
        |_| &subject,
        Times::of(flags),
        &mut results.notes,
    )
    .await?;
    Ok(results)
}

/// What the gateway calls the mock's first tool, and how many tools it lists.
async fn tool(
    subject: &Subject,
    names: &Names,
    key: Option<&str>,
) -> anyhow::Result<(String, usize)> {
    let mut list: Exchange = request::list(Era::Legacy, &names.mcp, 0);
    if let Some(key) = key {
        list = list.with_key(key);
    }
    let body = client::once(&subject.address, &list).await?;
    let text = String::from_utf8(body)?;
    // Some gateways answer with a stream of one event.
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    let answer: Value = serde_json::from_str(data.unwrap_or(&text))?;
    let listed = answer["result"]["tools"]
        .as_array()
        .context("no list of tools")?;
    let named = listed.iter().filter_map(|tool| tool["name"].as_str());
    let found = named
        .filter(|name| name.ends_with(&tools::name(0)))
        .min_by_key(|name| name.len());
    let found = found.context("none of the mock's tools")?;
    Ok((found.to_owned(), listed.len()))
}

fn address(url: &str) -> anyhow::Result<String> {
    let rest = url
        .strip_prefix("http://")
        .context("a target is an http:// URL")?;
    Ok(rest.trim_end_matches('/').to_owned())
}
