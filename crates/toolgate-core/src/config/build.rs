//! From what users wrote to what the program uses: merges the files and checks what a schema
//! cannot say.

mod caller;
mod entry;
mod provider;
mod rule;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use entry::{Entry, duration, read_url};
use indexmap::IndexMap;
use rule::{WrittenRule, severity};

use super::check::{Read, nearest};
use super::document::{Document, escape};
use super::file::{
    AuditTable, File, Mcp, ResultsTable, ScannerTable, Security, ServerTable, ToolManagerConfig,
};
use super::{
    Audit, Config, Finding, Listen, Place, Results, Scanner, Server, ServerLists, Severity,
    ToolManager,
};
use crate::name::ServerName;
use crate::pattern::{Reading, Selector};

pub(super) fn config(
    documents: &[Document],
    reads: Vec<Read>,
    findings: &mut Vec<Finding>,
) -> Config {
    let mut merge = Merge::default();
    for (document, read) in documents.iter().zip(reads) {
        let mut file = Reader {
            document,
            left_out: read.left_out,
            findings,
        };
        merge.add(read.file, &mut file);
    }
    merge.finish(findings)
}

/// The files so far, later ones over earlier ones.
#[derive(Default)]
struct Merge {
    config: Config,
    servers: IndexMap<ServerName, (Server, Place)>,
    rules: Vec<WrittenRule>,
    security: Vec<(String, Place)>,
    /// Texts that must name tools of configured servers, and how they are read.
    selections: Vec<(String, Reading, Place)>,
    /// Roles that are named somewhere.
    roles_used: Vec<(String, Severity, Place)>,
    /// Environments that have an overlay.
    environments: BTreeSet<String>,
    /// Models that aliases stand for.
    model_names: Vec<(String, Place)>,
    /// Where the default provider was named.
    default_provider: Option<Place>,
    /// Where the environment in force was chosen.
    chosen: Option<Place>,
}

/// One file while it is being read.
struct Reader<'a> {
    document: &'a Document,
    left_out: BTreeSet<String>,
    findings: &'a mut Vec<Finding>,
}

impl Reader<'_> {
    fn say(&mut self, severity: Severity, pointer: &str, message: impl Into<String>) {
        self.findings.push(Finding {
            severity,
            place: self.document.place(pointer),
            message: message.into(),
        });
    }

    /// Pointers of the entries of a list, which lacks those that were left out.
    fn pointers(&self, list: &'static str) -> impl Iterator<Item = String> + use<> {
        let left_out = self.left_out.clone();
        (0..)
            .map(move |index| format!("{list}/{index}"))
            .filter(move |pointer| !left_out.contains(pointer))
    }

    fn error(&mut self, pointer: &str, message: impl Into<String>) {
        self.say(Severity::Error, pointer, message);
    }

    fn warn(&mut self, pointer: &str, message: impl Into<String>) {
        self.say(Severity::Warning, pointer, message);
    }
}

impl Merge {
    fn add(&mut self, file: File, reader: &mut Reader<'_>) {
        let File {
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
            scanner,
            results,
            audit,
            environment,
            environments,
            tool_name_style,
            host,
            port,
            data_dir,
            admin_key,
            allowed_hosts,
            allowed_origins,
            public_url,
        } = file;
        self.add_servers(&mcp_servers, &mcp, reader);
        self.add_tool_manager(mcp, reader);
        self.add_security(security, reader);
        self.add_permissions(permissions, reader);
        self.add_roles(roles, reader);
        self.add_keys(keys, reader);
        self.add_virtual_servers(virtual_servers, reader);
        self.add_providers(providers, reader);
        self.add_aliases(model_aliases, default_provider, reader);
        self.add_prices(prices);
        self.config.agent = self.config.agent.and(agent.into());
        self.config.code_mode.set(code_mode);
        self.add_control(&scanner, &results, &audit);
        self.environments.extend(environments.into_keys());
        if environment.is_some() {
            self.chosen = Some(reader.document.place("/environment"));
            self.config.environment = environment;
        }
        set(&mut self.config.tool_name_style, tool_name_style);
        let listen = &mut self.config.listen;
        *listen = Listen {
            host: host.or(listen.host.take()),
            port: port.or(listen.port),
            data_dir: data_dir.map(PathBuf::from).or(listen.data_dir.take()),
            admin_key: admin_key.or(listen.admin_key.take()),
            allowed_hosts: allowed_hosts.unwrap_or(std::mem::take(&mut listen.allowed_hosts)),
            allowed_origins: allowed_origins
                .map(|origins| read_origins(&origins, reader))
                .unwrap_or(std::mem::take(&mut listen.allowed_origins)),
            public_url: public_url
                .and_then(|url| read_url("/public_url", &url, reader))
                .or(listen.public_url.take()),
        };
    }

