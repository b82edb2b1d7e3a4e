//! Review of model requests by hooks, before a provider is chosen.

use std::borrow::Cow;

use toolgate_llm::{FieldError, RequestBody};

use super::{ModelCall, ModelError, Operation};
use crate::hook::{Hooks, ModelProposal, ModelReview};

/// Lets all hooks review a request, each with the body as edited by those before it.
pub(super) async fn review<'a>(
    hooks: &Hooks,
    model_call: &'a ModelCall,
) -> Result<Cow<'a, ModelCall>, ModelError> {
    let mut reviewed = Cow::Borrowed(model_call);
    for hook in hooks.iter() {
        let proposal = ModelProposal {
            caller: &model_call.caller,
            request_id: model_call.context.id.as_deref().unwrap_or_default(),
            dialect: model_call.request.dialect,
            endpoint: match model_call.request.operation {
                Operation::Forward(endpoint) => Some(endpoint),
                _ => None,
            },
            body: reviewed.body.as_str(),
        };
        match hook.before_model_request(proposal).await {
            ModelReview::Proceed => {}
            ModelReview::Edit(body) => {
                let body = RequestBody::parse(body.to_string().into())?;
                reviewed = Cow::Owned(reviewed.with_body(body)?);
            }
            ModelReview::Refuse { reason } => return Err(ModelError::RefusedByHook(reason)),
        }
    }
    // The response was promised to the caller in the form that it asked for.
    if reviewed.stream == model_call.stream {
        Ok(reviewed)
    } else {
        Err(ModelError::Field(FieldError {
            field: "stream".to_owned(),
            problem: "must not be changed by a hook".to_owned(),
        }))
    }
}
