//! Builds the [`Config`]: merges the files and checks what a schema cannot express.
//!
//! References between entries (servers, roles, providers) are checked last, when all files are
//! known.

mod audit;
mod caller;
mod context;
mod entry;
mod provider;
mod rule;
mod store;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use context::FileContext;
use entry::{ServerEntry, non_zero_duration, parse_url};
use indexmap::IndexMap;
use rule::{PendingRule, selector_severity};
use store::{build_store_key, reserved_variables};

use super::check::CheckedFile;
use super::document::{Document, escape_step};
use super::file::{
    ConfigFile, McpTable, ResultsTable, ScannerTable, Security, ServerTable, ToolManagerConfig,
};
use super::{
    Approver, Approvers, Config, ConfigFinding, ConfigLocation, DefinitionOverrides,
    ListenSettings, ResultSettings, ScannerSettings, ServerConfig, ServerLists, Severity,
    ToolManagerSettings, variable_references,
};
use crate::name::ServerName;
use crate::nearest::find_nearest;
use crate::pattern::{Selector, SelectorMode};

pub(super) fn build_config(
    documents: &[Document],
    files: Vec<CheckedFile>,
    findings: &mut Vec<ConfigFinding>,
) -> Config {
    let mut builder = ConfigBuilder::default();
    let own_files = documents.iter().zip(&files);
    let own_files = own_files.filter(|(document, _)| !document.is_project());
    let project_variables: BTreeSet<String> = own_files
        .flat_map(|(_, checked)| checked.file.project_env.iter().cloned())
        .collect();
    let reserved_variables = reserved_variables(documents);
    for (document, checked) in documents.iter().zip(files) {
        let mut context = FileContext {
            document,
            removed: checked.removed,
            forbidden_variables: BTreeSet::new(),
            project_variables: &project_variables,
            findings,
        };
        for reference in variable_references(document) {
            context.check_variable_use(&reference.pointer, &reference.name);
            if reserved_variables.contains(&reference.name) {
                context.check_reserved_variable(&reference.pointer, &reference.name);
            }
        }
        builder.add(checked.file, &mut context);
    }
    builder.finish(findings)
}

/// Configuration merged so far; later files override earlier ones.
#[derive(Default)]
struct ConfigBuilder {
    config: Config,
    servers: IndexMap<ServerName, (ServerConfig, ConfigLocation)>,
    rules: Vec<PendingRule>,
    /// Servers in the allow and deny lists, with the severity if one is unknown.
    security: Vec<(String, Severity, ConfigLocation)>,
    /// Texts that must name tools of configured servers, with their mode.
    selections: Vec<(String, SelectorMode, ConfigLocation)>,
    /// Roles referenced by keys and rules.
    roles_used: Vec<(String, ConfigLocation)>,
    /// Environments with an overlay.
    environments: BTreeSet<String>,
    /// Models that aliases refer to.
    model_names: Vec<(String, ConfigLocation)>,
    /// Location of `default_provider`.
    default_provider: Option<ConfigLocation>,
    /// Location of `environment`.
    environment_location: Option<ConfigLocation>,
}

