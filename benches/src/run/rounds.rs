//! What an agent adds between the last result of a tool and the next request to the model, with a
//! small and with a large catalog. The gap includes two ways over loopback.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::{Times, subject};
use crate::gateway::{Gateway, Link, Setup, key, server};
use crate::load::{Exchange, Method, client};
use crate::measure::{Drive, Mock, measure, settled};
use crate::mock::gaps::Seen;
use crate::mock::mcp::Era;
use crate::process::Tree;
use crate::request;
use crate::tell;

/// Tools in the catalog beside those that the caller sees.
const OTHERS: [usize; 2] = [10, 10_000];
const ROUNDS: usize = 5;

/// The gaps with one catalog.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Gap {
    pub(crate) others: usize,
    pub(crate) seen: Seen,
}

pub(crate) async fn measured(binary: &Path, mock: &Mock, times: Times) -> anyhow::Result<Vec<Gap>> {
    let mut gaps = Vec::new();
    for others in OTHERS {
        tell(&format!("agent with {others} other tools"));
        let servers = vec![
            server("http25", Link::Http, Era::Legacy, 10),
            server("other", Link::Http, Era::Legacy, others),
        ];
        let setup = Setup {
            injects: true,
            servers,
        };
        let gateway = Gateway::start(binary, &setup, &mock.address).await?;
        gateway.connected(setup.servers.len()).await?;
        // It goes on to write down what its servers offer.
        let (a_while, most) = (Duration::from_secs(1), Duration::from_secs(30));
        settled(&Tree::only(gateway.id()), a_while, most).await;
        let exchange = request::agent(ROUNDS).with_key(&key("http25"));
        client::once(&gateway.address, &exchange).await?;
        seen(mock).await?;
        let alone = (Drive::Connections(1), times.closed);
        measure(&subject(&gateway), &[], &exchange, alone).await?;
        let seen = seen(mock).await?;
        gaps.push(Gap { others, seen });
    }
    Ok(gaps)
}

/// What the upstreams have seen since they were asked last.
async fn seen(mock: &Mock) -> anyhow::Result<Seen> {
    let asked = Exchange {
        method: Method::Get,
        path: "/gaps".to_owned(),
        ..Exchange::default()
    };
    let seen = client::once(&mock.address, &asked).await?;
    Ok(serde_json::from_slice(&seen)?)
}
