//! What happens when there is more of everything: tools, servers, sessions.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::{Times, subject};
use crate::gateway::{ADMIN_KEY, ALL, Gateway, Link, Server, Setup, key, server};
use crate::load::Exchange;
use crate::measure::{Drive, Measured, Mock, measure};
use crate::mock::mcp::Era;
use crate::mock::model::Dialect;
use crate::mock::tools;
use crate::process::Tree;
use crate::request::{self, Form};
use crate::tell;

/// One point of a curve.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// What grows.
    pub(crate) of: &'static str,
    pub(crate) size: usize,
    /// What is measured.
    pub(crate) case: &'static str,
    pub(crate) measured: Vec<Measured>,
    /// Milliseconds from the start until all servers were connected.
    pub(crate) connected: f64,
    /// Idle memory with them, in MiB.
    pub(crate) idle: f64,
}

/// A set-up of some size, and what is asked of it.
struct Step {
    of: &'static str,
    size: usize,
    servers: Vec<Server>,
    asked: Vec<(&'static str, Exchange)>,
}

pub(crate) async fn measured(
    binary: &Path,
    mock: &Mock,
    times: Times,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for step in steps() {
        if times.until.is_some_and(|until| Instant::now() > until) {
            notes.push(format!(
                "{} {} was left out for lack of time",
                step.size, step.of
            ));
            continue;
        }
        tell(&format!("growth  {} {}", step.size, step.of));
        points.extend(taken(binary, mock, step, times).await?);
    }
    Ok(points)
}

async fn taken(binary: &Path, mock: &Mock, step: Step, times: Times) -> anyhow::Result<Vec<Point>> {
    let setup = Setup {
        injects: false,
        servers: step.servers,
    };
    let gateway = Gateway::start(binary, &setup, &mock.address).await?;
    let connected = gateway.listened + gateway.connected(setup.servers.len()).await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let subject = subject(&gateway);
    let idle = subject.tree.map_or(0.0, Tree::memory);
    let mock = mock.subject();
    let others: Vec<&Tree> = [&mock, &subject]
        .into_iter()
        .filter_map(|one| one.tree.as_ref())
        .collect();
    let mut points = Vec::new();
    for (case, exchange) in step.asked {
        let mut measured = Vec::new();
        for _ in 0..times.rounds {
            let drive = Drive::Connections(super::CONNECTIONS);
            measured.push(measure(&subject, &others, &exchange, (drive, times.closed)).await?);
        }
        points.push(Point {
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

fn steps() -> Vec<Step> {
    let call = |of: &str| {
        let alias = format!("{of}_{}", tools::name(0));
        request::call(Era::Legacy, "/mcp", &alias).with_key(&key("all"))
    };
    let chat = || {
        request::model(Dialect::Chat, "mock/bench-model", Form::Whole, "").with_key(&key("none"))
    };
    let http = |name: &str, tools: usize| server(name, Link::Http, Era::Legacy, tools);
    let several = |number: usize, link: Link| -> Vec<Server> {
        let server = |at: usize| server(&format!("s{at}"), link, Era::Legacy, 1);
        (0..number).map(server).collect()
    };
    let mut steps = Vec::new();
    for size in [1, 150, 10_000] {
        steps.push(Step {
            of: "tools",
            size,
            servers: vec![http("http25", size)],
            asked: vec![("tools/call", call("http25")), ("chat", chat())],
        });
    }
    for size in [1, 100, 1000] {
        let mut asked = vec![("tools/call", call("s0"))];
        if size == 1000 {
            asked.push(("admin list", request::clients(size).with_key(ADMIN_KEY)));
        }
        steps.push(Step {
            of: "HTTP servers",
            size,
            servers: several(size, Link::Http),
            asked,
        });
    }
    steps.push(Step {
        of: "stdio servers",
        size: 200,
        servers: several(200, Link::Pipe),
        asked: vec![("tools/call", call("s0"))],
    });
    for size in [1, 100, 900] {
        steps.push(Step {
            of: "sessions",
            size,
            servers: vec![http("http25", 1)],
            asked: vec![(
                "tools/call",
                Exchange {
                    sessions: size,
                    // One key may have a quarter of all sessions.
                    keys: ALL.map(key).to_vec(),
                    ..call("http25")
                },
            )],
        });
    }
    steps
}
