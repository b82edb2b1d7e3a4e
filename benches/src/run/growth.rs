//! Measures how cost grows with the number of tools, servers and sessions.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::{Schedule, gateway_target};
use crate::gateway::{
    ADMIN_KEY, ALL_SERVER_CALLERS, Gateway, GatewaySetup, ServerSetup, Transport, caller_key,
    server_setup,
};
use crate::load::Exchange;
use crate::measure::{Load, LoadMode, Measurement, MockProcess, measure};
use crate::mock::mcp::Era;
use crate::mock::model::Dialect;
use crate::mock::tools;
use crate::print_progress;
use crate::process::ProcessTree;
use crate::request::{self, ResponseMode};

/// One point of a growth curve.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GrowthPoint {
    /// Quantity that grows.
    pub(crate) of: &'static str,
    pub(crate) size: usize,
    /// Operation that is measured.
    pub(crate) case: &'static str,
    pub(crate) measured: Vec<Measurement>,
    /// Milliseconds from the start until all servers were connected.
    pub(crate) connected: f64,
    /// Idle memory, in MiB.
    pub(crate) idle: f64,
}

/// A set-up of one size, and the requests to send to it.
struct GrowthStep {
    of: &'static str,
    size: usize,
    servers: Vec<ServerSetup>,
    exchanges: Vec<(&'static str, Exchange)>,
}

pub(crate) async fn measure_growth(
    binary: &Path,
    mock: &MockProcess,
    schedule: Schedule,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<GrowthPoint>> {
    let mut points = Vec::new();
    for step in steps() {
        if schedule.until.is_some_and(|until| Instant::now() > until) {
            notes.push(format!(
                "skipped {} {} for lack of time",
                step.size, step.of
            ));
            continue;
        }
        print_progress(&format!("growth  {} {}", step.size, step.of));
        points.extend(measure_step(binary, mock, step, schedule).await?);
    }
    Ok(points)
}

async fn measure_step(
    binary: &Path,
    mock: &MockProcess,
    step: GrowthStep,
    schedule: Schedule,
) -> anyhow::Result<Vec<GrowthPoint>> {
    let setup = GatewaySetup {
        injects: false,
        servers: step.servers,
    };
    let gateway = Gateway::start(binary, &setup, &mock.address).await?;
    let connected = gateway.listen_time + gateway.wait_connected(setup.servers.len()).await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let target = gateway_target(&gateway);
    let idle = target.tree.map_or(0.0, ProcessTree::memory);
    let mock = mock.load_target();
    let others: Vec<&ProcessTree> = [&mock, &target]
        .into_iter()
        .filter_map(|one| one.tree.as_ref())
        .collect();
    let mut points = Vec::new();
    for (case, exchange) in step.exchanges {
        let mut measured = Vec::new();
        for _ in 0..schedule.rounds {
            let load = Load {
                mode: LoadMode::Connections(super::CPU_CONNECTIONS),
                seconds: schedule.closed,
            };
            measured.push(measure(&target, &others, &exchange, load).await?);
        }
        points.push(GrowthPoint {
            of: step.of,
            size: step.size,
            case,
            measured,
            connected: connected.as_secs_f64() * 1e3,
            idle,
        });
    }
    Ok(points)
}

fn steps() -> Vec<GrowthStep> {
    let call = |of: &str| {
        let alias = format!("{of}_{}", tools::tool_name(0));
        request::tool_call(Era::Legacy, "/mcp", &alias).with_key(&caller_key("all"))
    };
    let chat = || {
        request::model_request(Dialect::Chat, "mock/bench-model", ResponseMode::Whole, "")
            .with_key(&caller_key("none"))
    };
    let http = |name: &str, tools: usize| server_setup(name, Transport::Http, Era::Legacy, tools);
    let several = |number: usize, link: Transport| -> Vec<ServerSetup> {
        let server = |at: usize| server_setup(&format!("s{at}"), link, Era::Legacy, 1);
        (0..number).map(server).collect()
    };
    let mut steps = Vec::new();
    for size in [1, 150, 10_000] {
        steps.push(GrowthStep {
            of: "tools",
            size,
            servers: vec![http("http25", size)],
            exchanges: vec![("tools/call", call("http25")), ("chat", chat())],
        });
    }
    for size in [1, 100, 1000] {
        let mut exchanges = vec![("tools/call", call("s0"))];
        if size == 1000 {
            exchanges.push(("admin list", request::client_list(size).with_key(ADMIN_KEY)));
        }
        steps.push(GrowthStep {
            of: "HTTP servers",
            size,
            servers: several(size, Transport::Http),
            exchanges,
        });
    }
    steps.push(GrowthStep {
        of: "stdio servers",
        size: 200,
        servers: several(200, Transport::Stdio),
        exchanges: vec![("tools/call", call("s0"))],
    });
    for size in [1, 100, 900] {
        steps.push(GrowthStep {
            of: "sessions",
            size,
            servers: vec![http("http25", 1)],
            exchanges: vec![(
                "tools/call",
                Exchange {
                    sessions: size,
                    // A single key may hold at most a quarter of all sessions.
                    keys: ALL_SERVER_CALLERS.map(caller_key).to_vec(),
                    ..call("http25")
                },
            )],
        });
    }
    steps
}
