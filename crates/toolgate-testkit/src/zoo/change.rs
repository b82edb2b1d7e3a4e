//! What may change while the server runs, and who wants to hear of it.

use serde::{Deserialize, Serialize};

use super::rpc::{notification, quoted};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resources,
    /// The content of the resource at this address.
    Resource(String),
}

/// The changes that a `subscriptions/listen` is about.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Filter {
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
    /// The notification; `meta` is a raw member of its parameters, or empty.
    pub(crate) fn notification(&self, meta: &str) -> String {
        let (method, uri) = match self {
            Self::Tools => ("notifications/tools/list_changed", None),
            Self::Prompts => ("notifications/prompts/list_changed", None),
            Self::Resources => ("notifications/resources/list_changed", None),
            Self::Resource(uri) => ("notifications/resources/updated", Some(uri)),
        };
        let uri = uri.map(|uri| format!(r#""uri":{}"#, quoted(uri)));
        let meta = (!meta.is_empty()).then(|| meta.to_owned());
        let members: Vec<String> = meta.into_iter().chain(uri).collect();
        notification(method, &format!("{{{}}}", members.join(",")))
    }
}

impl Filter {
    /// What is left of it for a server that announces nothing but new tools.
    pub(crate) fn only_tools(self) -> Self {
        Self {
            tools_list_changed: self.tools_list_changed,
            ..Self::default()
        }
    }

    pub(crate) fn wants(&self, change: &Change) -> bool {
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
    reason = "serde passes what it asks about by reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}
