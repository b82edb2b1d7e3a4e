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
        offers.retain(|server, (by, _)| now.active.get(server).is_some_and(|since| *by >= *since));
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
