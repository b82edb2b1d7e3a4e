//! Tasks that are due while a connection is served: checks for idleness and health, and refreshes of
//! the listing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolgate_core::catalog::ServerListing;
use toolgate_core::config::ServerConnection;

use super::{EndReason, Supervisor};
use crate::lane::Lane;
use crate::maintenance_schedule::{MaintenanceSchedule, MaintenanceTask};
use crate::transport::RequestError;

const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PING_TIMEOUT: Duration = Duration::from_secs(5);
const MIN_PING_TIMEOUT: Duration = Duration::from_millis(200);
/// Consecutive unanswered pings after which the connection counts as lost.
const MAX_MISSED_PINGS: u32 = 2;

impl Supervisor {
    /// Performs a due task; returns the reason if the connection must end.
    pub(super) async fn perform(
        &self,
        task: MaintenanceTask,
        lane: &Lane,
        listing: &mut Arc<ServerListing>,
        missed_pings: &mut u32,
        schedule: &mut MaintenanceSchedule,
    ) -> Option<EndReason> {
        match task {
            MaintenanceTask::CheckIdle => {
                let after = self.server.tuning.idle_stop?;
                (self.activity.idle_for() >= after).then_some(EndReason::Idle)
            }
            MaintenanceTask::CheckHealth => match self.check_health(lane, missed_pings).await {
                Some(reason) => Some(EndReason::Lost(reason)),
                None if *missed_pings == 0 => {
                    self.report_responding(listing);
                    None
                }
                None => None,
            },
            MaintenanceTask::RefreshLists => {
                match timeout(LIST_TIMEOUT, lane.fetch_listing(Some(listing))).await {
                    Ok(Ok(new)) => {
                        if new != **listing {
                            *listing = Arc::new(new);
                            self.publisher
                                .publish_listing(
                                    self.server.name.clone(),
                                    self.generation,
                                    Arc::clone(listing),
                                )
                                .await;
                            self.log_problems(listing);
                        }
                        self.report_responding(listing);
                        schedule.note_listing(listing);
                        None
                    }
                    Ok(Err(error)) if is_transient(&error) => {
                        self.report_degraded(&format!("refreshing its lists failed: {error}"));
                        None
                    }
                    Ok(Err(error)) => Some(EndReason::Lost(format!(
                        "refreshing its lists failed: {error}"
                    ))),
                    Err(_) if self.is_busy() => {
                        self.report_degraded("server does not respond while calls are in flight");
                        None
                    }
                    Err(_) => Some(EndReason::Lost("server does not respond".to_owned())),
                }
            }
        }
    }

    /// Pings the server; returns the reason if the connection must be dropped.
    async fn check_health(&self, lane: &Lane, missed_pings: &mut u32) -> Option<String> {
        let ping_timeout = self
            .intervals
            .health
            .clamp(MIN_PING_TIMEOUT, MAX_PING_TIMEOUT);
        let reason = match timeout(ping_timeout, lane.ping()).await {
            Ok(Ok(())) => {
                *missed_pings = 0;
                return None;
            }
            Ok(Err(error)) if is_transient(&error) => error.to_string(),
            Ok(Err(error)) => return Some(error.to_string()),
            Err(_) => "server does not answer pings".to_owned(),
        };
        *missed_pings += 1;
        if *missed_pings >= MAX_MISSED_PINGS && !self.is_busy() {
            return Some(reason);
        }
        self.report_degraded(&reason);
        None
    }

    /// Returns whether missing responses are excusable: a child process may be single-threaded and
    /// answer nothing else while it handles a call.
    fn is_busy(&self) -> bool {
        matches!(self.server.connection, ServerConnection::Stdio(_))
            && self.activity.in_flight() > 0
    }
}

/// Returns whether a later request may succeed on the same connection.
fn is_transient(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Status {
            status: 429 | 500..=599,
            ..
        }
    )
}
