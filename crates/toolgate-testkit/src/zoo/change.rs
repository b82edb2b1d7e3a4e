//! Changes while the server runs, and the filters that select which are announced.

use serde::{Deserialize, Serialize};

use super::rpc::{json_string, notification};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resources,
    /// The content of the resource with this URI.
    Resource(String),
}

/// The changes that a `subscriptions/listen` request selects.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListenFilter {
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tools_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    prompts_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_subscriptions: Vec<String>,
}

impl Change {
    /// Builds the notification; `meta` is a raw member of its parameters, or empty.
    pub(crate) fn notification(&self, meta: &str) -> String {
        let (method, uri) = match self {
            Self::Tools => ("notifications/tools/list_changed", None),
            Self::Prompts => ("notifications/prompts/list_changed", None),
            Self::Resources => ("notifications/resources/list_changed", None),
            Self::Resource(uri) => ("notifications/resources/updated", Some(uri)),
        };
        let uri = uri.map(|uri| format!(r#""uri":{}"#, json_string(uri)));
        let meta = (!meta.is_empty()).then(|| meta.to_owned());
        let members: Vec<String> = meta.into_iter().chain(uri).collect();
        notification(method, &format!("{{{}}}", members.join(",")))
    }
}

impl ListenFilter {
    /// Reduces the filter to what a server honours that only announces tool changes.
    pub(crate) fn into_tools_only(self) -> Self {
        Self {
            tools_list_changed: self.tools_list_changed,
            ..Self::default()
        }
    }

    pub(crate) fn matches(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools_list_changed,
            Change::Prompts => self.prompts_list_changed,
            Change::Resources => self.resources_list_changed,
            Change::Resource(uri) => self.resource_subscriptions.contains(uri),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "`skip_serializing_if` passes the field by reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}
