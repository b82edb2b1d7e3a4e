//! A request that was never sent is not charged and uses up no approval, however it ends. This holds
//! for tool calls, for requests about resources, and for the built-in tool that reads them.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use tokio_util::task::TaskTracker;
use toolgate::approval::{ApprovalScope, ApprovalState};
use toolgate::audit::{AuditKind, AuditQuery};
use toolgate::{CallError, Caller, Gateway, RequestContext, ToolCall};
use toolgate_core::ServerName;
use toolgate_core::policy::ServerItem;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_testkit::{HttpZoo, eventually};

use crate::approval_support::{approval_by_id, approve, hello, wait_for_approval_state};
use crate::support::{
    WAIT_TIMEOUT, call_as, http_server, start_settled, stdio_zoo, stop, with_key,
};

/// `alice` may make one call, and each request needs an approval.
const RULES: &str = r#"
[keys.alice]
key = "alice-key-0123456789abcdef"
budget = { calls = 1 }
[[permissions.rules]]
tool = "zoo.say"
action = "ask"
[[permissions.rules]]
resource = "zoo:zoo://text"
action = "ask"
"#;

#[derive(Clone, Copy, Debug)]
enum Way {
    ToolCall,
    ResourceRead,
    ResourceTool,
}

const WAYS: [Way; 3] = [Way::ToolCall, Way::ResourceRead, Way::ResourceTool];

impl Way {
    /// Makes the request as `alice`.
    async fn send(self, gateway: &Gateway) -> Result<(), CallError> {
        let alice = with_key("alice");
        let uri = "zoo://text";
        match self {
            Self::ToolCall => call_as(gateway, &alice, "zoo_say", &hello())
                .await
                .map(drop),
            Self::ResourceTool => {
                let arguments = json!({"uri": uri, "server": "zoo"});
                let read = call_as(gateway, &alice, "ReadMcpResource", &arguments).await;
                read.map(|outcome| assert!(!outcome.result.is_error(), "{outcome:?}"))
            }
            Self::ResourceRead => {
                let server = ServerName::parse("zoo").unwrap();
                let item = ServerItem::Resource {
                    server: &server,
                    uri,
                };
                let upstream = UpstreamRequest {
                    method: "resources/read",
                    params: Object::new().text("uri", uri),
                    ..UpstreamRequest::default()
                };
                let (resources, context) = (gateway.resources(), RequestContext::default());
                let read = resources.send_request(&alice, &context, item, upstream);
                read.await.map(drop)
            }
        }
    }

    /// Requests an approval, gives it and returns its id.
    async fn approve(self, gateway: &Gateway) -> String {
        let id = match self.send(gateway).await {
            Err(CallError::NeedsApproval { id, .. }) => id,
            answer => panic!("{self:?} must need an approval: {answer:?}"),
        };
        approve(gateway, &id, ApprovalScope::Once).await;
        id
    }