impl ConfigBuilder {
    fn add(&mut self, file: ConfigFile, context: &mut FileContext<'_>) {
        let ConfigFile {
            mcp,
            mcp_servers,
            security,
            permissions,
            roles,
            keys,
            virtual_servers,
            providers,
            model_aliases,
            prices,
            default_provider,
            agent,
            code_mode,
            capacity,
            scanner,
            results,
            audit,
            log,
            environment,
            environments,
            tool_name_style,
            host,
            port,
            data_dir,
            store,
            admin_key,
            allowed_hosts,
            allowed_origins,
            public_url,
            http,
            project_env,
        } = file;
        if !project_env.is_empty() && context.document.is_project() {
            context.error(
                "/project_env",
                "`project_env` has no place in the file of a project; set it in your own file, `~/.config/toolgate/toolgate.toml`",
            );
        }
        self.add_servers(&mcp_servers, &mcp, context);
        self.add_tool_manager(mcp, context);
        self.add_security(security, context);
        self.add_permissions(permissions, context);
        self.add_roles(roles, context);
        self.add_keys(keys, context);
        self.add_virtual_servers(virtual_servers, context);
        self.add_providers(providers, context);
        self.add_aliases(model_aliases, default_provider, context);
        self.add_prices(prices);
        self.config.agent = self.config.agent.combine(agent.into());
        self.config.code_mode.apply(code_mode);
        self.config.capacity.apply(&capacity);
        self.add_control(&scanner, &results);
        self.add_audit(audit, context);
        set_if_some(&mut self.config.log.calls, log.calls);
        self.environments.extend(environments.into_keys());
        if environment.is_some() {
            self.environment_location = Some(context.document.location("/environment"));
            self.config.environment = environment;
        }
        set_if_some(&mut self.config.tool_name_style, tool_name_style);
        let store_key = build_store_key(store, context);
        let listen = &mut self.config.listen;
        *listen = ListenSettings {
            host: host.or(listen.host.take()),
            port: port.or(listen.port),
            data_dir: data_dir.map(PathBuf::from).or(listen.data_dir.take()),
            store_key: store_key.or(listen.store_key.take()),
            admin_key: admin_key.or(listen.admin_key.take()),
            allowed_hosts: allowed_hosts.unwrap_or(std::mem::take(&mut listen.allowed_hosts)),
            allowed_origins: allowed_origins
                .map(|origins| parse_origins(&origins, context))
                .unwrap_or(std::mem::take(&mut listen.allowed_origins)),
            public_url: public_url
                .and_then(|url| parse_url("/public_url", &url, context))
                .or(listen.public_url.take()),
            http: http.apply_to(std::mem::take(&mut listen.http)),
        };
    }

    fn add_servers(
        &mut self,
        tables: &IndexMap<String, ServerTable>,
        mcp: &McpTable,
        context: &mut FileContext<'_>,
    ) {
        let pointers = context.pointers("/mcp/client_configs");
        let clients = mcp.client_configs.iter().zip(pointers);
        let clients = clients
            .map(|(client, pointer)| (pointer, client.name.clone(), ServerEntry::Client(client)));
        let tables = tables.iter().map(|(name, table)| {
            let pointer = format!("/mcp_servers/{}", escape_step(name));
            (pointer, name.clone(), ServerEntry::Table(table))
        });
        let mut names_in_file: HashMap<String, String> = HashMap::new();
        for (pointer, name, entry) in clients.chain(tables) {
            let name = match ServerName::parse(&name) {
                Ok(name) => name,
                Err(error) => {
                    context.error(&pointer, error.to_string());
                    continue;
                }
            };
            if let Some(other) = names_in_file.insert(name.to_folded(), name.to_string()) {
                context.error(
                    &pointer,
                    format!("server `{name}` has the same name as `{other}` (case and `-` versus `_` are ignored); rename one"),
                );
                continue;
            }
            let same = |known: &ServerName| known.to_folded() == name.to_folded() && *known != name;
            if let Some(other) = self.servers.keys().find(|known| same(known)) {
                context.error(
                    &pointer,
                    format!(
                        "server `{name}` is called `{other}` in another file; use the same name in both"
                    ),
                );
                continue;
            }
            if let Some(server) = entry.build(&name, &pointer, context) {
                let location = context.document.location(&pointer);
                // A replaced server moves to the end, to the place of its new definition.
                self.servers.shift_remove(&name);
                self.servers.insert(name, (server, location));
            }
        }
    }

