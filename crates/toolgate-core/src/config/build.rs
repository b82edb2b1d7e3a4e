//! From what users wrote to what the program uses: merges the files and checks what a schema
//! cannot say.

mod entry;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use entry::{Entry, read_url};
use indexmap::IndexMap;

use super::check::{Read, nearest};
use super::document::{Document, escape};
use super::file::{
    File, Mcp, PermissionsTable, RuleTable, Security, ServerTable, ToolManagerConfig,
};
use super::{
    Config, Finding, Listen, Permissions, Place, Server, ServerLists, Severity, ToolManager,
};
use crate::name::ServerName;
use crate::policy::{RuleError, RuleSpec};

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
}

/// A rule and what is to be said of it once all servers are known.
struct WrittenRule {
    spec: RuleSpec,
    place: Place,
    /// It has a condition that is not understood.
    conditional: bool,
}

/// One file while it is being read.
struct Reader<'a> {
    document: &'a Document,
    left_out: BTreeSet<String>,
    findings: &'a mut Vec<Finding>,
}

impl WrittenRule {
    fn finding(&self, servers: &[ServerName]) -> Option<Finding> {
        let (severity, message) = match self.spec.check(servers) {
            Err(error @ (RuleError::NoServer { .. } | RuleError::NoSuchServer { .. })) => {
                (Severity::Warning, error.to_string())
            }
            Err(error @ RuleError::Ambiguous { .. }) => (Severity::Error, error.to_string()),
            Ok(()) if self.conditional => {
                let message = "`pattern` is not supported: conditions on arguments do not exist yet, and without it the rule would say more than you meant";
                (Severity::Error, message.to_owned())
            }
            Ok(()) => return None,
        };
        Some(Finding {
            severity,
            place: self.place.clone(),
            message,
        })
    }
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
        self.add_tool_manager(mcp);
        self.add_security(security, reader);
        self.add_permissions(permissions, reader);
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

    fn add_tool_manager(&mut self, mcp: Mcp) {
        let Mcp {
            enabled,
            client_configs: _,
            tool_manager_config,
            tool_sync_interval,
            health_interval,
        } = mcp;
        let ToolManagerConfig {
            tool_execution_timeout,
            max_agent_depth,
        } = tool_manager_config;
        let manager: &mut ToolManager = &mut self.config.tool_manager;
        set(&mut manager.enabled, enabled);
        set(
            &mut manager.tool_execution_timeout,
            tool_execution_timeout
                .map(|span| span.0)
                .filter(|timeout| !timeout.is_zero()),
        );
        set(&mut manager.max_agent_depth, max_agent_depth);
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

    fn add_permissions(&mut self, permissions: PermissionsTable, reader: &mut Reader<'_>) {
        let PermissionsTable { default, rules } = permissions;
        let settings: &mut Permissions = &mut self.config.permissions;
        settings.default = settings.default.max(default);
        let pointers = reader.pointers("/permissions/rules");
        for (rule, pointer) in rules.into_iter().zip(pointers) {
            let RuleTable {
                tool,
                server,
                pattern,
                action,
            } = rule;
            if tool.is_none() && server.is_none() {
                reader.error(
                    &pointer,
                    "a rule needs `tool` or `server`; write `tool = \"*\"` for all tools",
                );
                continue;
            }
            let spec = RuleSpec {
                place: reader.document.place(&pointer).key,
                tool,
                server,
                verdict: action,
            };
            let rule = WrittenRule {
                spec,
                place: reader.document.place(&pointer),
                conditional: pattern.is_some(),
            };
            self.rules.push(rule);
        }
    }

    fn finish(self, findings: &mut Vec<Finding>) -> Config {
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
        config.permissions.rules = self.rules.into_iter().map(|rule| rule.spec).collect();
        config
    }
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

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}