    /// Makes the request and drops it once its record is opened.
    async fn drop_when_opened(self, gateway: &Gateway) {
        let mut events = gateway.audit().subscribe();
        let mut request = Box::pin(self.send(gateway));
        loop {
            assert!(futures_util::poll!(&mut request).is_pending(), "{self:?}");
            if events
                .try_recv()
                .is_ok_and(|record| record.outcome == "open")
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Asserts that the request can still be made, once, with the same approval, and that only this
    /// one was charged.
    async fn assert_untouched(self, gateway: &Gateway, approval: &str) {
        wait_for_approval_state(gateway, approval, ApprovalState::Approved).await;
        // What was in its way may take a moment to go away.
        eventually("the request succeeds", WAIT_TIMEOUT, async || {
            match self.send(gateway).await {
                Ok(()) => Some(()),
                Err(CallError::Unrecorded | CallError::Unavailable(_)) => None,
                Err(CallError::Server { .. }) => None,
                Err(error) => panic!("{self:?}: {error}"),
            }
        })
        .await;
        let used = approval_by_id(gateway, approval).await;
        assert_eq!(used.state, ApprovalState::Done, "{self:?}");
        let next = self.approve(gateway).await;
        let refused = self.send(gateway).await.unwrap_err();
        assert!(
            refused.to_string().contains("budget"),
            "{self:?}: {refused}"
        );
        wait_for_approval_state(gateway, &next, ApprovalState::Approved).await;
        let query = AuditQuery {
            caller: Some("alice".to_owned()),
            limit: 100,
            ..AuditQuery::default()
        };
        let charged = eventually("all records are written", WAIT_TIMEOUT, async || {
            let mut records = gateway.audit().query(&query).await.unwrap().records;
            records.retain(|record| record.kind != AuditKind::Approval);
            let last = records.first().map(|record| record.outcome.as_str());
            (last == Some("limited")).then(|| {
                records.retain(|record| record.charged);
                records
            })
        })
        .await;
        let outcomes: Vec<&str> = charged.iter().map(|r| r.outcome.as_str()).collect();
        assert_eq!(outcomes, ["ok"], "{self:?}");
    }
}

/// A second sink that accepts nothing until it is opened: a pipe without a reader.
struct StalledSink {
    path: PathBuf,
    _folder: TempDir,
}

impl StalledSink {
    fn create() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        Self {
            path,
            _folder: folder,
        }
    }

    fn toml(&self) -> String {
        format!(
            "[audit.sink]\nfile = {:?}\n",
            self.path.display().to_string()
        )
    }

    /// Lets the gateway write while the returned file is open.
    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).open(&self.path).unwrap()
    }
}

impl Drop for StalledSink {
    fn drop(&mut self) {
        // A failed test must not leave a thread that waits for a reader.
        drop(self.open());
    }
}

#[tokio::test]
async fn request_dropped_while_it_is_being_recorded() {
    for way in WAYS {
        let sink = StalledSink::create();
        let gateway = start_settled(&(stdio_zoo("zoo", &[]) + RULES + &sink.toml())).await;
        let id = way.approve(&gateway).await;
        way.drop_when_opened(&gateway).await;
        let _open = sink.open();
        way.assert_untouched(&gateway, &id).await;
        stop(gateway).await;
    }
}

#[tokio::test]
async fn request_that_cannot_be_recorded() {
    for way in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let file = missing.join("trail.jsonl").display().to_string();
        let sink = format!("[audit.sink]\nfile = {file:?}\n");
        let gateway = start_settled(&(stdio_zoo("zoo", &[]) + RULES + &sink)).await;
        let id = way.approve(&gateway).await;
        let refused = way.send(&gateway).await.unwrap_err();
        assert!(
            matches!(refused, CallError::Unrecorded),
            "{way:?}: {refused}"
        );
        wait_for_approval_state(&gateway, &id, ApprovalState::Approved).await;
        std::fs::create_dir(&missing).unwrap();
        way.assert_untouched(&gateway, &id).await;
        stop(gateway).await;
    }
}

#[tokio::test]
async fn request_dropped_while_it_waits_for_its_server() {
    for way in WAYS {
        let toml = stdio_zoo("zoo", &[]) + "max_in_flight = 1\n" + RULES;
        let gateway = start_settled(&toml).await;
        let id = way.approve(&gateway).await;
        let (tasks, other) = (TaskTracker::new(), gateway.clone());
        let long = ToolCall::parse("zoo_sleep", r#"{"ms": 600000}"#);
        let long = tasks.spawn(async move { other.call(&Caller::library(), long).await });
        eventually("a call is in flight", WAIT_TIMEOUT, async || {
            let metrics = gateway.metrics();
            metrics
                .contains("in_flight{server=\"zoo\"} 1")
                .then_some(())
        })
        .await;
        way.drop_when_opened(&gateway).await;
        long.abort();
        way.assert_untouched(&gateway, &id).await;
        stop(gateway).await;
    }
}

#[tokio::test]
async fn request_to_a_server_that_cannot_be_reached() {
    for way in WAYS {
        let mut zoo = HttpZoo::start(&[]);
        let gateway = start_settled(&(http_server("zoo", &zoo.url()) + RULES)).await;
        let id = way.approve(&gateway).await;
        zoo.kill();
        way.send(&gateway).await.unwrap_err();
        zoo.restart();
        way.assert_untouched(&gateway, &id).await;
        stop(gateway).await;
    }
}