    fn add_tool_manager(&mut self, mcp: McpTable, context: &FileContext<'_>) {
        let McpTable {
            enabled,
            blocked_tools,
            definitions,
            definition_scan,
            argument_check,
            resource_tools,
            client_configs: _,
            tool_manager_config,
            tool_sync_interval,
            health_interval,
            reconnect_wait,
            startup_wait,
        } = mcp;
        let ToolManagerConfig {
            tool_execution_timeout,
            max_agent_depth,
            disable_auto_tool_inject,
            code_mode_binding_level,
        } = tool_manager_config;
        self.add_selections(
            "/mcp/blocked_tools",
            &blocked_tools,
            SelectorMode::Wide,
            context,
        );
        self.config.blocked_tools.extend(blocked_tools);
        let settings = DefinitionOverrides::new(definitions, definition_scan);
        self.config.definitions.tighten(settings);
        let manager: &mut ToolManagerSettings = &mut self.config.tool_manager;
        set_if_some(&mut manager.enabled, enabled);
        set_if_some(&mut manager.argument_check, argument_check);
        set_if_some(&mut manager.resource_tools, resource_tools);
        set_if_some(
            &mut manager.tool_execution_timeout,
            tool_execution_timeout
                .map(|span| span.0)
                .filter(|timeout| !timeout.is_zero()),
        );
        set_if_some(&mut manager.max_agent_depth, max_agent_depth);
        set_if_some(&mut manager.binding_level, code_mode_binding_level);
        set_if_some(
            &mut manager.inject_tools,
            disable_auto_tool_inject.map(|disabled| !disabled),
        );
        set_if_some(
            &mut manager.health_interval,
            health_interval
                .map(|span| span.0)
                .filter(|interval| !interval.is_zero()),
        );
        set_if_some(
            &mut manager.reconnect_wait,
            reconnect_wait.map(|wait| wait.0),
        );
        set_if_some(&mut manager.startup_wait, startup_wait.map(|wait| wait.0));
        set_if_some(
            &mut manager.tool_sync_interval,
            tool_sync_interval.map(|span| Some(span.0).filter(|interval| !interval.is_zero())),
        );
    }

    fn add_security(&mut self, security: Security, context: &FileContext<'_>) {
        let Security {
            mcp_server_allowlist,
            mcp_server_denylist,
        } = security;
        for (key, list, severity) in [
            (
                "mcp_server_allowlist",
                &mcp_server_allowlist,
                Severity::UnknownName,
            ),
            // A server may be denied before anyone configures it.
            (
                "mcp_server_denylist",
                &mcp_server_denylist,
                Severity::Warning,
            ),
        ] {
            for (index, name) in list.iter().flatten().enumerate() {
                let location = context
                    .document
                    .location(&format!("/security/{key}/{index}"));
                self.security.push((name.clone(), severity, location));
            }
        }
        let lists: &mut ServerLists = &mut self.config.security;
        // Merged files must never be less strict than any single one.
        if let Some(mut allow) = mcp_server_allowlist.filter(|allow| !allow.is_empty()) {
            if let Some(before) = lists.allow.take() {
                allow.retain(|name| before.contains(name));
            }
            lists.allow = Some(allow);
        }
        lists.deny.extend(mcp_server_denylist.unwrap_or_default());
    }

    /// Records texts that must name tools, to be checked once all servers are known.
    fn add_selections(
        &mut self,
        pointer: &str,
        texts: &[String],
        mode: SelectorMode,
        context: &FileContext<'_>,
    ) {
        for (index, text) in texts.iter().enumerate() {
            let location = context.document.location(&format!("{pointer}/{index}"));
            self.selections.push((text.clone(), mode, location));
        }
    }

    fn add_control(&mut self, scanner: &ScannerTable, results: &ResultsTable) {
        let ScannerSettings {
            path_traversal,
            shell,
            private_address,
            secret,
        } = &mut self.config.scanner;
        set_if_some(path_traversal, scanner.path_traversal);
        set_if_some(shell, scanner.shell);
        set_if_some(private_address, scanner.private_address);
        set_if_some(secret, scanner.secret);
        let ResultSettings {
            max_bytes,
            keep,
            redact_secrets,
            output_schema,
        } = &mut self.config.results;
        set_if_some(max_bytes, results.max_bytes.map(|bytes| bytes as usize));
        set_if_some(keep, non_zero_duration(results.keep));
        set_if_some(redact_secrets, results.redact_secrets);
        set_if_some(output_schema, results.output_schema);
    }

