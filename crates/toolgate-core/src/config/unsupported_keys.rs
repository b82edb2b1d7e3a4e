//! Keys of Bifrost and agent-code configuration files that Toolgate does not support.
//!
//! Users can reuse their existing files: each such key produces a finding that names the equivalent.
//! Keys that would change permissions are errors; all others are ignored with a warning.

use serde_json::Value;

use super::document::{Document, escape_step};
use super::{ConfigFinding, Severity};

struct ForeignKey {
    /// JSON pointer in which `*` matches any single step.
    pointer: &'static str,
    severity: Severity,
    advice: &'static str,
}

const fn ignore(pointer: &'static str, advice: &'static str) -> ForeignKey {
    ForeignKey {
        pointer,
        severity: Severity::Warning,
        advice,
    }
}

const fn reject(pointer: &'static str, advice: &'static str) -> ForeignKey {
    ForeignKey {
        pointer,
        severity: Severity::Error,
        advice,
    }
}

const BACKOFF_ADVICE: &str =
    "retries wait 0.5 s, doubling each time, or as long as the provider requests";
const KEYS_ADVICE: &str = "define API keys as `[keys.NAME]` or with POST /api/keys";
const STORE_ADVICE: &str = "data is stored in `data_dir`";
const OBSERVE_ADVICE: &str = "see `/metrics` and the logs";
const FRONTEND_ADVICE: &str = "it applies to a terminal agent, not to a gateway";
const OAUTH_ADVICE: &str =
    "OAuth for servers is not supported yet; use `headers` with a token, or remove the entry";

const UNSUPPORTED_KEYS: &[ForeignKey] = &[
    ignore("/$schema", "`docs/config.schema.json` describes this file"),
    ignore("/version", "an empty list always means no entries"),
    ignore("/source_of_truth", "the file is always the source of truth"),
    ignore("/server", "use `host` and `port`"),
    ignore(
        "/encryption_key",
        "secrets are written as `env.NAME` and are not stored",
    ),
    ignore("/env_label", "it has no effect"),
    reject("/auth_config", "use `admin_key`"),
    ignore("/setup_token", "use `admin_key`"),
    ignore(
        "/client",
        "use `mcp.tool_manager_config`, `mcp.tool_sync_interval` and `allowed_origins`",
    ),
    ignore("/framework", "it has no effect"),
    ignore(
        "/providers/*/concurrency_and_buffer_size",
        "requests to providers are not queued; limit callers with `rate_limit` and `max_in_flight`",
    ),
    ignore(
        "/providers/*/send_back_raw_response",
        "responses keep every field",
    ),
    ignore("/providers/*/send_back_raw_request", "it has no effect"),
    ignore(
        "/providers/*/network_config/retry_backoff_initial",
        BACKOFF_ADVICE,
    ),
    ignore(
        "/providers/*/network_config/retry_backoff_max",
        BACKOFF_ADVICE,
    ),
    ignore(
        "/providers/*/custom_provider_config/allowed_requests",
        "it has no effect",
    ),
    ignore("/governance", KEYS_ADVICE),
    ignore("/access_profiles", KEYS_ADVICE),
    ignore("/scim_config", KEYS_ADVICE),
    ignore("/alerting", OBSERVE_ADVICE),
    ignore("/webhooks", OBSERVE_ADVICE),
    ignore("/audit_logs", "use `audit`"),
    ignore("/vector_store", STORE_ADVICE),
    ignore("/config_store", STORE_ADVICE),
    ignore("/logs_store", STORE_ADVICE),
    ignore("/skills_registry", "it has no effect"),
    ignore("/plugins", "it has no effect"),
    ignore("/feature_flags", "it has no effect"),
    ignore("/websocket", "it has no effect"),
    ignore(
        "/large_payload_optimization",
        "request bodies are limited to 16 MiB",
    ),
    ignore("/cluster_config", "Toolgate runs as a single node"),
    ignore("/load_balancer_config", "use several `keys` with weights"),
    ignore(
        "/circuit_breaker_config",
        "use `model_aliases` with fallbacks",
    ),
    reject(
        "/guardrails_config",
        "use `permissions.rules` and `scanner` to restrict tools",
    ),
    reject(
        "/mcp/tool_groups",
        "use `roles` with `tools`, and `tools_to_execute`",
    ),
    ignore(
        "/mcp/client_configs/*/needs_session_stickiness",
        "connections always stay open",
    ),
    reject("/mcp/client_configs/*/oauth_config", OAUTH_ADVICE),
    reject("/mcp/client_configs/*/oauth_config_id", OAUTH_ADVICE),
    reject("/mcp/client_configs/*/token_exchange", OAUTH_ADVICE),
    reject(
        "/mcp/client_configs/*/per_user_header_keys",
        "per-user credentials are not supported yet; use `headers`",
    ),
    reject(
        "/mcp/client_configs/*/http_config",
        "use `connection_string`",
    ),
    reject(
        "/mcp/client_configs/*/websocket_config",
        "use `connection_string` with an HTTP URL",
    ),
    ignore("/schema_version", "it has no effect"),
    ignore("/api", "use `providers`"),
    ignore("/ui", FRONTEND_ADVICE),
    ignore("/features", FRONTEND_ADVICE),
    ignore("/hooks", FRONTEND_ADVICE),
    ignore("/sandbox", FRONTEND_ADVICE),
    ignore("/session", FRONTEND_ADVICE),
    ignore("/limits", FRONTEND_ADVICE),
    ignore("/notifier", FRONTEND_ADVICE),
    ignore("/security/additional_directories", FRONTEND_ADVICE),
    ignore(
        "/security/disable_bypass_permissions",
        "permissions cannot be bypassed",
    ),
    ignore(
        "/security/env_allowlist",
        "a server gets only the variables named in its `env`",
    ),
    ignore("/security/disable_skill_shell_execution", FRONTEND_ADVICE),
    ignore("/permissions/default_mode", "use `permissions.default`"),
    reject(
        "/permissions/allowed_tools",
        "use `tools_to_execute` of each server",
    ),
    reject("/permissions/disallowed_tools", "use `mcp.blocked_tools`"),
];