    fn add_servers(
        &mut self,
        tables: &IndexMap<String, ServerTable>,
        mcp: &Mcp,
        reader: &mut Reader<'_>,
    ) {
        let pointers = reader.pointers("/mcp/client_configs");
        let clients = mcp.client_configs.iter().zip(pointers);
        let clients =
            clients.map(|(client, pointer)| (pointer, client.name.clone(), Entry::Client(client)));
        let tables = tables.iter().map(|(name, table)| {
            let pointer = format!("/mcp_servers/{}", escape(name));
            (pointer, name.clone(), Entry::Table(table))
        });
        let mut own: HashMap<String, String> = HashMap::new();
        for (pointer, name, entry) in clients.chain(tables) {
            let name = match ServerName::parse(&name) {
                Ok(name) => name,
                Err(error) => {
                    reader.error(&pointer, error.to_string());
                    continue;
                }
            };
            if let Some(other) = own.insert(name.folded(), name.to_string()) {
                reader.error(
                    &pointer,
                    format!("server `{name}` is the same name as `{other}` (case, `-` and `_` do not count); rename one"),
                );
                continue;
            }
            let same = |known: &ServerName| known.folded() == name.folded() && *known != name;
            if let Some(other) = self.servers.keys().find(|known| same(known)) {
                reader.error(
                    &pointer,
                    format!(
                        "server `{name}` is spelled `{other}` in another file; use one spelling"
                    ),
                );
                continue;
            }
            if let Some(server) = entry.server(&name, &pointer, reader) {
                let place = reader.document.place(&pointer);
                self.servers.shift_remove(&name);
                self.servers.insert(name, (server, place));
            }
        }
    }

    fn add_tool_manager(&mut self, mcp: Mcp, reader: &Reader<'_>) {
        let Mcp {
            enabled,
            blocked_tools,
            resource_tools,
            client_configs: _,
            tool_manager_config,
            tool_sync_interval,
            health_interval,
        } = mcp;
        let ToolManagerConfig {
            tool_execution_timeout,
            max_agent_depth,
            disable_auto_tool_inject,
            code_mode_binding_level,
        } = tool_manager_config;
        self.select("/mcp/blocked_tools", &blocked_tools, Reading::Wide, reader);
        self.config.blocked_tools.extend(blocked_tools);
        let manager: &mut ToolManager = &mut self.config.tool_manager;
        set(&mut manager.enabled, enabled);
        set(&mut manager.resource_tools, resource_tools);
        set(
            &mut manager.tool_execution_timeout,
            tool_execution_timeout
                .map(|span| span.0)
                .filter(|timeout| !timeout.is_zero()),
        );
        set(&mut manager.max_agent_depth, max_agent_depth);
        set(&mut manager.binding_level, code_mode_binding_level);
        set(
            &mut manager.inject_tools,
            disable_auto_tool_inject.map(|disabled| !disabled),
        );
        set(
            &mut manager.health_interval,
            health_interval
                .map(|span| span.0)
                .filter(|interval| !interval.is_zero()),
        );
        set(
            &mut manager.tool_sync_interval,
            tool_sync_interval.map(|span| Some(span.0).filter(|interval| !interval.is_zero())),
        );
    }

    fn add_security(&mut self, security: Security, reader: &Reader<'_>) {
        let Security {
            mcp_server_allowlist,
            mcp_server_denylist,
        } = security;
        for (key, list) in [
            ("mcp_server_allowlist", &mcp_server_allowlist),
            ("mcp_server_denylist", &mcp_server_denylist),
        ] {
            for (index, name) in list.iter().flatten().enumerate() {
                let place = reader.document.place(&format!("/security/{key}/{index}"));
                self.security.push((name.clone(), place));
            }
        }
        let lists: &mut ServerLists = &mut self.config.security;
        // The files together are never laxer than one of them alone.
        if let Some(mut allow) = mcp_server_allowlist.filter(|allow| !allow.is_empty()) {
            if let Some(before) = lists.allow.take() {
                allow.retain(|name| before.contains(name));
            }
            lists.allow = Some(allow);
        }
        lists.deny.extend(mcp_server_denylist.unwrap_or_default());
    }

