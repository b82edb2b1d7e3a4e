//! What is measured. A new case is one more entry in [`all`].

use crate::gateway::{Link, SCRIPTED, Server, Setup, key, server};
use crate::load::Exchange;
use crate::mock::mcp::Era;
use crate::mock::model::Dialect;
use crate::mock::tools;
use crate::request::{self, Form};

/// One thing that a gateway does.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The same at the upstream itself, if there is such a thing.
    pub(crate) bare: Option<Exchange>,
    pub(crate) gate: Exchange,
    pub(crate) at: At,
    /// CPU µs a request at 64 connections that it may cost.
    pub(crate) goal: Option<f64>,
    pub(crate) depth: Depth,
}

/// Which of the gateways is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The one that adds tools to model requests.
    Injecting,
    Plain,
}

/// How much is measured of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// CPU and throughput at 64 connections.
    Cpu,
    /// Latency at a low rate too.
    Latency,
    /// And throughput at other numbers of connections.
    Scale,
}

/// What things are called at the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The key for model requests, and for all at other gateways.
    pub(crate) key: Option<String>,
    pub(crate) model: String,
    /// A model that streams in many small writes.
    pub(crate) piecewise_model: Option<String>,
    /// A model whose provider speaks only Anthropic's dialect.
    pub(crate) foreign_model: Option<String>,
    /// Where MCP is spoken.
    pub(crate) mcp: String,
}

/// The ten servers of the main set-up.
pub(crate) fn servers() -> Vec<Server> {
    use Era::{Legacy, Modern};
    vec![
        server("http25", Link::Http, Legacy, 1),
        server("http26", Link::Http, Modern, 1),
        server("pipe25", Link::Pipe, Legacy, 1),
        server("pipe26", Link::Pipe, Modern, 1),
        server("many25", Link::Http, Legacy, 150),
        server("many26", Link::Http, Modern, 150),
        server("many25p", Link::Pipe, Legacy, 150),
        server("many26p", Link::Pipe, Modern, 150),
        server("fifteen", Link::Http, Legacy, 15),
        server(SCRIPTED, Link::Http, Legacy, 1),
    ]
}

pub(crate) fn setup(at: At) -> Setup {
    Setup {
        injects: at == At::Injecting,
        servers: servers(),
    }
}

impl Case {
    /// Asked of the gateway that adds no tools, and measured no further than it must be.
    fn new(name: impl Into<String>, bare: Exchange, gate: Exchange) -> Self {
        Self {
            name: name.into(),
            bare: Some(bare),
            gate,
            at: At::Plain,
            goal: None,
            depth: Depth::Cpu,
        }
    }

