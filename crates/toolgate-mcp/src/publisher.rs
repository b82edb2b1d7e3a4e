//! Builds the catalog from the listings of all servers and publishes it to subscribers.
//!
//! Listings that arrive while a catalog is being built are batched into the next one, so that a
//! thousand servers starting up do not cause a thousand catalogs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;
use toolgate_core::Catalog;
use toolgate_core::catalog::{ClientListings, ClientProfile, DefinitionReviews, ServerListing};
use toolgate_core::name::{NameStyle, ServerName};

/// Accepts listings; clones feed the same catalog.
#[derive(Clone, Debug)]
pub(crate) struct Publisher(mpsc::UnboundedSender<PublisherMessage>);

/// Messages from publishers to the task that builds catalogs.
#[derive(Debug)]
enum PublisherMessage {
    Configure(CatalogConfig),
    Review {
        reviews: Arc<DefinitionReviews>,
        done: oneshot::Sender<()>,
    },
    Listing {
        server: ServerName,
        generation: u64,
        listing: Arc<ServerListing>,
        done: oneshot::Sender<()>,
    },
    ClientListing {
        listing: ClientListing,
        done: oneshot::Sender<()>,
    },
    /// Drops what servers list for the clients of these profiles.
    ForgetClients(Vec<ClientProfile>),
    /// Drops listings of supervisors older than `min_generation`.
    Expire {
        server: ServerName,
        min_generation: u64,
    },
}

/// What a server lists for the clients of a profile.
#[derive(Clone, Debug)]
pub(crate) struct ClientListing {
    pub(crate) server: ServerName,
    pub(crate) profile: ClientProfile,
    pub(crate) listing: Arc<ServerListing>,
    /// What it lists for all others. A later one replaces this listing, too, until the server is asked
    /// again.
    pub(crate) common: Arc<ServerListing>,
}

/// The part of the configuration that shapes the catalog.
#[derive(Clone, Debug, Default)]
pub(crate) struct CatalogConfig {
    pub(crate) style: NameStyle,
    /// All server names, from which aliases are derived.
    pub(crate) names: Vec<ServerName>,
    /// Enabled servers, each with the oldest supervisor generation whose listing is current.
    pub(crate) active: BTreeMap<ServerName, u64>,
    /// The newest supervisor generation this configuration covers. A later supervisor may publish
    /// before its own configuration arrives, and that listing must not be lost.
    pub(crate) max_generation: u64,
}

impl CatalogConfig {
    /// Returns whether a supervisor's listing is current.
    fn is_current(&self, server: &ServerName, generation: u64) -> bool {
        match self.active.get(server) {
            Some(min_generation) => generation >= *min_generation,
            None => generation > self.max_generation,
        }
    }
}

impl Publisher {
    pub(crate) fn start(tasks: &TaskTracker) -> (Self, watch::Receiver<Arc<Catalog>>) {
        let (messages, inbox) = mpsc::unbounded_channel();
        let (catalog, published) = watch::channel(Arc::new(Catalog::default()));
        tasks.spawn(run(inbox, catalog));
        (Self(messages), published)
    }

    pub(crate) fn configure(&self, config: CatalogConfig) {
        let _ = self.0.send(PublisherMessage::Configure(config));
    }

    /// Adds reviews of definitions to the catalog and waits until a catalog with them is out.
    pub(crate) async fn set_reviews(&self, reviews: Arc<DefinitionReviews>) {
        let (done, published) = oneshot::channel();
        let _ = self.0.send(PublisherMessage::Review { reviews, done });
        let _ = published.await;
    }

    /// Publishes a listing and waits until a catalog that includes it is out.
    pub(crate) async fn publish_listing(
        &self,
        server: ServerName,
        generation: u64,
        listing: Arc<ServerListing>,
    ) {
        let (done, published) = oneshot::channel();
        let _ = self.0.send(PublisherMessage::Listing {
            server,
            generation,
            listing,
            done,
        });
        let _ = published.await;
    }

    /// Publishes what a server lists for the clients of a profile, and waits until a catalog that includes
    /// it is out.
    pub(crate) async fn publish_client_listing(&self, listing: ClientListing) {
        let (done, published) = oneshot::channel();
        let _ = self
            .0
            .send(PublisherMessage::ClientListing { listing, done });
        let _ = published.await;
    }

    /// Drops what servers list for the clients of these profiles.
    pub(crate) fn forget_clients(&self, profiles: Vec<ClientProfile>) {
        let _ = self.0.send(PublisherMessage::ForgetClients(profiles));
    }

    /// Drops the server's listing if its supervisor is older than `min_generation`.
    pub(crate) fn expire_before(&self, server: ServerName, min_generation: u64) {
        let _ = self.0.send(PublisherMessage::Expire {
            server,
            min_generation,
        });
    }
}

/// What catalogs are built from.
#[derive(Debug, Default)]
struct CatalogInputs {
    config: CatalogConfig,
    reviews: Arc<DefinitionReviews>,
    listings: BTreeMap<ServerName, (u64, Arc<ServerListing>)>,
    client_listings: BTreeMap<(ServerName, ClientProfile), ClientListing>,
}

