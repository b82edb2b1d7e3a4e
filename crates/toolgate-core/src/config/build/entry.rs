//! Builds and checks a server from either file format.

mod connection;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;

pub(super) use connection::parse_url;
use connection::{client_connection, table_connection};

use super::{FileContext, approvers};
use crate::config::duration::ConfigDuration;
use crate::config::file::{AuthType, ClientConfig, ServerTable, ToolTable};
use crate::config::{
    DefinitionOverrides, ServerConfig, ServerConnection, ServerLimits, ServerTuning, ToolLimits,
    micro_usd,
};
use crate::name::ServerName;
use crate::policy::{ToolList, ToolLists};
use crate::rate::Rate;

/// A server entry in either file format.
pub(super) enum ServerEntry<'a> {
    Client(&'a ClientConfig),
    Table(&'a ServerTable),
}

impl ServerEntry<'_> {
    pub(super) fn build(
        &self,
        name: &ServerName,
        pointer: &str,
        context: &mut FileContext<'_>,
    ) -> Option<ServerConfig> {
        match self {
            Self::Client(client) => from_client(client, name, pointer, context),
            Self::Table(table) => from_table(table, name, pointer, context),
        }
    }
}

fn from_client(
    client: &ClientConfig,
    name: &ServerName,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<ServerConfig> {
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
        reconnect_wait,
        tool_sync_interval,
        is_ping_available,
        max_in_flight,
        max_in_flight_per_key,
        max_queue,
        idle_stop,
        fallback,
        rate_limit,
        cache_ttl,
        tools,
        tool_pricing,
        allow_on_all_virtual_keys,
        resources,
        approval_by,
        argument_check,
        definitions,
        definition_scan,
        per_session,
        is_code_mode_client,
        disabled,
        protocol,
    } = client;
    check_auth_type(*auth_type, pointer, context);
    let connection = client_connection(client, pointer, context);
    let mut parse_list = |key: &str, texts: &Vec<String>| {
        parse_tool_list(&format!("{pointer}/{key}"), texts, context)
    };
    let lists = ToolLists {
        execute: parse_list("tools_to_execute", tools_to_execute)?,
        auto_execute: parse_list("tools_to_auto_execute", tools_to_auto_execute)?,
    };
    check_lists(&lists, pointer, context);
    let tools = build_tool_limits(tools, tool_pricing);
    let connection = connection?;
    Some(ServerConfig {
        name: name.clone(),
        id: client_id.clone().unwrap_or_else(|| name.to_string()),
        enabled: !disabled,
        tuning: ServerTuning {
            sync_interval: non_zero_duration(*tool_sync_interval),
            ping: is_ping_available.unwrap_or(true),
            ..TuningKeys {
                max_in_flight: *max_in_flight,
                max_in_flight_per_key: *max_in_flight_per_key,
                max_queue: *max_queue,
                idle_stop: *idle_stop,
            }
            .build(&connection, pointer, context)
        },
        fallback: parse_server_name(fallback.as_deref(), &format!("{pointer}/fallback"), context),
        connection,
        protocol: *protocol,
        lists,
        timeout: non_zero_duration(*tool_execution_timeout),
        reconnect_wait: reconnect_wait.map(|wait| wait.0),
        limits: build_limits(*rate_limit, *cache_ttl, tools),
        allow_on_all_keys: *allow_on_all_virtual_keys,
        resources: resources.unwrap_or(true),
        approval_by: approvers(approval_by.clone()),
        argument_check: *argument_check,
        definitions: DefinitionOverrides::new(*definitions, *definition_scan),
        per_session: *per_session,
        code_mode: *is_code_mode_client,
    })
}

fn check_auth_type(auth_type: Option<AuthType>, pointer: &str, context: &mut FileContext<'_>) {
    if !matches!(auth_type, None | Some(AuthType::None | AuthType::Headers)) {
        context.error(
            &format!("{pointer}/auth_type"),
            "only `none` and `headers` are supported; put a token in `headers`",
        );
    }
}

