//! OpenAPI schemas of values whose types do not derive them: enums of the other crates, which do not
//! depend on `utoipa`, and JSON that is forwarded unparsed.

use std::borrow::Cow;

use toolgate::ServerState;
use toolgate::agent::RunState;
use toolgate::approval::ApprovalState;
use toolgate_core::catalog::ItemOutcome;
use toolgate_core::config::BindingLevel;
use toolgate_core::policy::Verdict;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Declares types that stand for enums in `#[schema(value_type = …)]`, with the name of their component.
macro_rules! string_enums {
    ($($schema:ident $component:literal => $names:expr;)*) => {$(
        pub(crate) struct $schema;

        impl PartialSchema for $schema {
            fn schema() -> RefOr<Schema> {
                let object = ObjectBuilder::new().schema_type(Type::String);
                RefOr::T(object.enum_values(Some($names)).into())
            }
        }

        impl ToSchema for $schema {
            fn name() -> Cow<'static, str> {
                $component.into()
            }
        }
    )*};
}

string_enums! {
    ApprovalStateSchema "ApprovalState" => ApprovalState::ALL.map(ApprovalState::as_str);
    BindingLevelSchema "BindingLevel" => BindingLevel::ALL.map(BindingLevel::as_str);
    ItemOutcomeSchema "ItemOutcome" => ItemOutcome::ALL.map(ItemOutcome::as_str);
    RunStateSchema "RunState" => RunState::ALL.map(RunState::as_str);
    ServerStateSchema "ServerState" => ServerState::ALL.map(ServerState::as_str);
    // A tool in a server's listing is not necessarily in scope.
    ToolLineVerdictSchema "ToolLineVerdict" => Verdict::ALL.map(Verdict::as_str).into_iter().chain(["hidden"]);
    VerdictSchema "Verdict" => Verdict::ALL.map(Verdict::as_str);
}

/// Self-description of an MCP server. It may have more fields.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes JSON that is passed on unparsed")]
pub(crate) struct ServerInfo {
    #[schema(nullable = false)]
    name: Option<String>,
    #[schema(nullable = false)]
    version: Option<String>,
}

/// Statistics of a script.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes JSON that is passed on unparsed")]
pub(crate) struct ScriptSummary {
    /// Number of calls that the script made.
    calls: u64,
    /// The limit that stopped the script.
    #[schema(nullable = false)]
    limit: Option<String>,
    /// Tokens that code mode saved in each model request.
    saved_tokens: u64,
}
