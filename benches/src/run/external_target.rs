//! Benchmarks any other gateway with the same APIs in front of the same upstreams.
//!
//! The gateway must already be configured to use the mock: a provider at `/v1`, MCP servers at
//! `/mcp/25/1` and the like. Cases that it does not handle correctly are skipped with a note.

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::{Results, Schedule, filter_cases, measure_in_rounds};
use crate::case::{self, TargetNames};
use crate::flags::Flags;
use crate::load::{Exchange, client};
use crate::measure::{LoadTarget, MockProcess};
use crate::mock::mcp::Era;
use crate::mock::tools;
use crate::print_progress;
use crate::process::ProcessTree;
use crate::request;

/// Fixed default port of the upstreams, so that a gateway can be configured in advance.
const MOCK_PORT: u16 = 9900;

pub(super) async fn run(url: &str, flags: &Flags) -> anyhow::Result<Results> {
    let address = parse_address(url)?;
    let mock = match flags.get("mock") {
        Some(url) => MockProcess::external(&parse_address(url)?),
        None => MockProcess::start(MOCK_PORT).await?,
    };
    let (key, id) = (flags.get("target-key"), flags.get("target-pid"));
    let id = id
        .map(str::parse)
        .transpose()
        .context("invalid `--target-pid`")?;
    let target = LoadTarget {
        address,
        tree: id.map(ProcessTree::with_children),
    };
    let names = TargetNames {
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
    let tool = find_tool(&target, &names, key).await;
    if let Err(error) = &tool {
        results
            .notes
            .push(format!("no tool found at `{}`: {error:#}", names.mcp));
    }
    let found = tool
        .as_ref()
        .ok()
        .map(|(name, listed)| (name.as_str(), *listed));
    let mut cases = Vec::new();
    for case in filter_cases(case::portable_cases(&names, found), flags) {
        match client::send_once(&target.address, &case.gate).await {
            Ok(_) => cases.push(case),
            Err(error) => results
                .notes
                .push(format!("skipped `{}`: {error:#}", case.name)),
        }
    }
    if cases.is_empty() {
        bail!(
            "{url} handles none of the cases:\n{}",
            results.notes.join("\n")
        );
    }
    print_progress(&format!(
        "{} cases at {url}, upstreams at {}",
        cases.len(),
        mock.address
    ));
    results.cases = measure_in_rounds(
        &cases,
        &mock,
        |_| &target,
        Schedule::from_flags(flags),
        &mut results.notes,
    )
    .await?;
    Ok(results)
}

/// Returns the gateway's name for the mock's first tool, and the number of tools it lists.
async fn find_tool(
    target: &LoadTarget,
    names: &TargetNames,
    key: Option<&str>,
) -> anyhow::Result<(String, usize)> {
    let mut list: Exchange = request::tool_list(Era::Legacy, &names.mcp, 0);
    if let Some(key) = key {
        list = list.with_key(key);
    }
    let body = client::send_once(&target.address, &list).await?;
    let text = String::from_utf8(body)?;
    // Some gateways respond with a stream of one event.
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    let response: Value = serde_json::from_str(data.unwrap_or(&text))?;
    let listed = response["result"]["tools"]
        .as_array()
        .context("response contains no tool list")?;
    let named = listed.iter().filter_map(|tool| tool["name"].as_str());
    let found = named
        .filter(|name| name.ends_with(&tools::tool_name(0)))
        .min_by_key(|name| name.len());
    let found = found.context("tool list contains none of the mock's tools")?;
    Ok((found.to_owned(), listed.len()))
}

fn parse_address(url: &str) -> anyhow::Result<String> {
    let rest = url
        .strip_prefix("http://")
        .context("target must be an http:// URL")?;
    Ok(rest.trim_end_matches('/').to_owned())
}
