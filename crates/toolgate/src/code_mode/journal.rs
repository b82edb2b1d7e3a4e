//! Recorded calls of a suspended script. To resume, the script runs again from its first line and its
//! earlier calls are answered from here. Scripts have no clock and no randomness, so they reach the same
//! point again.

use std::time::SystemTime;

use http::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::ServerName;
use toolgate_core::hash::sha256_hex;
use toolgate_core::scope::Filters;
use toolgate_script::protocol::{ScriptCall, ScriptCallResult};
use uuid::Uuid;

use super::ExecuteRequest;
use crate::store::unix_millis;

/// A call and its result.
#[derive(Clone, Debug)]
pub(super) struct ScriptStep {
    server: String,
    tool: String,
    arguments: Box<RawValue>,
    answer: ScriptCallResult,
}

/// Identifies a suspended script when the same call is made again.
#[derive(Clone, Debug)]
pub(super) struct ScriptKey {
    pub(super) caller: String,
    pub(super) session: String,
    /// Id the model gave the call; empty if there is none.
    pub(super) call: String,
    /// Hash of the code.
    pub(super) digest: String,
    /// Agent run the call belongs to; empty if there is none.
    pub(super) run: String,
    /// Hash of the request's filters and forwarded headers, which are constant within a run.
    pub(super) context: String,
    /// The same hash as earlier versions computed it, so that their scripts can still be resumed.
    pub(super) old_context: String,
}

/// Stored state of a script that was suspended.
#[derive(Clone, Debug)]
pub(super) struct StoredScript {
    pub(super) id: String,
    pub(super) state: ScriptState,
    /// Recorded calls; `None` for calls not made yet.
    pub(super) steps: Vec<Option<ScriptStep>>,
    /// Expiry in milliseconds since the Unix epoch.
    pub(super) expires_at: i64,
}

/// State of a stored script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptState {
    Waiting,
    /// Being resumed, or was when the gateway stopped.
    Running,
    Done,
}

impl ScriptState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Waiting, Self::Running, Self::Done];
        all.into_iter().find(|state| state.as_str() == name)
    }
}

impl ScriptKey {
    pub(super) fn new(request: &ExecuteRequest<'_>) -> Self {
        let ExecuteRequest {
            caller,
            filters,
            forwarded_headers: headers,
            ..
        } = request;
        Self {
            caller: caller.key().map(ToString::to_string).unwrap_or_default(),
            session: caller.session().unwrap_or_default().to_owned(),
            call: request.call.unwrap_or_default().to_owned(),
            digest: sha256_hex(request.code),
            run: request.run.unwrap_or_default().to_owned(),
            context: hash_context(filters, headers),
            old_context: sha256_hex(format!("{filters:?} {headers:?}")),
        }
    }

    /// Returns whether the script belongs to an agent run, in which each call is made only once.
    pub(super) fn belongs_to_run(&self) -> bool {
        !self.run.is_empty()
    }
}

impl StoredScript {
    /// Creates the state of a newly suspended script.
    pub(super) fn new(steps: Vec<Option<ScriptStep>>, expires_at: Option<SystemTime>) -> Self {
        Self {
            id: Uuid::now_v7().to_string(),
            state: ScriptState::Waiting,
            steps,
            expires_at: expires_at.map_or(i64::MAX, unix_millis),
        }
    }
}

impl ScriptStep {
    pub(super) fn new(call: &ScriptCall, answer: &ScriptCallResult) -> Self {
        Self {
            server: call.server.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            answer: answer.clone(),
        }
    }

    pub(super) fn is_same_call(&self, call: &ScriptCall) -> bool {
        self.server == call.server
            && self.tool == call.tool
            && self.arguments.get() == call.arguments.get()
    }

    pub(super) fn answer(&self) -> ScriptCallResult {
        self.answer.clone()
    }

    fn to_value(&self) -> Value {
        let (value, error) = match &self.answer {
            ScriptCallResult::Value(value) => (Some(value), None),
            ScriptCallResult::Error(error) => (None, Some(error)),
        };
        json!({"server": self.server, "tool": self.tool, "arguments": self.arguments.get(),
            "value": value.map(|value| value.get()), "error": error})
    }

