//! Measures how a caller who abuses the gateway affects another one: the latency of a victim's tool calls
//! at a low rate, alone and beside each kind of abuse.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::flags::Flags;
use crate::gateway::{Gateway, GatewaySetup, SCRIPT_SERVER, Transport, caller_key, server_setup};
use crate::load::{Exchange, LoadPlan, Pace};
use crate::measure::{MockProcess, run_load};
use crate::mock::mcp::Era;
use crate::mock::tools;
use crate::process;
use crate::request;
use crate::run::{LATENCY_RATE, gateway_target};
use crate::{print_progress, print_result};

/// Connections of the victim.
const VICTIM_CONNECTIONS: usize = 16;
/// Time for the abuse to begin before the victim is measured.
const LEAD_TIME: Duration = Duration::from_secs(1);
/// Nearly the largest body that the gateway accepts.
const LARGE_BYTES: usize = 15 * 1024 * 1024;
const EXECUTE: &str = "/v1/mcp/tool/execute";

/// What the abuser does with each of its connections.
#[derive(Clone, Debug)]
enum Action {
    /// Sends this and then nothing.
    Hold(Vec<u8>),
    /// Sends requests, each after the response to the previous one.
    Repeat(Vec<u8>),
    /// Sends requests and disconnects after each.
    Abandon(Vec<u8>),
}

/// A kind of abuse.
struct Abuse {
    what: &'static str,
    connections: usize,
    action: Action,
}

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    let binary = flags.get("binary").context("`--binary` is missing")?;
    let binary = PathBuf::from(binary).canonicalize()?;
    let seconds: f64 = flags.number("seconds", 8.0)?;
    let mock = MockProcess::start(0).await?;
    print_result(&format!(
        "Victim: {LATENCY_RATE} calls/s for {seconds} s; latency in ms, memory of the gateway in MiB.\n\n| beside | p50 | p99 | max | errors | memory |\n|---|---|---|---|---|---|"
    ));
    for abuse in [None].into_iter().chain(abuses().into_iter().map(Some)) {
        let what = abuse.as_ref().map_or("nothing", |abuse| abuse.what);
        print_progress(what);
        // A new gateway each time: nothing is left of the abuse before.
        let setup = setup();
        let gateway = Gateway::start(&binary, &setup, &mock.address).await?;
        gateway.wait_connected(setup.servers.len()).await?;
        if what == STALLED {
            stop_server(gateway.pid());
        }
        let mut abusers = JoinSet::new();
        if let Some(abuse) = &abuse {
            for _ in 0..abuse.connections {
                abusers.spawn(run_abuser(gateway.address.clone(), abuse.action.clone()));
            }
            tokio::time::sleep(LEAD_TIME).await;
        }
        let plan = LoadPlan {
            address: gateway.address.clone(),
            exchange: victim(),
            pace: Pace::Open(LATENCY_RATE),
            connections: VICTIM_CONNECTIONS,
            seconds,
            max_requests: u64::MAX,
        };
        let (seen, memory) = run_load(&plan, &gateway_target(&gateway)).await?;
        print_result(&format!(
            "| {what} | {:.1} | {:.1} | {:.1} | {} of {} | {:.0} |",
            seen.latency.p50,
            seen.latency.p99,
            seen.latency.max,
            seen.errors,
            seen.answered + seen.errors,
            memory.unwrap_or(0.0)
        ));
        for problem in &seen.error_samples {
            print_progress(problem);
        }
        abusers.shutdown().await;
        drop(gateway.stop().await?);
    }
    Ok(())
}

const STALLED: &str = "calls with 15 MB to a server that does not read, each abandoned";

fn setup() -> GatewaySetup {
    GatewaySetup {
        injects: false,
        servers: vec![
            server_setup("http25", Transport::Http, Era::Legacy, 1),
            server_setup("pipe25", Transport::Stdio, Era::Legacy, 1),
            server_setup(SCRIPT_SERVER, Transport::Http, Era::Legacy, 1),
        ],
    }
}

fn victim() -> Exchange {
    let alias = format!("http25_{}", tools::tool_name(0));
    request::tool_call(Era::Modern, "/mcp", &alias).with_key(&caller_key("all"))
}

