//! What a caller notices of scripts that do harm: how long tool calls take at a low rate, alone and
//! while others run one such script after the other.

use std::path::Path;

use serde::Serialize;

use super::{RATE, Times, subject};
use crate::gateway::{Gateway, Link, SCRIPTED, Setup, key, server};
use crate::load::{Exchange, Pace, Plan};
use crate::measure::{Drive, Mock, load, measure};
use crate::mock::mcp::Era;
use crate::mock::tools;
use crate::request;
use crate::tell;

/// Harmful scripts at a time.
const AT_ONCE: usize = 2;
/// More than come about.
const MOST: u64 = 100_000;

const HARMFUL: [(&str, &str); 4] = [
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
pub(crate) struct Beside {
    /// Beside what; nothing at first.
    pub(crate) what: &'static str,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Harmful scripts that came to their end meanwhile.
    pub(crate) ended: u64,
    pub(crate) errors: u64,
}

pub(crate) async fn measured(
    binary: &Path,
    mock: &Mock,
    times: Times,
) -> anyhow::Result<Vec<Beside>> {
    let setup = Setup {
        injects: false,
        servers: vec![
            server("http25", Link::Http, Era::Legacy, 1),
            server(SCRIPTED, Link::Http, Era::Legacy, 1),
        ],
    };
    let gateway = Gateway::start(binary, &setup, &mock.address).await?;
    gateway.connected(setup.servers.len()).await?;
    let subject = subject(&gateway);
    let alias = format!("http25_{}", tools::name(0));
    let call = request::call(Era::Legacy, "/mcp", &alias).with_key(&key("http25"));
    let drive = (Drive::Rate(RATE), times.open.max(3.0));
    let mut all = Vec::new();
    let alone = measure(&subject, &[], &call, drive).await?;
    all.push(Beside::of("nothing", &alone.seen, 0));
    for (what, code) in HARMFUL {
        tell(&format!("beside a script {what}"));
        let plan = Plan {
            address: gateway.address.clone(),
            exchange: harmful(code),
            pace: Pace::Closed,
            connections: AT_ONCE,
            seconds: drive.1,
            most: MOST,
        };
        let (calls, scripts) =
            tokio::join!(measure(&subject, &[], &call, drive), load(&plan, &subject));
        let (scripts, _) = scripts?;
        if let Some(why) = scripts.told.first() {
            anyhow::bail!("a script {what}: {why}");
        }
        all.push(Beside::of(what, &calls?.seen, scripts.answered));
    }
    Ok(all)
}

fn harmful(code: &str) -> Exchange {
    request::code(code, r#""is_error":true"#).with_key(&key(SCRIPTED))
}

impl Beside {
    fn of(what: &'static str, seen: &crate::load::Seen, ended: u64) -> Self {
        Self {
            what,
            p50: seen.latency.p50,
            p99: seen.latency.p99,
            ended,
            errors: seen.errors,
        }
    }
}
