//! Who asks, and how.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::json::{Members, may_say};
use toolgate_mcp::ear::{Guest, Level};
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::serve::{Modern, Said, Tell};

use super::client::OldClient;
use super::hearer::Hearer;
use crate::call::Request;
use crate::caller::Caller;

/// Who asks, and how.
#[derive(Clone, Debug)]
pub struct Asker {
    pub(super) caller: Caller,
    pub era: Era,
    pub(super) request: Arc<Request>,
    /// The client, if it is one of the old era.
    pub(super) client: Option<Arc<OldClient>>,
}

impl Asker {
    /// One who speaks the modern way, and is told through `tell` what comes before the answer.
    pub fn modern(
        caller: Caller,
        request: Request,
        Modern {
            capabilities,
            log_level,
            said,
        }: Modern,
        params: Option<&RawValue>,
        tell: Tell,
    ) -> Self {
        let hearer = Hearer {
            tell,
            token: said.progress_token,
            questions: None,
            logs: log_level,
        };
        let guest = Guest {
            capabilities: capabilities.get().into(),
            input: input(params),
        };
        Self {
            caller,
            era: Era::Modern,
            request: Arc::new(Request {
                meta: said.rest,
                trace: said.trace,
                ear: Some(Arc::new(hearer)),
                guest: Some(Arc::new(guest)),
                log_level,
                ..request
            }),
            client: None,
        }
    }

    /// A client of the old era, which is told through `tell` what comes before the answer.
    pub fn old(
        caller: Caller,
        request: Request,
        client: &Arc<OldClient>,
        said: Said,
        tell: Tell,
    ) -> Self {
        let hearer = Hearer {
            tell,
            token: said.progress_token,
            questions: Some(client.questions()),
            // Whoever has not said so hears them all.
            logs: Some(client.log_level().unwrap_or(Level::Debug)),
        };
        Self {
            caller,
            era: Era::Legacy,
            request: Arc::new(Request {
                meta: said.rest,
                trace: said.trace,
                ear: Some(Arc::new(hearer)),
                session: client.session(),
                log_level: client.log_level(),
                ..request
            }),
            client: Some(Arc::clone(client)),
        }
    }

    /// The request without answers to a question of ours, which no server asked.
    pub(super) fn without_input(&self) -> Arc<Request> {
        let guest = self.request.guest.as_ref();
        let guest = guest.map(|guest| {
            Arc::new(Guest {
                capabilities: Arc::clone(&guest.capabilities),
                input: Object::new(),
            })
        });
        Arc::new(Request {
            guest,
            ..(*self.request).clone()
        })
    }
}

/// A modern client's answers to what was asked before, with the server's state, as it sent them.
fn input(params: Option<&RawValue>) -> Object {
    let given = ["inputResponses", "requestState"];
    let params = params.map(RawValue::get);
    let params = params.filter(|params| given.iter().any(|name| may_say(params, name)));
    let members = params.and_then(Members::of).unwrap_or_default();
    given
        .into_iter()
        .fold(Object::new(), |input, name| match members.get(name) {
            Some(value) => input.raw(name, value.get()),
            None => input,
        })
}