    /// Notes texts that must name tools, to be looked at once all servers are known.
    fn select(&mut self, pointer: &str, texts: &[String], reading: Reading, reader: &Reader<'_>) {
        for (index, text) in texts.iter().enumerate() {
            let place = reader.document.place(&format!("{pointer}/{index}"));
            self.selections.push((text.clone(), reading, place));
        }
    }

    fn add_control(&mut self, scanner: &ScannerTable, results: &ResultsTable, audit: &AuditTable) {
        let Scanner {
            path_traversal,
            shell,
            private_address,
            secret,
        } = &mut self.config.scanner;
        set(path_traversal, scanner.path_traversal);
        set(shell, scanner.shell);
        set(private_address, scanner.private_address);
        set(secret, scanner.secret);
        let Results {
            max_bytes,
            keep,
            redact_secrets,
        } = &mut self.config.results;
        set(max_bytes, results.max_bytes.map(|most| most as usize));
        set(keep, duration(results.keep));
        set(redact_secrets, results.redact_secrets);
        let Audit { content, retention } = &mut self.config.audit;
        set(content, audit.content);
        let days = |days: u32| std::time::Duration::from_secs(u64::from(days) * 24 * 3600);
        let kept = audit.retention_days;
        set(retention, kept.map(|kept| (kept > 0).then(|| days(kept))));
    }

    fn finish(self, findings: &mut Vec<Finding>) -> Config {
        findings.extend(self.unknown_providers());
        let mut config = self.config;
        let (servers, places): (Vec<Server>, Vec<Place>) = self.servers.into_values().unzip();
        let mut ids: HashMap<&str, &ServerName> = HashMap::new();
        for (server, place) in servers.iter().zip(&places) {
            let unknown = |name: &&ServerName| {
                servers
                    .iter()
                    .all(|other| other.name != **name || other.name == server.name)
            };
            if let Some(name) = server.fallback.as_ref().filter(unknown) {
                let message = format!("`fallback` names `{name}`, which is no other server");
                findings.push(Finding {
                    severity: Severity::Error,
                    place: place.clone(),
                    message,
                });
            }
        }
        for (server, place) in servers.iter().zip(places) {
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
                findings.push(Finding {
                    severity: Severity::Error,
                    place,
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
            return config; // a server may be missing, so what is said of names could be wrong
        }
        for (name, place) in self.security {
            if names.iter().all(|known| known.as_str() != name) {
                let near = nearest(&name, names.iter().map(ServerName::as_str));
                let hint = near
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                let message = format!("no server is called `{name}`{hint}");
                findings.push(Finding {
                    severity: Severity::Warning,
                    place,
                    message,
                });
            }
        }
        for rule in &self.rules {
            findings.extend(rule.finding(&names));
        }
        for (text, reading, place) in self.selections {
            if let Err(error) = Selector::read(&text, &names, reading) {
                findings.push(Finding {
                    severity: severity(&error),
                    place,
                    message: error.to_string(),
                });
            }
        }
        findings.extend(caller::unknown_roles(self.roles_used, &config));
        config.permissions.rules = self.rules.into_iter().map(|rule| rule.spec).collect();
        let environments = self.environments;
        findings.extend(mistyped_environment(&config, self.chosen, environments));
        config
    }
}

/// An environment for which nothing is said, but something for one of nearly the same name.
fn mistyped_environment(
    config: &Config,
    chosen: Option<Place>,
    mut known: BTreeSet<String>,
) -> Option<Finding> {
    let (name, place) = (config.environment.as_ref()?, chosen?);
    let rules = config.permissions.rules.iter();
    known.extend(rules.flat_map(|rule| rule.when.environments.iter().cloned()));
    if known.contains(name) {
        return None;
    }
    let near = nearest(name, known.iter().map(String::as_str))?;
    Some(Finding {
        severity: Severity::Error,
        place,
        message: format!("nothing is said for the environment `{name}`; did you mean `{near}`?"),
    })
}

fn read_origins(origins: &[String], reader: &mut Reader<'_>) -> Vec<String> {
    let mut read = Vec::new();
    for (index, origin) in origins.iter().enumerate() {
        if let Some(url) = read_url(&format!("/allowed_origins/{index}"), origin, reader) {
            read.push(url.origin().ascii_serialization());
        }
    }
    read
}

pub(super) fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}
