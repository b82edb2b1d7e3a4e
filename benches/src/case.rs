//! Benchmark cases. To add one, add an entry to the lists that [`all_cases`] combines.

use crate::gateway::{
    GatewaySetup, SCRIPT_SERVER, ServerSetup, Transport, caller_key, server_setup,
};
use crate::load::Exchange;
use crate::mock::mcp::Era;
use crate::mock::model::Dialect;
use crate::mock::tools;
use crate::request::{self, ResponseMode};

/// One operation to measure.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Equivalent request sent directly to the upstream, if there is one.
    pub(crate) bare: Option<Exchange>,
    pub(crate) gate: Exchange,
    pub(crate) variant: GatewayVariant,
    /// Target for CPU µs per request at 64 connections.
    pub(crate) goal: Option<f64>,
    pub(crate) depth: Depth,
}

/// Gateway set-up that a case runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayVariant {
    /// Injects tools into model requests.
    Injecting,
    Plain,
}

/// Extent of the measurements of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// CPU and throughput at 64 connections.
    Cpu,
    /// Also latency at a low rate.
    Latency,
    /// Also throughput at other numbers of connections.
    Scale,
}

/// Names and keys to use at the gateway under test.
#[derive(Clone, Debug)]
pub(crate) struct TargetNames {
    /// Key for model requests; at other gateways, for all requests.
    pub(crate) key: Option<String>,
    pub(crate) model: String,
    /// Model that streams in many small writes.
    pub(crate) piecewise_model: Option<String>,
    /// Model whose provider supports only the Anthropic dialect.
    pub(crate) foreign_model: Option<String>,
    /// Path of the MCP endpoint.
    pub(crate) mcp: String,
}

/// Returns the ten servers of the main set-up.
pub(crate) fn servers() -> Vec<ServerSetup> {
    use Era::{Legacy, Modern};
    vec![
        server_setup("http25", Transport::Http, Legacy, 1),
        server_setup("http26", Transport::Http, Modern, 1),
        server_setup("pipe25", Transport::Stdio, Legacy, 1),
        server_setup("pipe26", Transport::Stdio, Modern, 1),
        server_setup("many25", Transport::Http, Legacy, 150),
        server_setup("many26", Transport::Http, Modern, 150),
        server_setup("many25p", Transport::Stdio, Legacy, 150),
        server_setup("many26p", Transport::Stdio, Modern, 150),
        server_setup("fifteen", Transport::Http, Legacy, 15),
        server_setup(SCRIPT_SERVER, Transport::Http, Legacy, 1),
    ]
}

pub(crate) fn setup(variant: GatewayVariant) -> GatewaySetup {
    GatewaySetup {
        injects: variant == GatewayVariant::Injecting,
        servers: servers(),
    }
}

impl Case {
    /// Creates a case at the gateway without injection, with the fewest measurements.
    fn new(name: impl Into<String>, bare: Exchange, gate: Exchange) -> Self {
        Self {
            name: name.into(),
            bare: Some(bare),
            gate,
            variant: GatewayVariant::Plain,
            goal: None,
            depth: Depth::Cpu,
        }
    }

    fn variant(self, variant: GatewayVariant) -> Self {
        Self { variant, ..self }
    }

    fn goal(self, goal: f64) -> Self {
        Self {
            goal: Some(goal),
            ..self
        }
    }

    fn depth(self, depth: Depth) -> Self {
        Self { depth, ..self }
    }
}

impl TargetNames {
    pub(crate) fn toolgate() -> Self {
        Self {
            key: Some(caller_key("none")),
            model: "mock/bench-model".to_owned(),
            piecewise_model: Some("mock/piecewise".to_owned()),
            foreign_model: Some("claude/bench-claude".to_owned()),
            mcp: "/mcp".to_owned(),
        }
    }
}

/// Returns every case for Toolgate itself.
pub(crate) fn all_cases() -> Vec<Case> {
    let names = TargetNames::toolgate();
    [
        model_cases(&names),
        injection_cases(&names),
        agent_cases(&names),
        call_cases(),
        list_cases(),
    ]
    .concat()
}

/// Model requests that are passed through or translated.
fn model_cases(names: &TargetNames) -> Vec<Case> {
    use Dialect::{Chat, Messages, Responses};
    use ResponseMode::{Stream, Whole};
    let keyed = |exchange: Exchange| match &names.key {
        Some(key) => exchange.with_key(key),
        None => exchange,
    };
    let plain = |name: &str, dialect, form| {
        let exchange = request::model_request(dialect, &names.model, form, "");
        Case::new(name, exchange.clone(), keyed(exchange))
    };
    let mut cases = vec![
        plain("chat", Chat, Whole).goal(75.0).depth(Depth::Scale),
        plain("chat, streamed", Chat, Stream)
            .goal(185.0)
            .depth(Depth::Scale),
        plain("responses", Responses, Whole).depth(Depth::Latency),
        plain("responses, streamed", Responses, Stream),
        plain("messages", Messages, Whole),
        plain("messages, streamed", Messages, Stream),
    ];
    if let Some(model) = &names.piecewise_model {
        let exchange = request::model_request(Chat, model, Stream, "");
        let gate = keyed(exchange.clone());
        let case = Case::new("chat, streamed piecewise", exchange, gate);
        cases.push(case.depth(Depth::Latency));
    }
    if let Some(model) = &names.foreign_model {
        for (name, form) in [
            ("chat to anthropic", Whole),
            ("chat to anthropic, streamed", Stream),
        ] {
            let bare = request::model_request(Chat, &names.model, form, "");
            let gate = keyed(request::model_request(Chat, model, form, ""));
            cases.push(Case::new(name, bare, gate));
        }
    }
    cases
}

