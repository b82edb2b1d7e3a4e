//! One server, from either spelling.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use url::Url;

use super::Reader;
use crate::config::document::escape;
use crate::config::duration::Span;
use crate::config::file::{
    AuthType, ClientConfig, ConnectionType, ServerTable, StdioConfig, TlsConfig, TransportName,
};
use crate::config::{Care, Flavour, Http, Link, Server, Stdio, Tls};
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
        is_ping_available,
        max_in_flight,
        max_queue,
        idle_stop,
        fallback,
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
    let link = link?;
    Some(Server {
        name: name.clone(),
        id: client_id.clone().unwrap_or_else(|| name.to_string()),
        enabled: !disabled,
        care: Care {
            sync_interval: duration(*tool_sync_interval),
            ping: is_ping_available.unwrap_or(true),
            ..care(
                (*max_in_flight, *max_queue),
                *idle_stop,
                &link,
                pointer,
                reader,
            )
        },
        fallback: server_name(fallback.as_deref(), &format!("{pointer}/fallback"), reader),
        link,
        protocol: *protocol,
        lists,
        timeout: duration(*tool_execution_timeout),
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
        max_in_flight,
        max_queue,
        idle_stop,
        fallback,
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
        care: care(
            (*max_in_flight, *max_queue),
            *idle_stop,
            &link,
            pointer,
            reader,
        ),
        fallback: server_name(fallback.as_deref(), &format!("{pointer}/fallback"), reader),
        link,
        protocol: *protocol,
        lists,
        timeout: duration(*timeout),
    })
}

fn care(
    (max_in_flight, max_queue): (Option<u32>, Option<u32>),
    idle_stop: Option<Span>,
    link: &Link,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Care {
    let idle_stop = duration(idle_stop);
    if idle_stop.is_some() && !matches!(link, Link::Stdio(_)) {
        reader.error(
            &format!("{pointer}/idle_stop"),
            "only a stdio server can be stopped when idle",
        );
    }
    let default = Care::default();
    let size = |value: Option<u32>, default| value.map_or(default, |value| value as usize);
    Care {
        max_in_flight: size(max_in_flight, default.max_in_flight),
        max_queue: size(max_queue, default.max_queue),
        idle_stop,
        ..default
    }
}

/// Zero means "as if it were not there".
fn duration(span: Option<Span>) -> Option<Duration> {
    span.map(|span| span.0)
        .filter(|duration| !duration.is_zero())
}

fn server_name(text: Option<&str>, pointer: &str, reader: &mut Reader<'_>) -> Option<ServerName> {
    match ServerName::parse(text?) {
        Ok(name) => Some(name),
        Err(error) => missing(pointer, &error.to_string(), reader),
    }
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
        ConnectionType::Http | ConnectionType::Sse => match &client.connection_string {
            Some(url) => http_link(
                (&format!("{pointer}/connection_string"), url),
                (&format!("{pointer}/headers"), &client.headers),
                &client.allowed_extra_headers,
                (
                    &client.tls_config,
                    match client.connection_type {
                        ConnectionType::Sse => Flavour::Sse,
                        _ => Flavour::Auto,
                    },
                ),
                reader,
            ),
            None => missing(
                pointer,
                "an HTTP server needs `connection_string` with its URL",
                reader,
            ),
        },
        ConnectionType::Inprocess => missing(
            &format!("{pointer}/connection_type"),
            "`inprocess` servers are registered by the program that embeds Toolgate, not in a file",
            reader,
        ),
    }
}

/// Keys that have no effect for the kind of server that the table describes.
fn check_idle_keys(table: &ServerTable, pointer: &str, reader: &mut Reader<'_>) {
    let stdio = [
        ("args", table.args.is_empty()),
        ("env", table.env.is_empty()),
        ("cwd", table.cwd.is_none()),
    ];
    let http = [
        ("headers", table.headers.is_empty()),
        (
            "allowed_extra_headers",
            table.allowed_extra_headers.is_empty(),
        ),
    ];
    let (kind, keys) = match table.url.is_some() {
        true => ("an HTTP", &stdio[..]),
        false => ("a stdio", &http[..]),
    };
    for (key, _) in keys.iter().filter(|(_, absent)| !absent) {
        reader.warn(
            &format!("{pointer}/{key}"),
            format!("`{key}` has no effect on {kind} server"),
        );
    }
}

fn table_link(table: &ServerTable, pointer: &str, reader: &mut Reader<'_>) -> Option<Link> {
    check_idle_keys(table, pointer, reader);
    let link = match (table.transport, &table.command, &table.url) {
        (_, Some(_), Some(_)) => {
            return missing(
                pointer,
                "has both `command` and `url`; keep one of them",
                reader,
            );
        }
        (TransportName::Http | TransportName::Sse, None, None) => {
            return missing(pointer, "an `http` server needs `url`", reader);
        }
        (TransportName::Stdio, None, _) => {
            return missing(pointer, "a `stdio` server needs `command`", reader);
        }
        (TransportName::Http | TransportName::Sse, Some(_), None) => {
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
        (flavour, None, Some(url)) => http_link(
            (&format!("{pointer}/url"), url),
            (&format!("{pointer}/headers"), &table.headers),
            &table.allowed_extra_headers,
            (
                &table.tls,
                match flavour {
                    TransportName::Sse => Flavour::Sse,
                    TransportName::Http => Flavour::Streamable,
                    TransportName::Auto | TransportName::Stdio => Flavour::Auto,
                },
            ),
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
    (tls, flavour): (&TlsConfig, Flavour),
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
        flavour,
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