/// Removes every unsupported key from `value` and reports it.
pub(super) fn remove_unsupported_keys(
    document: &Document,
    value: &mut Value,
    findings: &mut Vec<ConfigFinding>,
) {
    for foreign in UNSUPPORTED_KEYS {
        let steps: Vec<&str> = foreign.pointer.split('/').skip(1).collect();
        let mut removed = Vec::new();
        remove_matching(value, &steps, "", &mut removed);
        for pointer in removed {
            let key = foreign.pointer.rsplit('/').next().unwrap_or_default();
            let verb = match foreign.severity {
                Severity::Warning => "ignored",
                Severity::UnknownName | Severity::Error => "not supported",
            };
            findings.push(ConfigFinding {
                severity: foreign.severity,
                location: document.location(&pointer),
                message: format!("`{key}` is {verb}: {}", foreign.advice),
            });
        }
    }
}

/// Removes every value whose pointer below `pointer` matches the steps, and records its pointer.
fn remove_matching(value: &mut Value, steps: &[&str], pointer: &str, removed: &mut Vec<String>) {
    let [step, rest @ ..] = steps else { return };
    let names: Vec<String> = match (&*value, *step) {
        (Value::Object(object), "*") => object.keys().cloned().collect(),
        (Value::Array(array), "*") => (0..array.len()).map(|i| i.to_string()).collect(),
        _ => vec![(*step).to_owned()],
    };
    for name in names {
        let here = format!("{pointer}/{}", escape_step(&name));
        match value {
            Value::Object(object) if rest.is_empty() => {
                removed.extend(object.shift_remove(&name).map(|_| here));
            }
            Value::Object(object) => {
                if let Some(inner) = object.get_mut(&name) {
                    remove_matching(inner, rest, &here, removed);
                }
            }
            Value::Array(array) => {
                if let Some(inner) = name.parse().ok().and_then(|i: usize| array.get_mut(i)) {
                    remove_matching(inner, rest, &here, removed);
                }
            }
            _ => {}
        }
    }
}
