//! Publishes the state of a server to subscribers and the log.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use toolgate_core::catalog::{ItemOutcome, ListingProblem, ServerListing};
use toolgate_core::config::ServerConnection;
use toolgate_core::secret::mask_arguments;

use super::{ConnectFailure, Supervisor};
use crate::lane::Lane;
use crate::status::{ServerState, ServerStatus};

impl Supervisor {
    /// Logs what is started or connected to.
    pub(super) fn report_starting(&self) {
        let server = &self.server.name;
        match &self.server.connection {
            ServerConnection::Stdio(stdio) => {
                let args = mask_arguments(&stdio.args).join(" ");
                let command = self.masker.mask(&format!("{} {args}", stdio.command));
                tracing::info!(%server, command = command.trim_end(), "starting server");
            }
            ServerConnection::Http(http) => {
                tracing::info!(%server, url = http.masked_url(), "connecting to server");
            }
            ServerConnection::InProcess => {}
        }
    }

    pub(super) fn report_connected(&self, lane: &Lane, listing: &ServerListing) {
        let session = lane.session();
        tracing::info!(
            server = %self.server.name, version = session.version, tools = listing.tools.len(),
            resources = listing.resources.len(), prompts = listing.prompts.len(), "server connected"
        );
        self.log_problems(listing);
        self.update_status(|status| status.session = Some(session.clone()));
        self.report_responding(listing);
    }

    pub(super) fn log_problems(&self, listing: &ServerListing) {
        let is_left_out = |problem: &&ListingProblem| problem.outcome == ItemOutcome::LeftOut;
        for problem in listing.problems.iter().filter(is_left_out) {
            tracing::warn!(
                server = %self.server.name, item = problem.item, reason = %problem.reason,
                "skipping invalid item in listing"
            );
        }
        if listing.repaired() > 0 {
            tracing::info!(
                server = %self.server.name, items = listing.repaired(),
                "repaired malformed definitions; see the server's problems"
            );
        }
        for problem in self.server.find_list_problems(Some(listing)) {
            tracing::warn!(
                server = %self.server.name, name = problem.name, reason = %problem.reason,
                "tool list of the server has no effect as written"
            );
        }
    }

    /// Marks a responding server as healthy, or as degraded if one of its lists failed.
    pub(super) fn report_responding(&self, listing: &ServerListing) {
        let reason =
            (!listing.failures.is_empty()).then(|| self.masker.mask(&listing.failures.join("; ")));
        self.update_status(|status| {
            status.state = match reason {
                Some(_) => ServerState::Degraded,
                None => ServerState::Healthy,
            };
            status.reason = reason.clone();
            status.next_try_at = None;
        });
    }

    /// Marks the server as connected but impaired.
    pub(super) fn report_degraded(&self, reason: &str) {
        let reason = self.masker.mask(reason);
        if self.is_new_reason(&reason) {
            tracing::warn!(server = %self.server.name, %reason, "server is impaired");
        }
        self.update_status(|status| {
            status.state = ServerState::Degraded;
            status.reason = Some(reason.clone());
        });
    }

    pub(super) fn report_failure(&self, failure: &ConnectFailure, delay: Duration) {
        let reason = self.masker.mask(&failure.reason);
        let server = &self.server.name;
        let state = failure.state.as_str();
        // Repeated failures with the same reason would flood the log.
        if self.is_new_reason(&reason) {
            tracing::warn!(%server, state, %reason, "server is not available");
        } else {
            tracing::debug!(%server, state, %reason, "server is still not available");
        }
        self.update_status(|status| {
            status.state = failure.state;
            status.reason = Some(reason.clone());
            status.last_error = Some(reason.clone());
            status.next_try_at =
                (failure.state != ServerState::Error).then(|| SystemTime::now() + delay);
        });
    }

    fn is_new_reason(&self, reason: &str) -> bool {
        self.outputs.status.borrow().reason.as_deref() != Some(reason)
    }

    /// Publishes a changed status and notifies subscribers.
    pub(super) fn update_status(&self, change: impl Fn(&mut ServerStatus)) {
        self.outputs.status.send_modify(|status| {
            let mut next = ServerStatus::clone(status);
            let before = next.state;
            change(&mut next);
            if next.state != before {
                next.since = SystemTime::now();
            }
            *status = Arc::new(next);
        });
        self.outputs.changes.send_replace(());
    }
}