    fn finish(self, findings: &mut Vec<ConfigFinding>) -> Config {
        findings.extend(self.check_provider_names());
        let mut config = self.config;
        let (servers, locations): (Vec<ServerConfig>, Vec<ConfigLocation>) =
            self.servers.into_values().unzip();
        let mut ids: HashMap<&str, &ServerName> = HashMap::new();
        for (server, location) in servers.iter().zip(&locations) {
            let unknown = |name: &&ServerName| {
                servers
                    .iter()
                    .all(|other| other.name != **name || other.name == server.name)
            };
            if let Some(name) = server.fallback.as_ref().filter(unknown) {
                let message =
                    format!("`fallback` names `{name}`, which is not another configured server");
                findings.push(ConfigFinding {
                    severity: Severity::Error,
                    location: location.clone(),
                    message,
                });
            }
        }
        for (server, location) in servers.iter().zip(locations) {
            let other = servers
                .iter()
                .find(|other| other.name.as_str() == server.id && other.name != server.name);
            if let Some(other) = other
                .map(|other| &other.name)
                .or(ids.insert(&server.id, &server.name))
            {
                let message = format!(
                    "`client_id` is the same as the id or name of server `{other}`; choose another"
                );
                findings.push(ConfigFinding {
                    severity: Severity::Error,
                    location,
                    message,
                });
            }
        }
        config.servers = servers;
        let names = config.server_names();
        if findings
            .iter()
            .any(|finding| finding.severity == Severity::Error)
        {
            return config; // A server may be missing, so findings about names could be wrong.
        }
        for (name, severity, location) in self.security {
            if names.iter().all(|known| known.as_str() != name) {
                let suggestion = find_nearest(&name, names.iter().map(ServerName::as_str));
                let hint = suggestion
                    .map(|suggestion| format!("; did you mean `{suggestion}`?"))
                    .unwrap_or_default();
                let message = format!("no server named `{name}`{hint}");
                findings.push(ConfigFinding {
                    severity,
                    location,
                    message,
                });
            }
        }
        for rule in &self.rules {
            findings.extend(rule.check(&names));
        }
        for (text, mode, location) in self.selections {
            if let Err(error) = Selector::parse(&text, &names, mode) {
                findings.push(ConfigFinding {
                    severity: selector_severity(&error),
                    location,
                    message: error.to_string(),
                });
            }
        }
        findings.extend(caller::check_role_names(self.roles_used, &config));
        config.permissions.rules = self.rules.into_iter().map(|rule| rule.spec).collect();
        let location = self.environment_location;
        findings.extend(check_environment(&config, location, self.environments));
        config
    }
}

/// Reports an active environment without settings if a similarly named one has some.
fn check_environment(
    config: &Config,
    environment_location: Option<ConfigLocation>,
    mut known: BTreeSet<String>,
) -> Option<ConfigFinding> {
    let (name, location) = (config.environment.as_ref()?, environment_location?);
    let rules = config.permissions.rules.iter();
    known.extend(rules.flat_map(|rule| rule.when.environments.iter().cloned()));
    if known.contains(name) {
        return None;
    }
    let suggestion = find_nearest(name, known.iter().map(String::as_str))?;
    Some(ConfigFinding {
        severity: Severity::Error,
        location,
        message: format!("no settings for environment `{name}`; did you mean `{suggestion}`?"),
    })
}

fn parse_origins(origins: &[String], context: &mut FileContext<'_>) -> Vec<String> {
    let mut parsed = Vec::new();
    for (index, origin) in origins.iter().enumerate() {
        if let Some(url) = parse_url(&format!("/allowed_origins/{index}"), origin, context) {
            parsed.push(url.origin().ascii_serialization());
        }
    }
    parsed
}

/// Returns the set of these approvers; an empty list is an empty set.
pub(super) fn approvers(list: Option<Vec<Approver>>) -> Option<Approvers> {
    list.map(|list| list.into_iter().collect())
}

pub(super) fn set_if_some<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}