/// Tools injected by the gateway, compared with the same bytes sent by the caller.
fn injection_cases(names: &TargetNames) -> Vec<Case> {
    let with_tools = |of: &str, number: usize| {
        let tools: Vec<String> = (0..number)
            .map(|at| tools::function_definition(of, at))
            .collect();
        request::model_request(
            Dialect::Chat,
            &names.model,
            ResponseMode::Whole,
            &tools.join(","),
        )
    };
    let without_tools = with_tools("none", 0);
    let spliced = |name: String, bare: Exchange, of: &str| {
        Case::new(name, bare, without_tools.clone().with_key(&caller_key(of)))
            .variant(GatewayVariant::Injecting)
    };
    let mut cases = vec![spliced(
        "chat, 0 tools spliced".to_owned(),
        without_tools.clone(),
        "none",
    )];
    for (of, number) in [("fifteen", 15), ("many25", 150)] {
        let with = with_tools(of, number);
        let name = format!("chat, {number} tools spliced");
        cases.push(spliced(name, with.clone(), of));
        let name = format!("chat, {number} tools of the caller");
        cases.push(Case::new(
            name,
            with.clone(),
            with.with_key(&caller_key("none")),
        ));
    }
    cases
}

/// Agent runs, compared with a single model response.
fn agent_cases(names: &TargetNames) -> Vec<Case> {
    let bare = request::model_request(Dialect::Chat, &names.model, ResponseMode::Whole, "");
    let run = |rounds: usize| {
        let name = format!("agent, {rounds} rounds");
        let gate = request::agent_request(rounds).with_key(&caller_key("http25"));
        Case::new(name, bare.clone(), gate).variant(GatewayVariant::Injecting)
    };
    [1, 5, 20].map(run).into()
}

fn call_cases() -> Vec<Case> {
    let raw = tools::tool_name(0);
    let bare = |era| request::tool_call(era, &mock_mcp_path(era, 1), &raw);
    let call = |of: &str, era| {
        let gate = request::tool_call(era, "/mcp", &format!("{of}_{raw}"));
        let name = format!("tools/call, {}", describe_link(of, era));
        Case::new(name, bare(era), gate.with_key(&caller_key("all")))
    };
    let script = request::script_with_calls(SCRIPT_SERVER, &raw, 3).with_key(&caller_key("all"));
    let execute = request::tool_execute(&format!("http26_{raw}")).with_key(&caller_key("all"));
    vec![
        call("http25", Era::Legacy).goal(100.0).depth(Depth::Scale),
        call("http26", Era::Modern)
            .goal(100.0)
            .depth(Depth::Latency),
        call("pipe25", Era::Legacy).depth(Depth::Latency),
        call("pipe26", Era::Modern),
        Case::new("tool/execute", bare(Era::Modern), execute).depth(Depth::Latency),
        Case::new("script with 3 calls", bare(Era::Legacy), script).depth(Depth::Latency),
    ]
}

fn list_cases() -> Vec<Case> {
    let list = |of: &str, era| {
        let bare = request::tool_list(era, &mock_mcp_path(era, 150), 150);
        let gate = request::tool_list(era, "/mcp", 150).with_key(&caller_key(of));
        Case::new(
            format!("tools/list of 150, {}", describe_link(of, era)),
            bare,
            gate,
        )
        .goal(300.0)
    };
    vec![
        list("many25", Era::Legacy).depth(Depth::Latency),
        list("many26", Era::Modern),
        list("many25p", Era::Legacy),
        list("many26p", Era::Modern),
    ]
}

/// Returns the cases that work with any gateway. `tool` is its name for the mock's first tool, and
/// the number of tools it lists.
pub(crate) fn portable_cases(names: &TargetNames, tool: Option<(&str, usize)>) -> Vec<Case> {
    let keyed = |exchange: Exchange| match &names.key {
        Some(key) => exchange.with_key(key),
        None => exchange,
    };
    let mut cases = model_cases(names);
    let eras = [Era::Legacy, Era::Modern];
    for ((tool, listed), era) in tool
        .into_iter()
        .flat_map(|tool| eras.map(|era| (tool, era)))
    {
        let bare = request::tool_call(era, &mock_mcp_path(era, 1), &tools::tool_name(0));
        let gate = keyed(request::tool_call(era, &names.mcp, tool));
        let name = format!("tools/call, {}", era.version());
        cases.push(Case::new(name, bare, gate).depth(Depth::Scale));
        let bare = request::tool_list(era, &mock_mcp_path(era, listed), listed);
        let gate = keyed(request::tool_list(era, &names.mcp, listed));
        let name = format!("tools/list of {listed}, {}", era.version());
        cases.push(Case::new(name, bare, gate));
    }
    cases
}

pub(crate) fn mock_mcp_path(era: Era, tools: usize) -> String {
    format!("/mcp/{}/{tools}", era.as_short())
}

/// Describes the protocol version and transport, which the server name implies.
fn describe_link(server: &str, era: Era) -> String {
    let link = if server.starts_with("pipe") || server.ends_with('p') {
        "stdio"
    } else {
        "http"
    };
    format!("{}, {link}", era.version())
}