fn abuses() -> Vec<Abuse> {
    let abuse = |what, connections, action| Abuse {
        what,
        connections,
        action,
    };
    let http = format!("http25_{}", tools::tool_name(0));
    let call = request::tool_execute(&http).body;
    let endless = "n = 0\nfor i in range(1000000000):\n    n += i\nresult = n";
    let script = request::script_request(endless, "").body;
    let large = format!("x{}", "y".repeat(LARGE_BYTES));
    let capabilities = initialize(&format!(r#"{{"experimental":{{"{large}":{{}}}}}}"#));
    let nested = "[".repeat(LARGE_BYTES);
    vec![
        abuse(
            "calls as fast as 250 connections allow",
            250,
            Action::Repeat(post("all-2", EXECUTE, &call)),
        ),
        abuse(
            "1,100 unfinished bodies",
            1100,
            Action::Hold(head("all-2", EXECUTE, 1000)),
        ),
        abuse(
            "4,000 unfinished headers",
            4000,
            Action::Hold(b"POST / HTTP/1.1\r\nhost: ".to_vec()),
        ),
        abuse(
            "wrong keys on 250 connections",
            250,
            Action::Repeat(post("nobody", EXECUTE, &call)),
        ),
        abuse(
            "`initialize` on 250 connections",
            250,
            Action::Repeat(post("all-2", "/mcp", &initialize("{}"))),
        ),
        abuse(
            "`initialize` with 15 MB of capabilities",
            8,
            Action::Repeat(post("all-2", "/mcp", &capabilities)),
        ),
        abuse(
            "calls with 15 MB of arguments",
            8,
            Action::Repeat(post("all-2", EXECUTE, &large_call(&http))),
        ),
        abuse(
            STALLED,
            8,
            Action::Abandon(post(
                "pipe25",
                EXECUTE,
                &large_call(&format!("pipe25_{}", tools::tool_name(0))),
            )),
        ),
        abuse(
            "messages nested 15 million levels deep",
            8,
            Action::Repeat(post("all-2", "/mcp", &nested)),
        ),
        abuse(
            "64 scripts that never end",
            64,
            Action::Repeat(post(SCRIPT_SERVER, EXECUTE, &script)),
        ),
    ]
}

fn initialize(capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#
    )
}

fn large_call(alias: &str) -> String {
    let arguments = format!(r#"{{\"query\":\"{}\"}}"#, "z".repeat(LARGE_BYTES));
    format!(
        r#"{{"id":"call_1","type":"function","function":{{"name":"{alias}","arguments":"{arguments}"}}}}"#
    )
}

/// Builds the headers of a request.
fn head(caller: &str, path: &str, length: usize) -> Vec<u8> {
    let key = caller_key(caller);
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes()
}

fn post(caller: &str, path: &str, body: &str) -> Vec<u8> {
    let mut request = head(caller, path, body.len());
    request.extend_from_slice(body.as_bytes());
    request
}

/// Abuses one connection after the other, until aborted.
async fn run_abuser(address: String, action: Action) {
    loop {
        // The gateway may close the connection at any time; then the next one is opened.
        let _closed = abuse_connection(&address, &action).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn abuse_connection(address: &str, action: &Action) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut response = vec![0; 64 * 1024];
    match action {
        Action::Hold(bytes) => {
            stream.write_all(bytes).await?;
            while stream.read(&mut response).await? > 0 {}
        }
        Action::Repeat(bytes) => loop {
            stream.write_all(bytes).await?;
            // Responses are small: one read has the whole response, or at least its beginning.
            if stream.read(&mut response).await? == 0 {
                return Ok(());
            }
        },
        Action::Abandon(bytes) => {
            stream.write_all(bytes).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// Stops the process of the stdio server, so that it does not read.
fn stop_server(gateway: u32) {
    for id in process::children(gateway) {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        if memchr::memmem::find(&command, b"pipe\0").is_some() {
            let _ended = Command::new("kill")
                .args(["-STOP", &id.to_string()])
                .status();
        }
    }
}