fn from_table(
    table: &ServerTable,
    name: &ServerName,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<ServerConfig> {
    let ServerTable {
        command: _,
        args: _,
        env: _,
        cwd: _,
        env_groups: _,
        sandbox: _,
        url: _,
        headers: _,
        allowed_extra_headers: _,
        tls: _,
        enabled,
        timeout,
        reconnect_wait,
        max_in_flight,
        max_in_flight_per_key,
        max_queue,
        idle_stop,
        fallback,
        rate_limit,
        cache_ttl,
        tools,
        tool_pricing,
        allow_on_all_virtual_keys,
        resources,
        approval_by,
        argument_check,
        definitions,
        definition_scan,
        per_session,
        is_code_mode_client,
        transport: _,
        protocol,
        tools_to_execute,
        tools_to_auto_execute,
    } = table;
    let connection = table_connection(table, pointer, context)?;
    let list =
        |key: &str, list: &Option<Vec<String>>, absent, context: &mut FileContext<'_>| match list {
            Some(names) => parse_tool_list(&format!("{pointer}/{key}"), names, context),
            None => Some(absent),
        };
    let lists = ToolLists {
        execute: list("tools_to_execute", tools_to_execute, ToolList::All, context)?,
        auto_execute: list(
            "tools_to_auto_execute",
            tools_to_auto_execute,
            ToolList::none(),
            context,
        )?,
    };
    check_lists(&lists, pointer, context);
    let tools = build_tool_limits(tools, tool_pricing);
    Some(ServerConfig {
        name: name.clone(),
        id: name.to_string(),
        enabled: enabled.unwrap_or(true),
        tuning: TuningKeys {
            max_in_flight: *max_in_flight,
            max_in_flight_per_key: *max_in_flight_per_key,
            max_queue: *max_queue,
            idle_stop: *idle_stop,
        }
        .build(&connection, pointer, context),
        fallback: parse_server_name(fallback.as_deref(), &format!("{pointer}/fallback"), context),
        connection,
        protocol: *protocol,
        lists,
        timeout: non_zero_duration(*timeout),
        reconnect_wait: reconnect_wait.map(|wait| wait.0),
        limits: build_limits(*rate_limit, *cache_ttl, tools),
        allow_on_all_keys: *allow_on_all_virtual_keys,
        resources: resources.unwrap_or(true),
        approval_by: approvers(approval_by.clone()),
        argument_check: *argument_check,
        definitions: DefinitionOverrides::new(*definitions, *definition_scan),
        per_session: *per_session,
        code_mode: *is_code_mode_client,
    })
}

/// Keys for concurrency and idling that both file formats have.
struct TuningKeys {
    max_in_flight: Option<u32>,
    max_in_flight_per_key: Option<u32>,
    max_queue: Option<u32>,
    idle_stop: Option<ConfigDuration>,
}

impl TuningKeys {
    fn build(
        self,
        connection: &ServerConnection,
        pointer: &str,
        context: &mut FileContext<'_>,
    ) -> ServerTuning {
        let idle_stop = non_zero_duration(self.idle_stop);
        if idle_stop.is_some() && !matches!(connection, ServerConnection::Stdio(_)) {
            context.error(
                &format!("{pointer}/idle_stop"),
                "only a stdio server can be stopped when idle",
            );
        }
        let default = ServerTuning::default();
        let size = |value: Option<u32>, default| value.map_or(default, |value| value as usize);
        ServerTuning {
            max_in_flight: size(self.max_in_flight, default.max_in_flight),
            max_in_flight_per_key: self.max_in_flight_per_key.map(|max| max as usize),
            max_queue: size(self.max_queue, default.max_queue),
            idle_stop,
            ..default
        }
    }
}

fn build_limits(
    rate: Option<Rate>,
    cache_ttl: Option<ConfigDuration>,
    tools: BTreeMap<String, ToolLimits>,
) -> ServerLimits {
    ServerLimits {
        rate,
        cache_ttl: non_zero_duration(cache_ttl),
        tools,
    }
}

fn build_tool_limits(
    tables: &IndexMap<String, ToolTable>,
    pricing: &IndexMap<String, f64>,
) -> BTreeMap<String, ToolLimits> {
    let mut limits: BTreeMap<String, ToolLimits> = BTreeMap::new();
    for (tool, usd) in pricing {
        limits.entry(tool.clone()).or_default().price = Some(micro_usd(*usd));
    }
    for (tool, table) in tables {
        let ToolTable {
            timeout,
            rate_limit,
            max_in_flight,
            cache_ttl,
            price,
            argument_check,
        } = table;
        let limit = limits.entry(tool.clone()).or_default();
        *limit = ToolLimits {
            timeout: non_zero_duration(*timeout),
            rate: *rate_limit,
            max_in_flight: max_in_flight.map(|count| count as usize),
            cache_ttl: non_zero_duration(*cache_ttl),
            price: price.map(micro_usd).or(limit.price),
            argument_check: *argument_check,
        };
    }
    limits
}

/// Treats a zero duration as absent.
pub(super) fn non_zero_duration(span: Option<ConfigDuration>) -> Option<Duration> {
    span.map(|span| span.0).filter(|value| !value.is_zero())
}

fn parse_server_name(
    text: Option<&str>,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<ServerName> {
    match ServerName::parse(text?) {
        Ok(name) => Some(name),
        Err(error) => fail(pointer, &error.to_string(), context),
    }
}

fn parse_tool_list(
    pointer: &str,
    names: &[String],
    context: &mut FileContext<'_>,
) -> Option<ToolList> {
    if names.iter().any(|name| name == "*") {
        if names.len() > 1 {
            return fail(
                pointer,
                "`*` means all tools and must be the only entry",
                context,
            );
        }
        return Some(ToolList::All);
    }
    Some(ToolList::Only(names.iter().cloned().collect()))
}

fn check_lists(lists: &ToolLists, pointer: &str, context: &mut FileContext<'_>) {
    if let Some(reason) = lists.describe_empty() {
        context.warn(&format!("{pointer}/tools_to_execute"), reason);
        return;
    }
    let pointer = &format!("{pointer}/tools_to_auto_execute");
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
        context.warn(
            pointer,
            format!(
                "{} has no effect unless it is also in `tools_to_execute`",
                names.join(", ")
            ),
        );
    }
}

/// Reports an error and returns `None`.
fn fail<T>(pointer: &str, message: &str, context: &mut FileContext<'_>) -> Option<T> {
    context.error(pointer, message);
    None
}
