//! Measures how harmful scripts affect other callers: latency of tool calls at a low rate, alone and
//! while such scripts run back to back.

use std::path::Path;

use serde::Serialize;

use super::{LATENCY_RATE, Schedule, gateway_target};
use crate::gateway::{Gateway, GatewaySetup, SCRIPT_SERVER, Transport, caller_key, server_setup};
use crate::load::{Exchange, LoadPlan, Pace};
use crate::measure::{Load, LoadMode, MockProcess, measure, run_load};
use crate::mock::mcp::Era;
use crate::mock::tools;
use crate::print_progress;
use crate::request;

/// Number of harmful scripts running concurrently.
const HARMFUL_CONNECTIONS: usize = 2;
/// Upper bound on scripts per measurement, never reached in practice.
const MAX_SCRIPTS: u64 = 100_000;

const HARMFUL_SCRIPTS: [(&str, &str); 4] = [
    (
        "that never ends",
        "n = 0\nfor i in range(1000000000):\n    n += i\nresult = n",
    ),
    (
        "that fills its memory",
        "all = []\nfor i in range(1000000000):\n    all.append(\"x\" * 100000)\nresult = len(all)",
    ),
    (
        "that prints without end",
        "for i in range(1000000000):\n    print(\"x\" * 1000)",
    ),
    (
        "that calls itself without end",
        "def f(n):\n    return f(n + 1)\nresult = f(0)",
    ),
];

/// Latency of tool calls, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScriptInterference {
    /// Kind of script running alongside; `nothing` for the baseline.
    pub(crate) what: &'static str,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Harmful scripts that finished meanwhile.
    pub(crate) ended: u64,
    pub(crate) errors: u64,
}

pub(crate) async fn measure_interference(
    binary: &Path,
    mock: &MockProcess,
    schedule: Schedule,
) -> anyhow::Result<Vec<ScriptInterference>> {
    let setup = GatewaySetup {
        injects: false,
        servers: vec![
            server_setup("http25", Transport::Http, Era::Legacy, 1),
            server_setup(SCRIPT_SERVER, Transport::Http, Era::Legacy, 1),
        ],
    };
    let gateway = Gateway::start(binary, &setup, &mock.address).await?;
    gateway.wait_connected(setup.servers.len()).await?;
    let target = gateway_target(&gateway);
    let alias = format!("http25_{}", tools::tool_name(0));
    let call = request::tool_call(Era::Legacy, "/mcp", &alias).with_key(&caller_key("http25"));
    let load = Load {
        mode: LoadMode::Rate(LATENCY_RATE),
        seconds: schedule.open.max(3.0),
    };
    let mut all = Vec::new();
    let alone = measure(&target, &[], &call, load).await?;
    all.push(ScriptInterference::new("nothing", &alone.seen, 0));
    for (what, code) in HARMFUL_SCRIPTS {
        print_progress(&format!("alongside a script {what}"));
        let plan = LoadPlan {
            address: gateway.address.clone(),
            exchange: harmful_request(code),
            pace: Pace::Closed,
            connections: HARMFUL_CONNECTIONS,
            seconds: load.seconds,
            max_requests: MAX_SCRIPTS,
        };
        let (calls, scripts) =
            tokio::join!(measure(&target, &[], &call, load), run_load(&plan, &target));
        let (scripts, _) = scripts?;
        if let Some(problem) = scripts.error_samples.first() {
            anyhow::bail!("a script {what}: {problem}");
        }
        all.push(ScriptInterference::new(
            what,
            &calls?.seen,
            scripts.answered,
        ));
    }
    Ok(all)
}

fn harmful_request(code: &str) -> Exchange {
    request::script_request(code, r#""is_error":true"#).with_key(&caller_key(SCRIPT_SERVER))
}

impl ScriptInterference {
    fn new(what: &'static str, result: &crate::load::LoadResult, ended: u64) -> Self {
        Self {
            what,
            p50: result.latency.p50,
            p99: result.latency.p99,
            ended,
            errors: result.errors,
        }
    }
}
