//! How long the gateway takes from nothing to its first right answer.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::gateway::{Gateway, Setup, key};
use crate::load::client;
use crate::measure::Mock;
use crate::mock::model::Dialect;
use crate::process::Tree;
use crate::request::{self, Form};
use crate::tell;

const TIMES: usize = 5;

/// One start, without servers; milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Started {
    /// Whether it had data of an earlier start.
    pub(crate) again: bool,
    pub(crate) listens: f64,
    pub(crate) answers: f64,
    /// Processor time until then.
    pub(crate) cpu: f64,
    /// MiB.
    pub(crate) memory: f64,
}

pub(crate) async fn measured(binary: &Path, mock: &Mock) -> anyhow::Result<Vec<Started>> {
    let setup = Setup {
        injects: true,
        servers: Vec::new(),
    };
    let mut all = Vec::new();
    for time in 0..TIMES {
        tell(&format!("start {}", time + 1));
        let began = Instant::now();
        let first = Gateway::start(binary, &setup, &mock.address).await?;
        all.push(answered(&first, began, false).await?);
        let folder = first.end().await?;
        let began = Instant::now();
        let again = Gateway::start_in(binary, folder).await?;
        all.push(answered(&again, began, true).await?);
    }
    Ok(all)
}

async fn answered(gateway: &Gateway, began: Instant, again: bool) -> anyhow::Result<Started> {
    let asked = request::model(Dialect::Chat, "mock/bench-model", Form::Whole, "");
    client::once(&gateway.address, &asked.with_key(&key("none"))).await?;
    let answers = began.elapsed();
    let tree = Tree::of(gateway.id());
    Ok(Started {
        again,
        listens: gateway.listened.as_secs_f64() * 1e3,
        answers: answers.as_secs_f64() * 1e3,
        cpu: tree.cpu().as_secs_f64() * 1e3,
        memory: tree.memory(),
    })
}
