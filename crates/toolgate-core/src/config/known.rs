//! Keys of Bifrost's and agent-code's configuration files that Toolgate does not use.
//!
//! Users bring their files; each such key gets one finding that names our equivalent. What would
//! change who may do what is refused rather than ignored.

use serde_json::Value;

use super::document::{Document, escape};
use super::{Finding, Severity};

struct Known {
    /// A JSON pointer in which `*` stands for any one step.
    pointer: &'static str,
    severity: Severity,
    instead: &'static str,
}

const fn ignored(pointer: &'static str, instead: &'static str) -> Known {
    Known {
        pointer,
        severity: Severity::Warning,
        instead,
    }
}

const fn refused(pointer: &'static str, instead: &'static str) -> Known {
    Known {
        pointer,
        severity: Severity::Error,
        instead,
    }
}

const BACKOFF: &str = "retries wait 0.5 s, then twice as long each time, or as the provider says";
const KEYS: &str = "define callers' keys as `[keys.NAME]` or with POST /api/keys";
const STORE: &str = "data is kept in `data_dir`";
const OBSERVE: &str = "see `/metrics` and the logs";
const FRONTEND: &str = "it concerns a terminal agent, not a gateway";
const OAUTH: &str =
    "OAuth towards servers is not supported yet; use `headers` with a token, or remove the entry";

const KNOWN: &[Known] = &[
    ignored("/$schema", "`docs/config.schema.json` describes this file"),
    ignored("/version", "an empty list always means none"),
    ignored("/source_of_truth", "the file is always the source of truth"),
    ignored("/server", "use `host` and `port`"),
    ignored(
        "/encryption_key",
        "secrets are written as `env.NAME` and are not stored",
    ),
    ignored("/env_label", "it has no effect"),
    refused("/auth_config", "use `admin_key`"),
    ignored("/setup_token", "use `admin_key`"),
    ignored(
        "/client",
        "use `mcp.tool_manager_config`, `mcp.tool_sync_interval` and `allowed_origins`",
    ),
    ignored("/framework", "it has no effect"),
    ignored(
        "/providers/*/concurrency_and_buffer_size",
        "requests to providers are not queued; limit callers with `rate_limit` and `max_in_flight`",
    ),
    ignored(
        "/providers/*/send_back_raw_response",
        "answers keep every field",
    ),
    ignored("/providers/*/send_back_raw_request", "it has no effect"),
    ignored("/providers/*/network_config/retry_backoff_initial", BACKOFF),
    ignored("/providers/*/network_config/retry_backoff_max", BACKOFF),
    ignored(
        "/providers/*/custom_provider_config/allowed_requests",
        "it has no effect",
    ),
    ignored("/governance", KEYS),
    ignored("/access_profiles", KEYS),
    ignored("/scim_config", KEYS),
    ignored("/alerting", OBSERVE),
    ignored("/webhooks", OBSERVE),
    ignored("/audit_logs", "use `audit`"),
    ignored("/vector_store", STORE),
    ignored("/config_store", STORE),
    ignored("/logs_store", STORE),
    ignored("/skills_registry", "it has no effect"),
    ignored("/plugins", "it has no effect"),
    ignored("/feature_flags", "it has no effect"),
    ignored("/websocket", "it has no effect"),
    ignored(
        "/large_payload_optimization",
        "bodies are bounded at 16 MiB",
    ),
    ignored("/cluster_config", "one node serves"),
    ignored("/load_balancer_config", "use several `keys` with weights"),
    ignored(
        "/circuit_breaker_config",
        "use `model_aliases` with fallbacks",
    ),
    refused(
        "/guardrails_config",
        "use `permissions.rules` and `scanner` to keep tools from running",
    ),
    refused(
        "/mcp/tool_groups",
        "use `roles` with `tools`, and `tools_to_execute`",
    ),
    ignored(
        "/mcp/client_configs/*/needs_session_stickiness",
        "connections are always kept open",
    ),
    refused("/mcp/client_configs/*/oauth_config", OAUTH),
    refused("/mcp/client_configs/*/oauth_config_id", OAUTH),
    refused("/mcp/client_configs/*/token_exchange", OAUTH),
    refused(
        "/mcp/client_configs/*/per_user_header_keys",
        "credentials of each user are not supported yet; use `headers`",
    ),
    refused(
        "/mcp/client_configs/*/http_config",
        "use `connection_string`",
    ),
    refused(
        "/mcp/client_configs/*/websocket_config",
        "use `connection_string` with an HTTP URL",
    ),
    ignored("/schema_version", "it has no effect"),
    ignored("/api", "use `providers`"),
    ignored("/ui", FRONTEND),
    ignored("/features", FRONTEND),
    ignored("/hooks", FRONTEND),
    ignored("/sandbox", FRONTEND),
    ignored("/session", FRONTEND),
    ignored("/limits", FRONTEND),
    ignored("/notifier", FRONTEND),
    ignored("/security/additional_directories", FRONTEND),
    ignored(
        "/security/disable_bypass_permissions",
        "permissions cannot be bypassed",
    ),
    ignored(
        "/security/env_allowlist",
        "a server gets only the variables named in its `env`",
    ),
    ignored("/security/disable_skill_shell_execution", FRONTEND),
    ignored("/permissions/default_mode", "use `permissions.default`"),
    refused(
        "/permissions/allowed_tools",
        "use `tools_to_execute` of each server",
    ),
    refused("/permissions/disallowed_tools", "use `mcp.blocked_tools`"),
];

/// Takes every known but unused key out of `value`.
pub(super) fn take(document: &Document, value: &mut Value, findings: &mut Vec<Finding>) {
    for known in KNOWN {
        let steps: Vec<&str> = known.pointer.split('/').skip(1).collect();
        let mut removed = Vec::new();
        remove(value, &steps, &mut String::new(), &mut removed);
        for pointer in removed {
            let key = known.pointer.rsplit('/').next().unwrap_or_default();
            let verb = match known.severity {
                Severity::Warning => "ignored",
                Severity::Error => "not supported",
            };
            findings.push(Finding {
                severity: known.severity,
                place: document.place(&pointer),
                message: format!("`{key}` is {verb}: {}", known.instead),
            });
        }
    }
}

fn remove(value: &mut Value, steps: &[&str], pointer: &mut String, removed: &mut Vec<String>) {
    let [step, rest @ ..] = steps else { return };
    let names: Vec<String> = match (&*value, *step) {
        (Value::Object(object), "*") => object.keys().cloned().collect(),
        (Value::Array(array), "*") => (0..array.len()).map(|i| i.to_string()).collect(),
        _ => vec![(*step).to_owned()],
    };
    for name in names {
        let here = format!("{pointer}/{}", escape(&name));
        match value {
            Value::Object(object) if rest.is_empty() => {
                removed.extend(object.shift_remove(&name).map(|_| here));
            }
            Value::Object(object) => {
                if let Some(inner) = object.get_mut(&name) {
                    remove(inner, rest, &mut here.clone(), removed);
                }
            }
            Value::Array(array) => {
                if let Some(inner) = name.parse().ok().and_then(|i: usize| array.get_mut(i)) {
                    remove(inner, rest, &mut here.clone(), removed);
                }
            }
            _ => {}
        }
    }
}
