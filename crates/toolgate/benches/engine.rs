//! Measures the engine's overhead per call with an in-process tool that answers immediately, so that no
//! transport is involved. Reports the CPU time of the whole process, including record keeping.
//!
//! Run with `make bench-engine`. Figures of one run are comparable with each other, not across machines.

#![allow(
    clippy::expect_used,
    reason = "a benchmark cannot continue without its setup"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use toolgate::gateway::LocalServerOptions;
use toolgate::local::{LocalServer, LocalTool};
use toolgate::{Caller, Config, Gateway, ServerName, Store, ToolCall, ToolId, ToolName};
use toolgate_core::config::{ConfigFormat, Document};

const CALLS: u32 = 20_000;

/// A gateway setup to measure.
struct Case {
    name: &'static str,
    tools: usize,
    config: &'static str,
    caller: fn() -> Caller,
    /// Expected outcome of every call.
    outcome: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        name: "10 tools",
        tools: 10,
        config: "",
        caller: Caller::library,
        outcome: "ok",
    },
    Case {
        name: "10,000 tools",
        tools: 10_000,
        config: "",
        caller: Caller::library,
        outcome: "ok",
    },
    Case {
        name: "10,000 tools, key with role and limits",
        tools: 10_000,
        config: KEY,
        caller: || Caller::library().with_key("ci"),
        outcome: "ok",
    },
    Case {
        name: "10,000 tools, 100 rules",
        tools: 10_000,
        config: RULES,
        caller: Caller::library,
        outcome: "ok",
    },
    Case {
        name: "10 tools, unknown tool",
        tools: 10,
        config: "[mcp]\nenabled = false\n",
        caller: Caller::library,
        outcome: "unknown",
    },
];

const KEY: &str = r#"
[roles.dev]
tools = ["bench.*"]
[keys.ci]
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
roles = ["dev"]
rate_limit = "100000000/s"
max_in_flight = 1000
budget = { calls = 100000000, per = "day" }
"#;

/// Repeated a hundred times.
const RULES: &str = "[[permissions.rules]]\ntool = \"bench.tool_9*\"\naction = \"ask\"\n";

const SCRIPT: &str = "\
for i in range(3):
    result = bench.tool_00001(path='/tmp/x', lines=i)
";
const SCRIPTS: u32 = 2_000;

fn main() {
    if toolgate::script_worker::is_worker_process() {
        let _ended = toolgate::script_worker::main();
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        print_line(&format!(
            "{:40} {:>10} {:>12} {:>10}   µs a call",
            "case", "cpu", "cpu with db", "wall"
        ));
        for case in CASES {
            let [cpu, cpu_with_db, wall] = measure(&case).await;
            print_line(&format!(
                "{:40} {cpu:>10.1} {cpu_with_db:>12.1} {wall:>10.1}",
                case.name
            ));
        }
        for tools in [10, 10_000] {
            let micros = script_median_micros(tools).await;
            print_line(&format!(
                "script with 3 calls, {tools} tools: {micros:.0} µs (p50)"
            ));
        }
    });
}

async fn measure(case: &Case) -> [f64; 3] {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path()).await.expect("a store");
    let config = match case.config {
        RULES => RULES.repeat(100),
        other => other.to_owned(),
    };
    let gateway = Gateway::builder(load(&config))
        .local(server(case.tools))
        .store(store)
        .start()
        .await
        .expect("a gateway");
    gateway.wait_until_settled().await;
    let caller = (case.caller)();
    run(&gateway, &caller, case.outcome, CALLS / 10).await;
    wait_for_definitions(&gateway, case.tools).await;
    let ((all, engine), started_at) = (cpu_time(), Instant::now());
    run(&gateway, &caller, case.outcome, CALLS).await;
    let ((all_after, engine_after), wall) = (cpu_time(), started_at.elapsed());
    gateway.stop(Duration::from_secs(5)).await;
    [engine_after - engine, all_after - all, wall]
        .map(|time| time.as_secs_f64() * 1e6 / f64::from(CALLS))
}

/// Returns the median time of a script with a warm worker in microseconds.
async fn script_median_micros(tools: usize) -> f64 {
    let gateway = Gateway::builder(load(""))
        .script_worker()
        .local_with(server(tools), LocalServerOptions::default().code_mode())
        .start()
        .await
        .expect("a gateway");
    gateway.wait_until_settled().await;
    let arguments = json!({"code": SCRIPT}).to_string();
    let mut times = Vec::new();
    for _ in 0..SCRIPTS {
        let started_at = Instant::now();
        let call = ToolCall::parse("executeToolCode", &arguments);
        let outcome = gateway.call(&Caller::library(), call).await;
        times.push(started_at.elapsed());
        let outcome = outcome.expect("an outcome");
        assert!(!outcome.result.is_error(), "{}", outcome.result.text());
    }
    times.sort_unstable();
    gateway.stop(Duration::from_secs(5)).await;
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Waits until the definitions of all tools are stored.
async fn wait_for_definitions(gateway: &Gateway, tools: usize) {
    let last = ToolId {
        server: ServerName::parse("bench").expect("a name"),
        tool: ToolName::new(&format!("tool_{tools:05}")),
    };
    while gateway
        .tools()
        .versions(&last)
        .await
        .expect("a store")
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn run(gateway: &Gateway, caller: &Caller, outcome: &str, calls: u32) {
    for _ in 0..calls {
        let call = ToolCall::parse("bench_tool_00001", r#"{"path":"/tmp/x","lines":10}"#);
        let result = gateway.call(caller, call).await;
        let code = result.as_ref().map_or_else(|error| error.code(), |_| "ok");
        assert_eq!(code, outcome);
    }
}

fn server(tools: usize) -> LocalServer {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["path"]
    });
    let name = ServerName::parse("bench").expect("a name");
    (1..=tools).fold(LocalServer::new(name), |server, number| {
        let tool = format!("tool_{number:05}");
        let tool = LocalTool::raw(&tool, schema.clone(), |_, _| async { Ok("done") });
        server.tool(tool.description("Answers immediately"))
    })
}

fn load(toml: &str) -> Config {
    let document = Document::parse("bench.toml", ConfigFormat::Toml, toml);
    Config::load(&[document]).expect("a valid configuration").0
}

/// Returns the CPU time of all threads, and of this one, which runs everything but the database.
fn cpu_time() -> (Duration, Duration) {
    let threads = fs::read_dir("/proc/self/task").expect("Linux");
    let all = threads
        .flatten()
        .map(|thread| thread_cpu_time(&thread.path()));
    (all.sum(), thread_cpu_time("/proc/thread-self".as_ref()))
}

fn thread_cpu_time(thread: &Path) -> Duration {
    let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[allow(clippy::print_stdout, reason = "the benchmark prints a table")]
fn print_line(line: &str) {
    println!("{line}");
}
