//! Measures the time an agent takes between the last tool result and the next model request, with a
//! small and a large catalog. The gap includes two trips over loopback.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::{Schedule, gateway_target};
use crate::gateway::{Gateway, GatewaySetup, Transport, caller_key, server_setup};
use crate::load::{Exchange, Method, client};
use crate::measure::{Load, LoadMode, MockProcess, measure, wait_settled};
use crate::mock::gaps::GapStats;
use crate::mock::mcp::Era;
use crate::print_progress;
use crate::process::ProcessTree;
use crate::request;

/// Numbers of tools in the catalog that the caller does not see.
const OTHER_TOOLS: [usize; 2] = [10, 10_000];
const ROUNDS: usize = 5;

/// Gaps with one catalog size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AgentGap {
    pub(crate) others: usize,
    pub(crate) seen: GapStats,
}

pub(crate) async fn measure_agent_gaps(
    binary: &Path,
    mock: &MockProcess,
    schedule: Schedule,
) -> anyhow::Result<Vec<AgentGap>> {
    let mut gaps = Vec::new();
    for others in OTHER_TOOLS {
        print_progress(&format!("agent with {others} other tools"));
        let servers = vec![
            server_setup("http25", Transport::Http, Era::Legacy, 10),
            server_setup("other", Transport::Http, Era::Legacy, others),
        ];
        let setup = GatewaySetup {
            injects: true,
            servers,
        };
        let gateway = Gateway::start(binary, &setup, &mock.address).await?;
        gateway.wait_connected(setup.servers.len()).await?;
        // The gateway still stores the tool lists of its servers.
        let (window, timeout) = (Duration::from_secs(1), Duration::from_secs(30));
        wait_settled(&ProcessTree::single(gateway.pid()), window, timeout).await;
        let exchange = request::agent_request(ROUNDS).with_key(&caller_key("http25"));
        client::send_once(&gateway.address, &exchange).await?;
        take_gap_stats(mock).await?;
        let alone = Load {
            mode: LoadMode::Connections(1),
            seconds: schedule.closed,
        };
        measure(&gateway_target(&gateway), &[], &exchange, alone).await?;
        let seen = take_gap_stats(mock).await?;
        gaps.push(AgentGap { others, seen });
    }
    Ok(gaps)
}

/// Fetches the gaps that the upstreams recorded since the last call.
async fn take_gap_stats(mock: &MockProcess) -> anyhow::Result<GapStats> {
    let exchange = Exchange {
        method: Method::Get,
        path: "/gaps".to_owned(),
        ..Exchange::default()
    };
    let seen = client::send_once(&mock.address, &exchange).await?;
    Ok(serde_json::from_slice(&seen)?)
}
