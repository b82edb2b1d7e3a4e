//! `subscriptions/listen`: the notifications that a modern client has requested.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream, StreamExt as _};
use indexmap::IndexMap;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{self, Object};
use toolgate_mcp::registry::ResourceSubscription;

use super::era_adapter::{Caching, adapt_result};
use super::list_changes::{ListChanges, PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED};
use super::message_queue::{MessageReceiver, message_queue};
use super::method::RequestedNotifications;
use super::request::RequestHandler;
use super::resource_subscriptions::{RESOURCE_UPDATED, UpdateSender};
use super::tasks::{TaskSubscriber, TaskView};
use crate::concurrent::run_in_order;

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Resource subscriptions set up concurrently.
const MAX_CONCURRENT_SUBSCRIBES: usize = 16;
/// Resources per listen stream.
const MAX_SUBSCRIBED_RESOURCES: usize = 1000;
/// Tasks per listen stream.
const MAX_SUBSCRIBED_TASKS: usize = 256;
const TASK_STATUS: &str = "notifications/tasks";

/// The notifications of a `subscriptions/listen` request, until the client disconnects.
#[derive(Debug)]
pub(super) struct ListenStream {
    id: Box<RawValue>,
    requested: RequestedNotifications,
    lists: ListChanges,
    updates: MessageReceiver,
    /// Subscribed resources, by the URIs the client uses.
    resources: Vec<(String, ResourceSubscription)>,
    tasks: SubscribedTasks,
}

/// The tasks whose changes the client is told of.
struct SubscribedTasks {
    ids: Vec<String>,
    /// Dropping it ends the subscriptions.
    _subscriber: Arc<TaskSubscriber>,
}

impl ListenStream {
    pub(super) async fn open(
        handler: &RequestHandler,
        id: Box<RawValue>,
        requested: RequestedNotifications,
    ) -> Self {
        let (sender, updates) = message_queue(handler.server.gateway(), &handler.caller);
        let task_subscriber: Arc<TaskSubscriber> = Arc::new({
            let (id, sender) = (id.clone(), Arc::clone(&sender));
            move |view: &TaskView| {
                let state = view.to_object(Era::Modern);
                let params = subscription_meta(&id).merge(&state);
                // Dropped if the buffer is full: the client asks for the state anyway.
                sender(jsonrpc::notification(TASK_STATUS, &params));
            }
        });
        let update_sender: UpdateSender = Arc::new({
            let id = id.clone();
            move |params: &RawValue| {
                // Dropped if the buffer is full: a client that far behind has to reread anyway.
                sender(update_notification(&id, params));
            }
        });
        let uris = requested.resource_subscriptions.iter();
        let subscribing: Vec<BoxFuture<'_, _>> = uris
            .take(MAX_SUBSCRIBED_RESOURCES)
            .map(|uri| subscribe_uri(handler, uri, Arc::clone(&update_sender)).boxed())
            .collect();
        // Resources that cannot be subscribed to are left out of the acknowledgement.
        let resources = run_in_order(subscribing, MAX_CONCURRENT_SUBSCRIBES).await;
        let resources = resources.into_iter().flatten().collect();
        let mut task_ids = Vec::new();
        for task in requested.task_ids.iter().take(MAX_SUBSCRIBED_TASKS) {
            // Others do not exist for the caller.
            if handler
                .subscribe_task(task, &task_subscriber)
                .await
                .is_some()
            {
                task_ids.push(task.clone());
            }
        }
        Self {
            id,
            requested,
            lists: handler.list_changes(),
            updates,
            resources,
            tasks: SubscribedTasks {
                ids: task_ids,
                _subscriber: task_subscriber,
            },
        }
    }

    /// Streams the acknowledgement, then the notifications until `stopping` is cancelled, then the
    /// result of the request.
    pub(super) fn into_messages(
        self,
        stopping: CancellationToken,
    ) -> impl Stream<Item = String> + Send {
        let acknowledgement = self.acknowledgement();
        let result = adapt_result(jsonrpc::empty_object(), Era::Modern, Caching::None);
        let result = jsonrpc::response(&self.id, &Ok(result));
        let notifications = stream::unfold(self, |mut listen| async move {
            let messages = listen.next().await?;
            Some((stream::iter(messages), listen))
        });
        let notifications = notifications
            .flatten()
            .take_until(stopping.cancelled_owned());
        stream::iter([acknowledgement])
            .chain(notifications)
            .chain(stream::iter([result]))
    }

    /// Returns the first message of the stream, which lists the accepted notifications.
    fn acknowledgement(&self) -> String {
        let mut granted = serde_json::json!({
            "toolsListChanged": self.requested.tools_list_changed,
            "promptsListChanged": self.requested.prompts_list_changed,
            "resourcesListChanged": self.requested.resources_list_changed,
        });
        if !self.resources.is_empty() {
            let uris = self.resources.iter().map(|(uri, _)| uri.as_str());
            granted["resourceSubscriptions"] = uris.collect();
        }
        if !self.tasks.ids.is_empty() {
            granted["taskIds"] = self.tasks.ids.iter().map(String::as_str).collect();
        }
        let params = subscription_meta(&self.id).raw("notifications", &granted.to_string());
        jsonrpc::notification("notifications/subscriptions/acknowledged", &params)
    }

    /// Waits for the next messages; `None` once the stream has ended.
    async fn next(&mut self) -> Option<Vec<String>> {
        tokio::select! {
            Some(update) = self.updates.recv() => Some(vec![update]),
            changed = self.lists.next() => {
                let methods = changed?
                    .into_iter()
                    .filter(|method| self.requested.includes(method));
                let encode = |method| jsonrpc::notification(method, &subscription_meta(&self.id));
                Some(methods.map(encode).collect())
            }
        }
    }
}

impl fmt::Debug for SubscribedTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SubscribedTasks").field(&self.ids).finish()
    }
}

async fn subscribe_uri(
    handler: &RequestHandler,
    uri: &str,
    sender: UpdateSender,
) -> Option<(String, ResourceSubscription)> {
    let subscription = handler.subscribe_resource(uri, sender).await.ok()?;
    Some((uri.to_owned(), subscription))
}

impl RequestedNotifications {
    fn includes(&self, method: &str) -> bool {
        match method {
            TOOLS_CHANGED => self.tools_list_changed,
            PROMPTS_CHANGED => self.prompts_list_changed,
            RESOURCES_CHANGED => self.resources_list_changed,
            _ => false,
        }
    }
}

/// Encodes a resource update notification for a subscription.
fn update_notification(id: &RawValue, params: &RawValue) -> String {
    let read = |raw: &RawValue| {
        serde_json::from_str::<IndexMap<String, Box<RawValue>>>(raw.get()).unwrap_or_default()
    };
    let mut members = read(params);
    let mut meta = members
        .get("_meta")
        .map(|meta| read(meta))
        .unwrap_or_default();
    meta.insert(SUBSCRIPTION_ID.to_owned(), id.to_owned());
    if let Ok(meta) = to_raw_value(&meta) {
        members.insert("_meta".to_owned(), meta);
    }
    let params = members.iter().fold(Object::new(), |params, (name, value)| {
        params.raw(name, value.get())
    });
    jsonrpc::notification(RESOURCE_UPDATED, &params)
}

fn subscription_meta(id: &RawValue) -> Object {
    let meta = Object::new().raw(SUBSCRIPTION_ID, id.get());
    Object::new().raw("_meta", &meta.to_string())
}
