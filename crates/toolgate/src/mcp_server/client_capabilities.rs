//! The capabilities of a client, as the gateway declares them to servers.

use std::sync::Arc;

use serde_json::Value;
use toolgate_core::catalog::ClientProfile;
use toolgate_core::hash::sha256_hex;
use toolgate_core::json::Members;
use toolgate_mcp::extensions::Extensions;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::task;

/// Maximum size of the capabilities that a client declares, which are kept.
pub(super) const MAX_CAPABILITIES_BYTES: usize = 8 * 1024;

/// Requests of servers that a client can answer, by the capability that it declares for them.
const ASKABLE_METHODS: [(&str, &str); 3] = [
    ("elicitation", "elicitation/create"),
    ("sampling", "sampling/createMessage"),
    ("roots", "roots/list"),
];

/// What a client can do.
#[derive(Clone, Debug)]
pub(super) struct ClientCapabilities {
    /// As declared to servers, as JSON.
    pub(super) declared: Arc<str>,
    /// Identifies clients with the same capabilities; `None` if the client has none, like the gateway
    /// itself.
    pub(super) profile: Option<ClientProfile>,
    /// The requests of servers that the client can answer.
    pub(super) askable_methods: Vec<&'static str>,
    /// Whether the client declares the extension for tasks, which the gateway declares to servers itself.
    pub(super) declares_tasks: bool,
}

impl ClientCapabilities {
    /// Reads capabilities, which must be a JSON object. With very large ones, which are not kept, the client
    /// is served like one that has none.
    pub(super) fn parse(sent: &str, era: Era) -> Self {
        if sent == "{}" || sent.len() > MAX_CAPABILITIES_BYTES {
            return Self {
                declared: sent.into(),
                profile: None,
                askable_methods: Vec::new(),
                declares_tasks: task::is_declared_by_client(sent),
            };
        }
        let declared = Extensions::from_capabilities(sent).replace_in(sent);
        let members = Members::parse(&declared).unwrap_or_default();
        let askable = ASKABLE_METHODS.into_iter();
        let askable = askable.filter(|(capability, _)| members.get(capability).is_some());
        let askable_methods = askable.map(|(_, method)| method).collect();
        let canonical = canonical_json(&declared);
        let era = match era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        };
        let digest = || sha256_hex(format!("{era}\n{canonical}"));
        Self {
            profile: (canonical != "{}").then(|| ClientProfile::new(&digest())),
            askable_methods,
            declared: declared.into(),
            declares_tasks: task::is_declared_by_client(sent),
        }
    }

    pub(super) fn can_answer_requests(&self) -> bool {
        !self.askable_methods.is_empty()
    }
}

/// Returns the same text for capabilities that differ only in white space, order or notation.
fn canonical_json(capabilities: &str) -> String {
    match serde_json::from_str::<Value>(capabilities) {
        Ok(mut value) => {
            value.sort_all_objects();
            value.to_string()
        }
        Err(_) => capabilities.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_depends_on_capabilities_and_not_on_their_notation() {
        let profile = |text: &str| ClientCapabilities::parse(text, Era::Legacy).profile;
        let plain = profile(r#"{"roots":{"listChanged":true},"sampling":{}}"#);
        assert!(plain.is_some());
        let spaced = "{ \"sampling\" : {},\n \"\\u0072oots\":{ \"listChanged\":true } }";
        assert_eq!(profile(spaced), plain);
        assert_ne!(profile(r#"{"sampling":{}}"#), plain);
        for nothing in [
            "{}",
            " { } ",
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        ] {
            assert_eq!(profile(nothing), None, "{nothing}");
        }
        let modern = ClientCapabilities::parse(r#"{"sampling":{}}"#, Era::Modern);
        assert_ne!(modern.profile, profile(r#"{"sampling":{}}"#));
        assert_eq!(modern.askable_methods, ["sampling/createMessage"]);
    }
}
