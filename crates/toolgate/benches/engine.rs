//! What the engine itself costs a call: an in-process tool that answers at once, so that there is
//! no transport. Processor time of the whole process, record keeping included.
//!
//! `make bench-engine` runs it. The figures of one run are comparable with one another, not with those of
//! another machine.

#![allow(
    clippy::expect_used,
    reason = "a bench that cannot start has nothing to say"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use toolgate::local::{LocalServer, Output};
use toolgate::{Caller, Config, Gateway, ServerName, Store, ToolCall, ToolId, ToolName};
use toolgate_core::config::{Document, Format};

const CALLS: u32 = 20_000;

/// One way to set the gateway up.
struct Case {
    name: &'static str,
    tools: usize,
    config: &'static str,
    caller: fn() -> Caller,
    /// What every call must come to.
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

/// Repeated to a hundred.
const RULES: &str = "[[permissions.rules]]\ntool = \"bench.tool_9*\"\naction = \"ask\"\n";

const SCRIPT: &str = "\
for i in range(3):
    result = bench.tool_00001(path='/tmp/x', lines=i)
";
const SCRIPTS: u32 = 2_000;

fn main() {
    if toolgate::script_worker::is_asked_for() {
        let _ended = toolgate::script_worker::main();
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        say(&format!(
            "{:40} {:>10} {:>12} {:>10}   µs a call",
            "case", "cpu", "cpu with db", "wall"
        ));
        for case in CASES {
            let [cpu, all, wall] = measure(&case).await;
            say(&format!(
                "{:40} {cpu:>10.1} {all:>12.1} {wall:>10.1}",
                case.name
            ));
        }
        for tools in [10, 10_000] {
            let wall = scripts(tools).await;
            say(&format!(
                "script with 3 calls, {tools} tools: {wall:.0} µs (p50)"
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
    gateway.settled().await;
    let caller = (case.caller)();
    run(&gateway, &caller, case.outcome, CALLS / 10).await;
    noted(&gateway, case.tools).await;
    let ((all, own), began) = (processor_time(), Instant::now());
    run(&gateway, &caller, case.outcome, CALLS).await;
    let ((all_after, own_after), wall) = (processor_time(), began.elapsed());
    gateway.stop(Duration::from_secs(5)).await;
    [own_after - own, all_after - all, wall].map(|time| time.as_secs_f64() * 1e6 / f64::from(CALLS))
}

/// The median time of a script with a warm worker, in µs.
async fn scripts(tools: usize) -> f64 {
    let gateway = Gateway::builder(load(""))
        .is_script_worker()
        .scripted(server(tools))
        .start()
        .await
        .expect("a gateway");
    gateway.settled().await;
    let arguments = json!({"code": SCRIPT}).to_string();
    let mut times = Vec::new();
    for _ in 0..SCRIPTS {
        let began = Instant::now();
        let call = ToolCall::parse("executeToolCode", &arguments);
        let outcome = gateway.call(&Caller::library(), call).await;
        times.push(began.elapsed());
        let outcome = outcome.expect("an outcome");
        assert!(!outcome.result.is_error(), "{}", outcome.result.text());
    }
    times.sort_unstable();
    gateway.stop(Duration::from_secs(5)).await;
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Waits until the definitions of all tools are in the store.
async fn noted(gateway: &Gateway, tools: usize) {
    let last = ToolId {
        server: ServerName::parse("bench").expect("a name"),
        tool: ToolName::new(&format!("tool_{tools:05}")),
    };
    while gateway.versions(&last).await.expect("a store").is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn run(gateway: &Gateway, caller: &Caller, outcome: &str, calls: u32) {
    for _ in 0..calls {
        let call = ToolCall::parse("bench_tool_00001", r#"{"path":"/tmp/x","lines":10}"#);
        let answer = gateway.call(caller, call).await;
        let word = answer.as_ref().map_or_else(|error| error.code(), |_| "ok");
        assert_eq!(word, outcome);
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
        server.tool(&tool, "Answers at once", &schema, |_| async {
            Ok(Output::Text("done".to_owned()))
        })
    })
}

fn load(toml: &str) -> Config {
    let document = Document::parse("bench.toml", Format::Toml, toml);
    Config::load(&[document]).expect("a valid configuration").0
}

/// Processor time of all threads, and of this one, which runs everything but the database.
fn processor_time() -> (Duration, Duration) {
    let threads = fs::read_dir("/proc/self/task").expect("Linux");
    let all = threads.flatten().map(|thread| time_of(&thread.path()));
    (all.sum(), time_of("/proc/thread-self".as_ref()))
}

fn time_of(thread: &Path) -> Duration {
    let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
fn say(line: &str) {
    println!("{line}");
}
