//! Makes the catalog from what all servers offer, and tells whoever listens.
//!
//! Offers that arrive while a catalog is being built go into the next one together, so that a
//! thousand servers coming up do not build a thousand catalogs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;
use toolgate_core::Catalog;
use toolgate_core::catalog::Offer;
use toolgate_core::name::{NameStyle, ServerName};

/// Takes offers; clones feed the same catalog.
#[derive(Clone, Debug)]
pub(crate) struct Publisher(mpsc::UnboundedSender<Change>);

#[derive(Debug)]
enum Change {
    Configured(Configured),
    Offer {
        server: ServerName,
        by: u64,
        offer: Arc<Offer>,
        done: oneshot::Sender<()>,
    },
    /// What supervisors before this one offered no longer counts.
    Outdate {
        server: ServerName,
        since: u64,
    },
}

/// What the configuration says of the catalog.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured {
    pub(crate) style: NameStyle,
    /// All names, from which aliases are made.
    pub(crate) names: Vec<ServerName>,
    /// The servers that may be connected, each with its earliest supervisor whose offer counts.
    pub(crate) active: BTreeMap<ServerName, u64>,
    /// The latest supervisor that this is about. One that starts later may offer before its own
    /// configuration is heard of, and that offer must not be lost.
    pub(crate) up_to: u64,
}

impl Configured {
    /// Whether what a supervisor offered counts.
    fn admits(&self, server: &ServerName, by: u64) -> bool {
        match self.active.get(server) {
            Some(since) => by >= *since,
            None => by > self.up_to,
        }
    }
}

impl Publisher {
    pub(crate) fn start(tasks: &TaskTracker) -> (Self, watch::Receiver<Arc<Catalog>>) {
        let (changes, inbox) = mpsc::unbounded_channel();
        let (catalog, published) = watch::channel(Arc::new(Catalog::default()));
        tasks.spawn(publish(inbox, catalog));
        (Self(changes), published)
    }

    pub(crate) fn configured(&self, configured: Configured) {
        let _ = self.0.send(Change::Configured(configured));
    }

    /// Waits until a catalog with this offer is out.
    pub(crate) async fn offer(&self, server: ServerName, by: u64, offer: Arc<Offer>) {
        let (done, published) = oneshot::channel();
        let _ = self.0.send(Change::Offer {
            server,
            by,
            offer,
            done,
        });
        let _ = published.await;
    }

    /// Takes out what supervisors before `since` offered.
    pub(crate) fn outdate(&self, server: ServerName, since: u64) {
        let _ = self.0.send(Change::Outdate { server, since });
    }
}

/// Ends when the last publisher is gone.
async fn publish(mut inbox: mpsc::UnboundedReceiver<Change>, catalog: watch::Sender<Arc<Catalog>>) {
    let mut now = Configured::default();
    let mut offers: BTreeMap<ServerName, (u64, Arc<Offer>)> = BTreeMap::new();
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, 1024).await > 0 {
        let mut waiting = Vec::new();
        for change in batch.drain(..) {
            match change {
                Change::Configured(configured) => now = configured,
                Change::Outdate { server, since } => {
                    if offers.get(&server).is_some_and(|(by, _)| *by < since) {
                        offers.remove(&server);
                    }
                }
                Change::Offer {
                    server,
                    by,
                    offer,
                    done,
                } => {
                    if offers
                        .get(&server)
                        .is_none_or(|(earlier, _)| *earlier <= by)
                    {
                        offers.insert(server, (by, offer));
                    }
                    waiting.push(done);
                }
            }
        }
        offers.retain(|server, (by, _)| now.admits(server, *by));
        let current = offers
            .iter()
            .map(|(server, (_, offer))| (server.clone(), Arc::clone(offer)))
            .collect();
        let generation = catalog.borrow().generation() + 1;
        let next = Catalog::build(generation, now.style, &now.names, current);
        warn_of_new_names(&catalog.borrow(), &next);
        catalog.send_replace(Arc::new(next));
        for done in waiting {
            let _ = done.send(());
        }
    }
}

fn warn_of_new_names(before: &Catalog, after: &Catalog) {
    for renamed in after.renamed() {
        if !before.renamed().contains(renamed) {
            tracing::warn!(
                tool = %renamed.id, alias = %renamed.alias,
                "the name `{}` is taken or too long for models", renamed.plain
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_offer_that_comes_before_its_configuration_is_kept() {
        let tasks = TaskTracker::new();
        let (publisher, catalogs) = Publisher::start(&tasks);
        let server = ServerName::parse("s").unwrap();
        let offered =
            |catalogs: &watch::Receiver<Arc<Catalog>>| catalogs.borrow().offer(&server).is_some();
        publisher
            .offer(server.clone(), 1, Arc::new(Offer::default()))
            .await;
        assert!(
            offered(&catalogs),
            "its supervisor was quicker than the news of it"
        );
        let configured = |active: &[u64], up_to| Configured {
            names: vec![server.clone()],
            active: active
                .iter()
                .map(|since| (server.clone(), *since))
                .collect(),
            up_to,
            ..Configured::default()
        };
        let other = ServerName::parse("other").unwrap();
        let settle = async || {
            publisher
                .offer(other.clone(), 99, Arc::new(Offer::default()))
                .await
        };
        publisher.configured(configured(&[1], 1));
        settle().await;
        assert!(offered(&catalogs));
        publisher.configured(configured(&[], 1));
        settle().await;
        assert!(
            !offered(&catalogs),
            "a server that was removed offers nothing"
        );
        publisher
            .offer(server.clone(), 1, Arc::new(Offer::default()))
            .await;
        assert!(
            !offered(&catalogs),
            "nor does its last supervisor, however late"
        );
    }
}
