//! One server, from either spelling.

mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;

pub(super) use link::read_url;
use link::{client_link, table_link};

use super::Reader;
use crate::config::duration::Span;
use crate::config::file::{AuthType, ClientConfig, ServerTable, ToolTable};
use crate::config::{Care, Limits, Link, Server, ToolLimits, micro_usd};
use crate::name::ServerName;
use crate::policy::{ToolList, ToolLists};

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
        rate_limit,
        cache_ttl,
        tools,
        tool_pricing,
        allow_on_all_virtual_keys,
        resources,
        per_session,
        is_code_mode_client,
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
    let unasked = format!("{pointer}/tools_to_auto_execute");
    let lists = ToolLists {
        execute: tool_list(
            &format!("{pointer}/tools_to_execute"),
            tools_to_execute,
            reader,
        )?,
        auto_execute: tool_list(&unasked, tools_to_auto_execute, reader)?,
    };
    check_lists(&lists, &unasked, reader);
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
        limits: Limits {
            rate: *rate_limit,
            cache_ttl: duration(*cache_ttl),
            tools: tool_limits(tools, tool_pricing),
        },
        on_all_keys: *allow_on_all_virtual_keys,
        resources: resources.unwrap_or(true),
        per_session: *per_session,
        code_mode: *is_code_mode_client,
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
        rate_limit,
        cache_ttl,
        tools,
        tool_pricing,
        allow_on_all_virtual_keys,
        resources,
        per_session,
        is_code_mode_client,
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
        limits: Limits {
            rate: *rate_limit,
            cache_ttl: duration(*cache_ttl),
            tools: tool_limits(tools, tool_pricing),
        },
        on_all_keys: *allow_on_all_virtual_keys,
        resources: resources.unwrap_or(true),
        per_session: *per_session,
        code_mode: *is_code_mode_client,
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

fn tool_limits(
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
        } = table;
        let limit = limits.entry(tool.clone()).or_default();
        *limit = ToolLimits {
            timeout: duration(*timeout),
            rate: *rate_limit,
            max_in_flight: max_in_flight.map(|most| most as usize),
            cache_ttl: duration(*cache_ttl),
            price: price.map(micro_usd).or(limit.price),
        };
    }
    limits
}

/// Zero means "as if it were not there".
pub(super) fn duration(span: Option<Span>) -> Option<Duration> {
    span.map(|span| span.0)
        .filter(|duration| !duration.is_zero())
}

fn server_name(text: Option<&str>, pointer: &str, reader: &mut Reader<'_>) -> Option<ServerName> {
    match ServerName::parse(text?) {
        Ok(name) => Some(name),
        Err(error) => missing(pointer, &error.to_string(), reader),
    }
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

fn missing<T>(pointer: &str, message: &str, reader: &mut Reader<'_>) -> Option<T> {
    reader.error(pointer, message);
    None
}