    fn from_value(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let raw = |name: &str| RawValue::from_string(text(name)?).ok();
        Some(Self {
            server: text("server")?,
            tool: text("tool")?,
            arguments: raw("arguments")?,
            answer: match text("error") {
                Some(error) => ScriptCallResult::Error(error),
                None => ScriptCallResult::Value(raw("value")?),
            },
        })
    }
}

/// Hashes filters and headers. The hash is stored, so it depends on their values only, not on how
/// their types are printed nor on the order of the headers.
fn hash_context(filters: &Filters, headers: &[HeaderMap]) -> String {
    let Filters {
        include_clients,
        exclude_clients,
        include_tools,
        exclude_tools,
        server,
        virtual_server,
        // A client may connect again in another way.
        client: _,
    } = filters;
    let sorted = |headers: &HeaderMap| -> Value {
        let mut pairs: Vec<(&str, &[u8])> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        // Stable: the order of several values of one header matters.
        pairs.sort_by_key(|(name, _)| *name);
        json!(pairs)
    };
    let context = json!({
        "include_clients": include_clients,
        "exclude_clients": exclude_clients,
        "include_tools": include_tools,
        "exclude_tools": exclude_tools,
        "server": server.as_ref().map(ServerName::as_str),
        "virtual_server": virtual_server,
        "headers": headers.iter().map(sorted).collect::<Vec<_>>(),
    });
    sha256_hex(context.to_string())
}

/// Encodes steps for storage, preserving the exact text of JSON values.
pub(super) fn steps_to_value(steps: &[Option<ScriptStep>]) -> Value {
    let steps = steps.iter();
    steps
        .map(|step| step.as_ref().map_or(Value::Null, ScriptStep::to_value))
        .collect()
}

/// Decodes stored steps. Returns `None` if any step is unreadable, since a made call must not be lost.
pub(super) fn steps_from_value(value: &Value) -> Option<Vec<Option<ScriptStep>>> {
    let steps = value.as_array()?.iter();
    steps
        .map(|step| match step {
            Value::Null => Some(None),
            step => ScriptStep::from_value(step).map(Some),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(true);
            headers.append(*name, value);
        }
        headers
    }

    #[test]
    fn context_hash_is_stable() {
        let filters = Filters {
            include_tools: Some(vec!["a.*".to_owned()]),
            virtual_server: Some("v".to_owned()),
            ..Filters::default()
        };
        let hash = hash_context(&filters, &[headers(&[("x-a", "1"), ("x-b", "2")])]);
        // Stored with suspended scripts; a change would make them start anew.
        assert_eq!(
            hash,
            "18666ceaff9a2712163d6b9305f1fac1963f9546c850c41017cce90e0abaa425"
        );
        let reordered = headers(&[("x-b", "2"), ("x-a", "1")]);
        assert_eq!(hash_context(&filters, &[reordered]), hash);
    }

    #[test]
    fn context_hash_depends_on_every_value() {
        let filters = Filters::default();
        let base = headers(&[("x-a", "1"), ("x-a", "2")]);
        let mut hashes = vec![
            hash_context(&filters, &[]),
            hash_context(&filters, std::slice::from_ref(&base)),
            hash_context(&filters, &[base, HeaderMap::new()]),
            hash_context(&filters, &[headers(&[("x-a", "2"), ("x-a", "1")])]),
            hash_context(&filters, &[headers(&[("x-a", "1"), ("x-a", "3")])]),
        ];
        for filters in [
            Filters {
                include_clients: Some(Vec::new()),
                ..Filters::default()
            },
            Filters {
                exclude_tools: Some(Vec::new()),
                ..Filters::default()
            },
            Filters {
                server: ServerName::parse("s").ok(),
                ..Filters::default()
            },
        ] {
            hashes.push(hash_context(&filters, &[]));
        }
        let count = hashes.len();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }
}
