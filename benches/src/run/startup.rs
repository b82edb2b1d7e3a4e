//! Measures the time from process start to the first correct response.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::gateway::{Gateway, GatewaySetup, caller_key};
use crate::load::client;
use crate::measure::MockProcess;
use crate::mock::model::Dialect;
use crate::print_progress;
use crate::process::ProcessTree;
use crate::request::{self, ResponseMode};

const STARTS: usize = 5;

/// One start without servers; times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Startup {
    /// Whether data of an earlier start existed.
    pub(crate) again: bool,
    pub(crate) listens: f64,
    pub(crate) answers: f64,
    /// CPU time until the first response.
    pub(crate) cpu: f64,
    /// Memory in MiB.
    pub(crate) memory: f64,
}

pub(crate) async fn measure_startup(
    binary: &Path,
    mock: &MockProcess,
) -> anyhow::Result<Vec<Startup>> {
    let setup = GatewaySetup {
        injects: true,
        servers: Vec::new(),
    };
    let mut all = Vec::new();
    for time in 0..STARTS {
        print_progress(&format!("start {}", time + 1));
        let started = Instant::now();
        let first = Gateway::start(binary, &setup, &mock.address).await?;
        all.push(measure_first_response(&first, started, false).await?);
        let folder = first.stop().await?;
        let started = Instant::now();
        let again = Gateway::start_in(binary, folder).await?;
        all.push(measure_first_response(&again, started, true).await?);
    }
    Ok(all)
}

async fn measure_first_response(
    gateway: &Gateway,
    started: Instant,
    again: bool,
) -> anyhow::Result<Startup> {
    let exchange =
        request::model_request(Dialect::Chat, "mock/bench-model", ResponseMode::Whole, "");
    client::send_once(&gateway.address, &exchange.with_key(&caller_key("none"))).await?;
    let answers = started.elapsed();
    let tree = ProcessTree::with_children(gateway.pid());
    Ok(Startup {
        again,
        listens: gateway.listen_time.as_secs_f64() * 1e3,
        answers: answers.as_secs_f64() * 1e3,
        cpu: tree.cpu().as_secs_f64() * 1e3,
        memory: tree.memory(),
    })
}