/// Runs until the last [`Publisher`] is dropped.
async fn run(
    mut inbox: mpsc::UnboundedReceiver<PublisherMessage>,
    catalog: watch::Sender<Arc<Catalog>>,
) {
    let mut inputs = CatalogInputs::default();
    let mut batch = Vec::new();
    // Batching bounds the number of catalogs built while many servers start.
    while inbox.recv_many(&mut batch, 1024).await > 0 {
        let mut done_senders = Vec::new();
        for message in batch.drain(..) {
            done_senders.extend(inputs.apply(message));
        }
        let generation = catalog.borrow().generation() + 1;
        let next = inputs.build_catalog(generation);
        warn_renamed_tools(&catalog.borrow(), &next);
        catalog.send_replace(Arc::new(next));
        for done in done_senders {
            let _ = done.send(());
        }
    }
}

impl CatalogInputs {
    /// Applies a message; returns where to report that a catalog includes it.
    fn apply(&mut self, message: PublisherMessage) -> Option<oneshot::Sender<()>> {
        match message {
            PublisherMessage::Configure(config) => self.config = config,
            PublisherMessage::Review { reviews, done } => {
                self.reviews = reviews;
                return Some(done);
            }
            PublisherMessage::Expire {
                server,
                min_generation,
            } => {
                let stored = self.listings.get(&server);
                if stored.is_some_and(|(generation, _)| *generation < min_generation) {
                    self.listings.remove(&server);
                }
            }
            PublisherMessage::Listing {
                server,
                generation,
                listing,
                done,
            } => {
                let stored = self.listings.get(&server);
                // A server that was only restarted keeps what it lists for clients.
                let is_same =
                    stored.is_some_and(|(of, stored)| *of == generation && *stored == listing);
                if !is_same && stored.is_none_or(|(stored, _)| *stored <= generation) {
                    self.listings.insert(server, (generation, listing));
                }
                return Some(done);
            }
            PublisherMessage::ClientListing { listing, done } => {
                let key = (listing.server.clone(), listing.profile.clone());
                self.client_listings.insert(key, listing);
                return Some(done);
            }
            PublisherMessage::ForgetClients(profiles) => {
                self.client_listings
                    .retain(|(_, profile), _| !profiles.contains(profile));
            }
        }
        None
    }

    fn build_catalog(&mut self, generation: u64) -> Catalog {
        let config = &self.config;
        self.listings
            .retain(|server, (generation, _)| config.is_current(server, *generation));
        let listings = &self.listings;
        self.client_listings.retain(|(server, _), client| {
            let common = listings.get(server);
            common.is_some_and(|(_, common)| Arc::ptr_eq(common, &client.common))
        });
        let mut client_listings = ClientListings::new();
        for ((server, profile), client) in &self.client_listings {
            let of_profile = client_listings.entry(profile.clone()).or_default();
            of_profile.insert(server.clone(), Arc::clone(&client.listing));
        }
        let current = listings
            .iter()
            .map(|(server, (_, listing))| (server.clone(), Arc::clone(listing)))
            .collect();
        Catalog::build(generation, config.style, &config.names, current)
            .with_reviews(&self.reviews)
            .with_client_listings(client_listings)
    }
}

fn warn_renamed_tools(before: &Catalog, after: &Catalog) {
    for renamed in after.renamed_tools() {
        if !before.renamed_tools().contains(renamed) {
            tracing::warn!(
                tool = %renamed.id, alias = %renamed.alias, name = %renamed.plain,
                "tool name is taken or too long; using alias"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listing_published_before_its_configuration_is_kept() {
        let tasks = TaskTracker::new();
        let (publisher, catalogs) = Publisher::start(&tasks);
        let server = ServerName::parse("s").unwrap();
        let is_listed =
            |catalogs: &watch::Receiver<Arc<Catalog>>| catalogs.borrow().listing(&server).is_some();
        publisher
            .publish_listing(server.clone(), 1, Arc::new(ServerListing::default()))
            .await;
        assert!(
            is_listed(&catalogs),
            "supervisor published before the configuration arrived"
        );
        let config = |active: &[u64], max_generation| CatalogConfig {
            names: vec![server.clone()],
            active: active
                .iter()
                .map(|min_generation| (server.clone(), *min_generation))
                .collect(),
            max_generation,
            ..CatalogConfig::default()
        };
        let other = ServerName::parse("other").unwrap();
        let flush = async || {
            publisher
                .publish_listing(other.clone(), 99, Arc::new(ServerListing::default()))
                .await
        };
        publisher.configure(config(&[1], 1));
        flush().await;
        assert!(is_listed(&catalogs));
        publisher.configure(config(&[], 1));
        flush().await;
        assert!(!is_listed(&catalogs), "a removed server has no listing");
        publisher
            .publish_listing(server.clone(), 1, Arc::new(ServerListing::default()))
            .await;
        assert!(
            !is_listed(&catalogs),
            "a late listing of its old supervisor is ignored"
        );
    }
}
