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
    /// All configured names, from which aliases are made.
    Configured(Vec<ServerName>),
    Offer {
        server: ServerName,
        offer: Arc<Offer>,
        done: oneshot::Sender<()>,
    },
}

impl Publisher {
    pub(crate) fn start(
        style: NameStyle,
        tasks: &TaskTracker,
    ) -> (Self, watch::Receiver<Arc<Catalog>>) {
        let (changes, inbox) = mpsc::unbounded_channel();
        let (catalog, published) = watch::channel(Arc::new(Catalog::default()));
        tasks.spawn(publish(style, inbox, catalog));
        (Self(changes), published)
    }

    pub(crate) fn configured(&self, names: Vec<ServerName>) {
        let _ = self.0.send(Change::Configured(names));
    }

    /// Waits until a catalog with this offer is out.
    pub(crate) async fn offer(&self, server: ServerName, offer: Arc<Offer>) {
        let (done, published) = oneshot::channel();
        let _ = self.0.send(Change::Offer {
            server,
            offer,
            done,
        });
        let _ = published.await;
    }
}

/// Ends when the last publisher is gone.
async fn publish(
    style: NameStyle,
    mut inbox: mpsc::UnboundedReceiver<Change>,
    catalog: watch::Sender<Arc<Catalog>>,
) {
    let mut names = Vec::new();
    let mut offers: BTreeMap<ServerName, Arc<Offer>> = BTreeMap::new();
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, 1024).await > 0 {
        let mut waiting = Vec::new();
        for change in batch.drain(..) {
            match change {
                Change::Configured(configured) => names = configured,
                Change::Offer {
                    server,
                    offer,
                    done,
                } => {
                    offers.insert(server, offer);
                    waiting.push(done);
                }
            }
        }
        let generation = catalog.borrow().generation() + 1;
        let next = Catalog::build(generation, style, &names, offers.clone());
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
