//! One server, from either spelling.

use std::collections::BTreeSet;
use std::path::PathBuf;

use indexmap::IndexMap;
use url::Url;

use super::Reader;
use crate::config::document::escape;
use crate::config::file::{
    AuthType, ClientConfig, ConnectionType, ServerTable, StdioConfig, TlsConfig, TransportName,
};
use crate::config::{Http, Link, Server, Stdio, Tls};
use crate::name::ServerName;
use crate::policy::{ToolList, ToolLists};
use crate::secret::Secret;

/// A server in either spelling.
pub(super) enum Entry<'a> {
    Client(&'a ClientConfig),
    Table(&'a ServerTable),
}

impl Entry<'_> {
    pub(super) fn server(
        &self,
        name: &ServerName,
        pointer: &str,
        reader: &mut Reader<'_>,
    ) -> Option<Server> {
        match self {
            Self::Client(client) => from_client(client, name, pointer, reader),
            Self::Table(table) => from_table(table, name, pointer, reader),
        }
    }
}

fn from_client(
    client: &ClientConfig,
    name: &ServerName,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Option<Server> {
    let ClientConfig {
        name: _,
        client_id,
        connection_type: _,
        connection_string: _,
        stdio_config: _,
        tls_config: _,
        auth_type,
        headers: _,
        allowed_extra_headers: _,
        tools_to_execute,
        tools_to_auto_execute,
        tool_execution_timeout,
        tool_sync_interval,
        disabled,
        protocol,
    } = client;
    if !matches!(auth_type, None | Some(AuthType::None | AuthType::Headers)) {
        reader.error(
            &format!("{pointer}/auth_type"),
            "only `none` and `headers` are supported yet; put a token into `headers`",
        );
    }
    let link = client_link(client, pointer, reader);
    let lists = ToolLists {
        execute: tool_list(
            &format!("{pointer}/tools_to_execute"),
            tools_to_execute,
            reader,
        )?,
        auto_execute: tool_list(
            &format!("{pointer}/tools_to_auto_execute"),
            tools_to_auto_execute,
            reader,
        )?,
    };
    check_lists(&lists, &format!("{pointer}/tools_to_auto_execute"), reader);
    Some(Server {
        name: name.clone(),
        id: client_id.clone().unwrap_or_else(|| name.to_string()),
        enabled: !disabled,
        link: link?,
        protocol: *protocol,
        lists,
        timeout: tool_execution_timeout
            .map(|span| span.0)
            .filter(|timeout| !timeout.is_zero()),
        sync_interval: tool_sync_interval
            .map(|span| span.0)
            .filter(|interval| !interval.is_zero()),
    })
}

fn from_table(
    table: &ServerTable,
    name: &ServerName,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Option<Server> {
    let ServerTable {
        command: _,
        args: _,
        env: _,
        cwd: _,
        url: _,
        headers: _,
        allowed_extra_headers: _,
        tls: _,
        enabled,
        timeout,
        transport: _,
        protocol,
        tools_to_execute,
        tools_to_auto_execute,
    } = table;
    let link = table_link(table, pointer, reader)?;
    let list = |key: &str, list: &Option<Vec<String>>, absent, reader: &mut Reader<'_>| match list {
        Some(names) => tool_list(&format!("{pointer}/{key}"), names, reader),
        None => Some(absent),
    };
    let lists = ToolLists {
        execute: list("tools_to_execute", tools_to_execute, ToolList::All, reader)?,
        auto_execute: list(
            "tools_to_auto_execute",
            tools_to_auto_execute,
            ToolList::none(),
            reader,
        )?,
    };
    check_lists(&lists, &format!("{pointer}/tools_to_auto_execute"), reader);
    Some(Server {
        name: name.clone(),
        id: name.to_string(),
        enabled: enabled.unwrap_or(true),
        link,
        protocol: *protocol,
        lists,
        timeout: timeout
            .map(|span| span.0)
            .filter(|timeout| !timeout.is_zero()),
        sync_interval: None,
    })
}

fn client_link(client: &ClientConfig, pointer: &str, reader: &mut Reader<'_>) -> Option<Link> {
    match client.connection_type {
        ConnectionType::Stdio => match &client.stdio_config {
            Some(stdio) => Some(Link::Stdio(stdio_link(
                stdio,
                &format!("{pointer}/stdio_config"),
                reader,
            )?)),
            None => missing(
                pointer,
                "a `stdio` server needs `stdio_config` with a `command`",
                reader,
            ),
        },
        ConnectionType::Http => match &client.connection_string {
            Some(url) => http_link(
                (&format!("{pointer}/connection_string"), url),
                (&format!("{pointer}/headers"), &client.headers),
                &client.allowed_extra_headers,
                &client.tls_config,
                reader,
            ),
            None => missing(
                pointer,
                "an `http` server needs `connection_string` with its URL",
                reader,
            ),
        },
        ConnectionType::Sse => missing(
            &format!("{pointer}/connection_type"),
            "`sse` is not supported yet; most servers also speak `http`",
            reader,
        ),
        ConnectionType::Inprocess => missing(
            &format!("{pointer}/connection_type"),
            "`inprocess` servers are registered by the program that embeds Toolgate, not in a file",
            reader,
        ),
    }
}

fn table_link(table: &ServerTable, pointer: &str, reader: &mut Reader<'_>) -> Option<Link> {
    let link = match (table.transport, &table.command, &table.url) {
        (TransportName::Sse, _, _) => {
            return missing(
                &format!("{pointer}/transport"),
                "`sse` is not supported yet; leave `transport` out to speak streamable HTTP",
                reader,
            );
        }
        (_, Some(_), Some(_)) => {
            return missing(
                pointer,
                "has both `command` and `url`; keep one of them",
                reader,
            );
        }
        (TransportName::Http, None, None) => {
            return missing(pointer, "an `http` server needs `url`", reader);
        }
        (TransportName::Stdio, None, _) => {
            return missing(pointer, "a `stdio` server needs `command`", reader);
        }
        (TransportName::Http, Some(_), None) => {
            return missing(
                pointer,
                "an `http` server has a `url`, not a `command`",
                reader,
            );
        }
        (TransportName::Auto, None, None) => {
            return missing(pointer, "needs `command` or `url`", reader);
        }
        (TransportName::Auto | TransportName::Stdio, Some(command), None) => {
            check_command(&format!("{pointer}/command"), command, reader);
            for variable in table.env.keys() {
                check_variable(
                    &format!("{pointer}/env/{}", escape(variable)),
                    variable,
                    reader,
                );
            }
            Link::Stdio(Stdio {
                command: command.clone(),
                args: table.args.clone(),
                env: table.env.clone(),
                cwd: table.cwd.as_ref().map(PathBuf::from),
            })
        }
        (TransportName::Auto | TransportName::Http, None, Some(url)) => http_link(
            (&format!("{pointer}/url"), url),
            (&format!("{pointer}/headers"), &table.headers),
            &table.allowed_extra_headers,
            &table.tls,
            reader,
        )?,
    };
    Some(link)
}

fn stdio_link(stdio: &StdioConfig, pointer: &str, reader: &mut Reader<'_>) -> Option<Stdio> {
    let StdioConfig {
        command,
        args,
        envs,
        cwd,
    } = stdio;
    check_command(&format!("{pointer}/command"), command, reader);
    let mut env = IndexMap::new();
    for (index, entry) in envs.iter().enumerate() {
        let (variable, value) = match entry.split_once('=') {
            Some((variable, value)) => (variable, Secret::parse(value)),
            None => (entry.as_str(), Secret::Env(entry.clone())),
        };
        check_variable(&format!("{pointer}/envs/{index}"), variable, reader);
        env.insert(variable.to_owned(), value);
    }
    Some(Stdio {
        command: command.clone(),
        args: args.clone(),
        env,
        cwd: cwd.as_ref().map(PathBuf::from),
    })
}

fn http_link(
    (url_at, url): (&str, &Secret),
    (headers_at, headers): (&str, &IndexMap<String, Secret>),
    forwarded: &[String],
    tls: &TlsConfig,
    reader: &mut Reader<'_>,
) -> Option<Link> {
    if let Secret::Literal(url) = url {
        read_url(url_at, url, reader)?;
    }
    for (name, value) in headers {
        let pointer = format!("{headers_at}/{}", escape(name));
        if !is_token(name) {
            reader.error(&pointer, format!("`{name}` is no HTTP header name"));
        }
        if matches!(value, Secret::Literal(text) if text.chars().any(char::is_control)) {
            reader.error(
                &pointer,
                "the value has a line break or control character; remove it",
            );
        }
    }
    let TlsConfig {
        insecure_skip_verify,
        ca_cert_pem,
    } = tls;
    Some(Link::Http(Http {
        url: url.clone(),
        headers: headers.clone(),
        forwarded_headers: forwarded
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect(),
        tls: Tls {
            insecure_skip_verify: *insecure_skip_verify,
            ca_cert_pem: ca_cert_pem.clone(),
        },
    }))
}

fn tool_list(pointer: &str, names: &[String], reader: &mut Reader<'_>) -> Option<ToolList> {
    if names.iter().any(|name| name == "*") {
        if names.len() > 1 {
            return missing(
                pointer,
                "`*` stands for all tools and must stand alone",
                reader,
            );
        }
        return Some(ToolList::All);
    }
    Some(ToolList::Only(names.iter().cloned().collect()))
}

fn check_lists(lists: &ToolLists, pointer: &str, reader: &mut Reader<'_>) {
    let outside: BTreeSet<&str> = match &lists.auto_execute {
        ToolList::All => return,
        ToolList::Only(names) => names
            .iter()
            .map(String::as_str)
            .filter(|name| !lists.execute.contains(name))
            .collect(),
    };
    if !outside.is_empty() {
        let names: Vec<String> = outside.iter().map(|name| format!("`{name}`")).collect();
        reader.warn(
            pointer,
            format!(
                "{} counts only if it is in `tools_to_execute` too",
                names.join(", ")
            ),
        );
    }
}

fn check_command(pointer: &str, command: &str, reader: &mut Reader<'_>) {
    if command.trim().is_empty() {
        reader.error(pointer, "the command is empty");
    } else if command.contains(char::is_whitespace) && !command.contains('/') {
        reader.warn(
            pointer,
            "the command has a space in it; put its arguments into `args`",
        );
    }
}

fn check_variable(pointer: &str, name: &str, reader: &mut Reader<'_>) {
    if name.is_empty() || name.contains(['=', '\0']) || name.contains(char::is_whitespace) {
        reader.error(
            pointer,
            format!("`{name}` is no name of a variable; write `NAME` or `NAME=value`"),
        );
    }
}

pub(super) fn read_url(pointer: &str, text: &str, reader: &mut Reader<'_>) -> Option<Url> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Some(url),
        _ => missing(
            pointer,
            "not a URL that starts with `http://` or `https://`",
            reader,
        ),
    }
}

fn is_token(text: &str) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(token)
}

fn missing<T>(pointer: &str, message: &str, reader: &mut Reader<'_>) -> Option<T> {
    reader.error(pointer, message);
    None
}
