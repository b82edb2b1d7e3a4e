//! How a server is reached, from either spelling.

use std::path::PathBuf;

use indexmap::IndexMap;
use url::Url;

use super::super::Reader;
use super::missing;
use crate::config::document::escape;
use crate::config::file::{
    ClientConfig, ConnectionType, ServerTable, StdioConfig, TlsConfig, TransportName,
};
use crate::config::{Flavour, Http, Link, Stdio, Tls};
use crate::secret::Secret;

pub(super) fn client_link(
    client: &ClientConfig,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Option<Link> {
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

pub(super) fn table_link(
    table: &ServerTable,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Option<Link> {
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

pub(in crate::config::build) fn read_url(
    pointer: &str,
    text: &str,
    reader: &mut Reader<'_>,
) -> Option<Url> {
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