    fn at(self, at: At) -> Self {
        Self { at, ..self }
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

impl Names {
    pub(crate) fn own() -> Self {
        Self {
            key: Some(key("none")),
            model: "mock/bench-model".to_owned(),
            piecewise_model: Some("mock/piecewise".to_owned()),
            foreign_model: Some("claude/bench-claude".to_owned()),
            mcp: "/mcp".to_owned(),
        }
    }
}

/// Every case at our own gateway.
pub(crate) fn all() -> Vec<Case> {
    let names = Names::own();
    [
        models(&names),
        injected(&names),
        runs(&names),
        calls(),
        lists(),
    ]
    .concat()
}

/// Pass-through and translation.
fn models(names: &Names) -> Vec<Case> {
    use Dialect::{Chat, Messages, Responses};
    use Form::{Stream, Whole};
    let keyed = |exchange: Exchange| match &names.key {
        Some(key) => exchange.with_key(key),
        None => exchange,
    };
    let plain = |name: &str, dialect, form| {
        let exchange = request::model(dialect, &names.model, form, "");
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
        let exchange = request::model(Chat, model, Stream, "");
        let gate = keyed(exchange.clone());
        let case = Case::new("chat, streamed piecewise", exchange, gate);
        cases.push(case.depth(Depth::Latency));
    }
    if let Some(model) = &names.foreign_model {
        for (name, form) in [
            ("chat to anthropic", Whole),
            ("chat to anthropic, streamed", Stream),
        ] {
            let bare = request::model(Chat, &names.model, form, "");
            let gate = keyed(request::model(Chat, model, form, ""));
            cases.push(Case::new(name, bare, gate));
        }
    }
    cases
}

/// Tools that the gateway adds, against the same bytes sent by the caller.
fn injected(names: &Names) -> Vec<Case> {
    let sent = |of: &str, number: usize| {
        let tools: Vec<String> = (0..number).map(|at| tools::function(of, at)).collect();
        request::model(Dialect::Chat, &names.model, Form::Whole, &tools.join(","))
    };
    let asked = sent("none", 0);
    let spliced = |name: String, bare: Exchange, of: &str| {
        Case::new(name, bare, asked.clone().with_key(&key(of))).at(At::Injecting)
    };
    let mut cases = vec![spliced(
        "chat, 0 tools spliced".to_owned(),
        asked.clone(),
        "none",
    )];
    for (of, number) in [("fifteen", 15), ("many25", 150)] {
        let with = sent(of, number);
        let name = format!("chat, {number} tools spliced");
        cases.push(spliced(name, with.clone(), of));
        let name = format!("chat, {number} tools of the caller");
        cases.push(Case::new(name, with.clone(), with.with_key(&key("none"))));
    }
    cases
}

/// Runs of an agent, against one answer of the model.
fn runs(names: &Names) -> Vec<Case> {
    let bare = request::model(Dialect::Chat, &names.model, Form::Whole, "");
    let run = |rounds: usize| {
        let name = format!("agent, {rounds} rounds");
        let gate = request::agent(rounds).with_key(&key("http25"));
        Case::new(name, bare.clone(), gate).at(At::Injecting)
    };
    [1, 5, 20].map(run).into()
}

fn calls() -> Vec<Case> {
    let raw = tools::name(0);
    let bare = |era| request::call(era, &path(era, 1), &raw);
    let call = |of: &str, era| {
        let gate = request::call(era, "/mcp", &format!("{of}_{raw}"));
        let name = format!("tools/call, {}", shown(of, era));
        Case::new(name, bare(era), gate.with_key(&key("all")))
    };
    let script = request::script(SCRIPTED, &raw, 3).with_key(&key("all"));
    let execute = request::execute(&format!("http26_{raw}")).with_key(&key("all"));
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

fn lists() -> Vec<Case> {
    let list = |of: &str, era| {
        let bare = request::list(era, &path(era, 150), 150);
        let gate = request::list(era, "/mcp", 150).with_key(&key(of));
        Case::new(format!("tools/list of 150, {}", shown(of, era)), bare, gate).goal(300.0)
    };
    vec![
        list("many25", Era::Legacy).depth(Depth::Latency),
        list("many26", Era::Modern),
        list("many25p", Era::Legacy),
        list("many26p", Era::Modern),
    ]
}

/// The cases that can be asked of any gateway: `tool` is what it calls the first of the mock's
/// tools, and how many it lists.
pub(crate) fn portable(names: &Names, tool: Option<(&str, usize)>) -> Vec<Case> {
    let keyed = |exchange: Exchange| match &names.key {
        Some(key) => exchange.with_key(key),
        None => exchange,
    };
    let mut cases = models(names);
    let eras = [Era::Legacy, Era::Modern];
    for ((tool, listed), era) in tool
        .into_iter()
        .flat_map(|tool| eras.map(|era| (tool, era)))
    {
        let bare = request::call(era, &path(era, 1), &tools::name(0));
        let gate = keyed(request::call(era, &names.mcp, tool));
        let name = format!("tools/call, {}", era.version());
        cases.push(Case::new(name, bare, gate).depth(Depth::Scale));
        let bare = request::list(era, &path(era, listed), listed);
        let gate = keyed(request::list(era, &names.mcp, listed));
        let name = format!("tools/list of {listed}, {}", era.version());
        cases.push(Case::new(name, bare, gate));
    }
    cases
}

pub(crate) fn path(era: Era, tools: usize) -> String {
    format!("/mcp/{}/{tools}", era.short())
}

/// The name of a server says how it is reached.
fn shown(server: &str, era: Era) -> String {
    let link = match server.starts_with("pipe") || server.ends_with('p') {
        true => "stdio",
        false => "http",
    };
    format!("{}, {link}", era.version())
}
