//! Posts messages that expect no response.

use std::time::Duration;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::Client;
use tokio_util::task::TaskTracker;
use url::Url;

use super::errors::root_cause;

/// Posts messages that expect no response, in the background.
pub(super) struct MessagePoster {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) tasks: TaskTracker,
}

impl MessagePoster {
    pub(super) fn post(self, message: String) {
        let request = self
            .client
            .post(self.url)
            .headers(self.headers)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .timeout(Duration::from_secs(10))
            .body(message);
        self.tasks.spawn(async move {
            if let Err(error) = request.send().await {
                tracing::debug!(
                    error = root_cause(&error),
                    "failed to post a message to the server"
                );
            }
        });
    }
}
