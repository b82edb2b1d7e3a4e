//! Builds and checks the connection of a server from either file format.

use std::path::PathBuf;

use indexmap::IndexMap;
use url::Url;

use super::super::FileContext;
use super::fail;
use crate::config::document::escape_step;
use crate::config::file::{
    ClientConfig, ConnectionType, SandboxName, SandboxSetting, SandboxTable, ServerTable,
    StdioConfig, TlsConfig, TransportName, UserSetting,
};
use crate::config::{
    HttpConnection, HttpTransport, ProcessLimits, Sandbox, SandboxUser, ServerConnection,
    StdioConnection, StrictSandbox, Tls,
};
use crate::header;
use crate::secret::Secret;

pub(super) fn client_connection(
    client: &ClientConfig,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<ServerConnection> {
    match client.connection_type {
        ConnectionType::Stdio => match &client.stdio_config {
            Some(stdio) => Some(ServerConnection::Stdio(stdio_connection(
                stdio,
                &format!("{pointer}/stdio_config"),
                context,
            )?)),
            None => fail(
                pointer,
                "a `stdio` server needs `stdio_config` with a `command`",
                context,
            ),
        },
        ConnectionType::Http | ConnectionType::Sse => match &client.connection_string {
            Some(url) => HttpKeys {
                url_key: "connection_string",
                url,
                headers: &client.headers,
                forwarded_headers: &client.allowed_extra_headers,
                tls: &client.tls_config,
                transport: match client.connection_type {
                    ConnectionType::Sse => HttpTransport::Sse,
                    _ => HttpTransport::Auto,
                },
            }
            .build(pointer, context),
            None => fail(
                pointer,
                "an HTTP server needs `connection_string` with its URL",
                context,
            ),
        },
        ConnectionType::Inprocess => fail(
            &format!("{pointer}/connection_type"),
            "`inprocess` servers are registered by the program that embeds Toolgate, not in a file",
            context,
        ),
    }
}

/// Warns about keys that have no effect for the table's kind of server.
fn check_unused_keys(table: &ServerTable, pointer: &str, context: &mut FileContext<'_>) {
    let stdio = [
        ("args", table.args.is_empty()),
        ("env", table.env.is_empty()),
        ("cwd", table.cwd.is_none()),
        ("env_groups", table.env_groups.is_empty()),
        ("sandbox", table.sandbox.is_none()),
    ];
    let http = [
        ("headers", table.headers.is_empty()),
        (
            "allowed_extra_headers",
            table.allowed_extra_headers.is_empty(),
        ),
    ];
    let (kind, keys) = if table.url.is_some() {
        ("an HTTP", &stdio[..])
    } else {
        ("a stdio", &http[..])
    };
    for (key, _) in keys.iter().filter(|(_, absent)| !absent) {
        context.warn(
            &format!("{pointer}/{key}"),
            format!("`{key}` has no effect on {kind} server"),
        );
    }
}

pub(super) fn table_connection(
    table: &ServerTable,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<ServerConnection> {
    check_unused_keys(table, pointer, context);
    let connection = match (table.transport, &table.command, &table.url) {
        (_, Some(_), Some(_)) => {
            return fail(
                pointer,
                "has both `command` and `url`; remove one of them",
                context,
            );
        }
        (TransportName::Http | TransportName::Sse, None, None) => {
            return fail(pointer, "an `http` server needs `url`", context);
        }
        (TransportName::Stdio, None, _) => {
            return fail(pointer, "a `stdio` server needs `command`", context);
        }
        (TransportName::Http | TransportName::Sse, Some(_), None) => {
            return fail(
                pointer,
                "an `http` server has a `url`, not a `command`",
                context,
            );
        }
        (TransportName::Auto, None, None) => {
            return fail(pointer, "needs `command` or `url`", context);
        }
        (TransportName::Auto | TransportName::Stdio, Some(command), None) => {
            check_command(&format!("{pointer}/command"), command, context);
            for variable in table.env.keys() {
                check_variable(
                    &format!("{pointer}/env/{}", escape_step(variable)),
                    variable,
                    context,
                );
            }
            ServerConnection::Stdio(StdioConnection {
                command: command.clone(),
                args: table.args.clone(),
                env: table.env.clone(),
                cwd: table.cwd.as_ref().map(PathBuf::from),
                env_groups: table.env_groups.clone(),
                sandbox: build_sandbox(table.sandbox.as_ref(), pointer, context),
            })
        }
        (transport, None, Some(url)) => HttpKeys {
            url_key: "url",
            url,
            headers: &table.headers,
            forwarded_headers: &table.allowed_extra_headers,
            tls: &table.tls,
            transport: match transport {
                TransportName::Sse => HttpTransport::Sse,
                TransportName::Http => HttpTransport::Streamable,
                TransportName::Auto | TransportName::Stdio => HttpTransport::Auto,
            },
        }
        .build(pointer, context)?,
    };
    Some(connection)
}

fn stdio_connection(
    stdio: &StdioConfig,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<StdioConnection> {
    let StdioConfig {
        command,
        args,
        envs,
        cwd,
        env_groups,
        sandbox,
    } = stdio;
    check_command(&format!("{pointer}/command"), command, context);
    let mut env = IndexMap::new();
    for (index, entry) in envs.iter().enumerate() {
        let (variable, value) = Secret::of_variable(entry);
        check_variable(&format!("{pointer}/envs/{index}"), variable, context);
        env.insert(variable.to_owned(), value);
    }
    Some(StdioConnection {
        command: command.clone(),
        args: args.clone(),
        env,
        cwd: cwd.as_ref().map(PathBuf::from),
        env_groups: env_groups.clone(),
        sandbox: build_sandbox(sandbox.as_ref(), pointer, context),
    })
}

fn build_sandbox(
    setting: Option<&SandboxSetting>,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Sandbox {
    let table = match setting {
        None | Some(SandboxSetting::Profile(SandboxName::Default)) => return Sandbox::Default,
        Some(SandboxSetting::Profile(SandboxName::Off)) => return Sandbox::Off,
        Some(SandboxSetting::Profile(SandboxName::Strict)) => &SandboxTable::default(),
        Some(SandboxSetting::Strict(table)) => table,
    };
    let SandboxTable {
        read,
        write,
        network,
        user,
        memory_mb,
        cpu_seconds,
        processes,
        files,
    } = table;
    let mut absolute_paths = |key: &str, paths: &[String]| -> Vec<PathBuf> {
        for (index, path) in paths.iter().enumerate() {
            if !path.starts_with('/') {
                context.error(
                    &format!("{pointer}/sandbox/{key}/{index}"),
                    format!("`{path}` is not an absolute path"),
                );
            }
        }
        paths.iter().map(PathBuf::from).collect()
    };
    let (read, write) = (absolute_paths("read", read), absolute_paths("write", write));
    let user_pointer = format!("{pointer}/sandbox/user");
    let user = user.as_ref();
    Sandbox::Strict(StrictSandbox {
        read,
        write,
        network: *network,
        user: user.and_then(|user| build_user(user, &user_pointer, context)),
        limits: ProcessLimits {
            memory_mb: *memory_mb,
            cpu_seconds: *cpu_seconds,
            processes: *processes,
            files: *files,
        },
    })
}

fn build_user(
    setting: &UserSetting,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<SandboxUser> {
    let user = match setting {
        UserSetting::Id(id) => SandboxUser::Id(*id),
        UserSetting::Name(name) => match name.parse() {
            Ok(id) => SandboxUser::Id(id),
            Err(_) => SandboxUser::Name(name.clone()),
        },
    };
    match &user {
        SandboxUser::Id(0) => fail(
            pointer,
            "root is not a user for servers; choose another",
            context,
        ),
        SandboxUser::Name(name) if name == "root" => fail(
            pointer,
            "root is not a user for servers; choose another",
            context,
        ),
        SandboxUser::Name(name)
            if name.is_empty()
                || name.contains(|c: char| c.is_control() || c == ':' || c == '/') =>
        {
            fail(pointer, "not the name of a user", context)
        }
        SandboxUser::Id(_) | SandboxUser::Name(_) => Some(user),
    }
}

/// Keys of an HTTP server that both file formats have.
struct HttpKeys<'a> {
    /// Name of the key that holds the URL.
    url_key: &'static str,
    url: &'a Secret,
    headers: &'a IndexMap<String, Secret>,
    forwarded_headers: &'a [String],
    tls: &'a TlsConfig,
    transport: HttpTransport,
}

impl HttpKeys<'_> {
    fn build(self, pointer: &str, context: &mut FileContext<'_>) -> Option<ServerConnection> {
        // A URL from the environment is checked when the gateway connects.
        if let Secret::Literal(url) = self.url {
            parse_url(&format!("{pointer}/{}", self.url_key), url, context)?;
        }
        for (name, value) in self.headers {
            let pointer = format!("{pointer}/headers/{}", escape_step(name));
            if !header::is_valid_name(name) {
                context.error(
                    &pointer,
                    format!("`{name}` is not a valid HTTP header name"),
                );
            }
            if matches!(value, Secret::Literal(text) if text.chars().any(char::is_control)) {
                context.error(
                    &pointer,
                    "the value contains a line break or control character; remove it",
                );
            }
        }
        let TlsConfig {
            insecure_skip_verify,
            ca_cert_pem,
        } = self.tls;
        let forwarded_headers = self.forwarded_headers.iter();
        Some(ServerConnection::Http(HttpConnection {
            url: self.url.clone(),
            headers: self.headers.clone(),
            forwarded_headers: forwarded_headers
                .map(|name| name.to_ascii_lowercase())
                .collect(),
            tls: Tls {
                insecure_skip_verify: *insecure_skip_verify,
                ca_cert_pem: ca_cert_pem.clone(),
            },
            transport: self.transport,
        }))
    }
}

fn check_command(pointer: &str, command: &str, context: &mut FileContext<'_>) {
    if command.trim().is_empty() {
        context.error(pointer, "the command is empty");
    } else if command.contains(char::is_whitespace) && !command.contains('/') {
        context.warn(
            pointer,
            "the command contains a space; put arguments in `args`",
        );
    }
}

fn check_variable(pointer: &str, name: &str, context: &mut FileContext<'_>) {
    if name.is_empty() || name.contains(['=', '\0']) || name.contains(char::is_whitespace) {
        context.error(
            pointer,
            format!("`{name}` is not a valid variable name; use `NAME` or `NAME=value`"),
        );
    }
}

pub(in crate::config::build) fn parse_url(
    pointer: &str,
    text: &str,
    context: &mut FileContext<'_>,
) -> Option<Url> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Some(url),
        _ => fail(
            pointer,
            "not a URL starting with `http://` or `https://`",
            context,
        ),
    }
}
