//! One record, and questions about many.

use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use uuid::Uuid;

use crate::call::{Request, ToolCall};
use crate::caller::Caller;

/// What is known of one attempt to call a tool.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Ordered by time.
    pub id: String,
    pub request_id: String,
    pub parent_id: Option<String>,
    pub run_id: Option<String>,
    /// The name of the caller's key; none for callers who need none.
    pub caller: Option<String>,
    pub origin: String,
    /// The tool as the caller spelled it.
    pub name: String,
    pub server: Option<String>,
    pub tool: Option<String>,
    /// The server that was asked for, where a fallback ran.
    pub instead_of: Option<String>,
    pub arguments: Option<Box<RawValue>>,
    /// `allow`, `manual`, `ask` or `deny`.
    pub verdict: Option<String>,
    /// The config key that decided.
    pub rule: Option<String>,
    pub approval: Option<String>,
    /// What the scanner found.
    pub warnings: Vec<String>,
    /// `open`, `ok`, `tool_error`, a word for what went wrong, or `interrupted`.
    pub outcome: String,
    pub error: Option<String>,
    pub result: Option<Box<RawValue>>,
    pub bytes_in: i64,
    pub bytes_out: i64,
    /// Milliseconds since 1970.
    pub started_at: i64,
    pub duration_us: Option<i64>,
    /// In millionths of a dollar.
    pub cost_micro_usd: i64,
    /// Whether it counts against the budget of the caller's key.
    pub charged: bool,
    pub cached: bool,
    /// Of a script: how many calls it made, which bound stopped it, what it saved.
    pub script: Option<Value>,
}

/// Which records to find.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub server: Option<String>,
    pub tool: Option<String>,
    pub caller: Option<String>,
    pub outcome: Option<String>,
    pub request_id: Option<String>,
    pub run_id: Option<String>,
    /// Milliseconds since 1970.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// Only records before this id: the last one of the page before.
    pub before: Option<String>,
    pub limit: usize,
}

/// Records, the newest first.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub records: Vec<Record>,
    /// Whether there are more.
    pub more: bool,
}

impl Record {
    pub(crate) fn new(caller: &Caller, call: &ToolCall, request_id: &str) -> Self {
        let Request { parent, run, .. } = &*call.request;
        let arguments = call
            .arguments
            .as_ref()
            .ok()
            .map(|arguments| arguments.raw());
        let id = Uuid::now_v7();
        Self {
            id: id.to_string(),
            request_id: request_id.to_owned(),
            parent_id: parent.clone(),
            run_id: run.clone(),
            caller: caller.key().map(|key| key.to_string()),
            origin: caller.origin.as_str().to_owned(),
            name: call.name.chars().take(256).collect(),
            bytes_in: arguments.map_or(0, |raw| length(raw.get())),
            arguments: arguments.map(ToOwned::to_owned),
            outcome: "open".to_owned(),
            started_at: creation_millis(id),
            ..Self::default()
        }
    }

    pub(crate) fn about(&mut self, tool: &ToolId) {
        self.server = Some(tool.server.to_string());
        self.tool = Some(tool.tool.to_string());
    }

    /// The tool that it is about, as far as it was found.
    pub(crate) fn tool_id(&self) -> Option<ToolId> {
        let server = self.server.as_deref()?;
        let own = ServerName::own();
        Some(ToolId {
            server: match server == own.as_str() {
                true => own,
                false => ServerName::parse(server).ok()?,
            },
            tool: ToolName::new(self.tool.as_deref()?),
        })
    }

    pub(crate) fn tool_id_or_own(&self) -> ToolId {
        self.tool_id().unwrap_or_else(|| ToolId {
            server: ServerName::own(),
            tool: ToolName::new(&self.name),
        })
    }
}

/// Time at which a version 7 id was made, in milliseconds since 1970.
///
/// Queries by time compare ids, so a record must not read the clock a second time: across the end
/// of a millisecond its `started_at` and its id would disagree.
fn creation_millis(id: Uuid) -> i64 {
    let bytes = id.as_bytes();
    let mut millis = [0; 8];
    millis[2..].copy_from_slice(&bytes[..6]);
    i64::from_be_bytes(millis)
}

pub(crate) fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_the_one_in_the_id() {
        // Long enough to cross the end of a millisecond many times.
        for _ in 0..10_000 {
            let call = ToolCall::parse("zoo_echo", "{}");
            let record = Record::new(&Caller::library(), &call, "r");
            let (seconds, nanos) = Uuid::parse_str(&record.id)
                .unwrap()
                .get_timestamp()
                .unwrap()
                .to_unix();
            let millis = seconds * 1000 + u64::from(nanos / 1_000_000);
            assert_eq!(record.started_at.unsigned_abs(), millis);
        }
    }
}
