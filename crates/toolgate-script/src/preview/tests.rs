//! Mentions in ordinary, ambiguous and hostile code, and a comparison with the calls of the engine.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::protocol::{self, Language, ScriptCall, ScriptCallResult, ScriptRequest, WorkerLimits};
use crate::starlark::{self, Host, HostGone};

const SERVERS: [&str; 3] = ["youtube", "fs", "crm"];

/// Formats the mentions as `server.tool` and `server.*`, sorted.
fn format_mentions(code: &str) -> String {
    let mentions = find_mentions(code, &SERVERS);
    let whole = mentions.servers.iter().map(|server| format!("{server}.*"));
    let tools = mentions.tools.iter().flat_map(|(server, tools)| {
        let tools = tools.iter();
        tools.map(move |tool| format!("{server}.{tool}"))
    });
    let mut all: Vec<String> = whole.chain(tools).collect();
    all.sort();
    all.join(" ")
}

#[test]
fn attribute_access_mentions_one_tool() {
    for (code, expected) in [
        ("", ""),
        ("result = 1", ""),
        ("youtube.search(q=1)", "youtube.search"),
        (
            "f = youtube.delete_video; f(id=\"x\")",
            "youtube.delete_video",
        ),
        ("youtube . \\\n  search()", "youtube.search"),
        ("(youtube\n  # why\n  .search)()", "youtube.search"),
        ("[crm.get(id=i) for i in fs.list()]", "crm.get fs.list"),
        ("lambda: youtube.a", "youtube.a"),
        ("def f(g=youtube.a): pass", "youtube.a"),
        ("@youtube.a\ndef f(): pass", "youtube.a"),
        ("getattr(youtube, \"search\")()", "youtube.search"),
        ("getattr ( youtube , r'search' , None )()", "youtube.search"),
        ("hasattr(youtube, '''search''')", "youtube.search"),
        ("1.if youtube.a else 2", "youtube.a"),
        ("x = 0or youtube.a", "youtube.a"),
        ("...\nyoutube.a()", "youtube.a"),
        ("x = 1.\nyoutube.a()", "youtube.a"),
        ("youtube.a.b.fs", "youtube.a"),
    ] {
        assert_eq!(format_mentions(code), expected, "{code}");
    }
}

#[test]
fn opaque_uses_mention_the_whole_server() {
    for code in [
        "y = youtube",
        "y = youtube; y.delete()",
        "(youtube).delete()",
        "[youtube][0].delete()",
        "[s.delete() for s in [youtube]]",
        "{\"a\": youtube}",
        "f(youtube)",
        "f(x=youtube)",
        "f(*[youtube])",
        "def f(s=youtube): s.delete()",
        "lambda s=youtube: s",
        "dir(youtube)",
        "getattr(youtube, \"del\" + \"ete\")",
        "getattr(youtube, \"del\" \"ete\")",
        "getattr(youtube, name)",
        "getattr(youtube, \"del\\x65te\")",
        "getattr(youtube, f\"delete\")",
        "getattr(youtube, \"%s\" % x)",
        "getattr(*[youtube, \"a\"])",
        "g = getattr; g(youtube, \"a\")",
        "getattr = lambda s, n: s\ngetattr(youtube, \"a\").delete()",
        "def getattr(s, n): return s\ngetattr(youtube, \"a\").delete()",
        "def f(getattr): return getattr(youtube, \"a\").delete()",
        "x.getattr(youtube, \"a\")",
        "if (y := youtube): pass",
        "(youtube := 1)",
        "for youtube in []: pass",
        "youtube += 1",
        "youtube == 1",
        "x = youtube if 1 else 2",
        "return youtube",
        "f\"{youtube}\"",
        "f'{youtube=}'",
        "f\"{youtube!r:>{10}}\"",
        "f\"{x:{youtube}}\"",
        "f\"{{{youtube}}}\"",
        "f\"\"\"{\n youtube }\"\"\"",
        "1. + youtube",
        "x[1:youtube]",
        "...if youtube else 1",
    ] {
        assert_eq!(format_mentions(code), "youtube.*", "{code}");
    }
}

#[test]
fn strings_comments_and_attributes_are_not_mentions() {
    for code in [
        "# youtube.delete()",
        "x = \"youtube.delete()\"",
        "x = 'it\\'s youtube.delete()'",
        "x = \"\"\"\n youtube.delete() \" \n\"\"\"",
        "x = r'C:\\youtube'",
        "x.youtube.delete()",
        "x\\\n.youtube",
        "f(youtube=1)",
        "youtube = 1",
        "f\"{f(youtube=1)}\"",
        "f\"youtube {x} {{youtube}} youtube\\n\"",
        "f\"{d['youtube']}\"",
        "my_youtube = youtube2",
        "x = b'youtube'",
        "x = 'ünïcode youtube' # ünïcode youtube",
        "f\"{x:.2f} youtube\"",
    ] {
        assert_eq!(format_mentions(code), "", "{code}");
    }
}

#[test]
fn f_string_expressions_are_code() {
    for (code, expected) in [
        ("f\"{youtube.a()} {fs.b()}\"", "fs.b youtube.a"),
        ("f'{youtube.a(q=\"x\")}'", "youtube.a"),
        ("f'{f\"{youtube.a()}\"}'", "youtube.a"),
        ("fr'{youtube.a()}'", "youtube.a"),
        ("F\"{youtube.a()}\"", "youtube.a"),
        ("f\"{ {'k': youtube.a()}['k'] }\"", "youtube.a"),
        ("f\"{lambda: youtube.a()}\"", "youtube.a"),
        ("f\"{youtube.a(x={1: 2})}\" + fs.b", "fs.b youtube.a"),
        ("f\"{d[\"k\"]}\" + youtube.a()", "youtube.a"),
        ("f\"{x:'>3}\" + youtube.a() + f\"{x:'>3}\"", "youtube.a"),
        ("f\"{x:(}'\" + youtube.a() + f\"'{x:)}\"", "youtube.a"),
    ] {
        assert_eq!(format_mentions(code), expected, "{code}");
    }
}

#[test]
fn ambiguous_text_is_treated_as_code() {
    for code in [
        "x = r\"\\\" + youtube.a() + \"\"",
        "x = \"\"\"\\\"\"\"\" + youtube.a()",
        "x = \"open\nyoutube.a()",
        "# comment\ryoutube.a()",
        "x = f\"\\{youtube.a()}\"",
        "x = '\ryoutube.a()'",
        "\u{c}youtube.a()",
        "f'{x # }'\nyoutube.a()",
        "t'{youtube.a()}'",
        "f'{\nyoutube.a()}'",
        "```python\nyoutube.a()\n```",
        "```\"\"\"\nyoutube.a()\n```\n\"\"\"",
    ] {
        assert_eq!(format_mentions(code), "youtube.a", "{code:?}");
    }
}

#[test]
fn letters_that_normalize_to_ascii_mention_all_servers() {
    assert_eq!(format_mentions("ｙoutube.a()"), "crm.* fs.* youtube.*");
    assert_eq!(
        format_mentions("x = \"open\nyoutub\u{212f}.a()"),
        "crm.* fs.* youtube.*"
    );
}

#[test]
fn hostile_code_is_analyzed_in_linear_time() {
    for piece in [
        "f\"{",
        "f'{f\"{",
        "(",
        "{",
        "\\",
        "youtube.",
        "getattr(",
        "\"\"\"",
        "r'\\",
        "é",
        "\r",
        "[youtube,",
    ] {
        let code = piece.repeat(200_000);
        let _ = find_mentions(&code, &SERVERS);
    }
}

/// Host that records the calls of scripts.
#[derive(Default)]
struct RecordingHost(Vec<ScriptCall>);

impl Host for RecordingHost {
    fn call(&mut self, calls: Vec<ScriptCall>) -> Result<Vec<ScriptCallResult>, HostGone> {
        let answers = calls
            .iter()
            .map(|_| ScriptCallResult::Value(RawValue::NULL.to_owned()));
        let answers = answers.collect();
        self.0.extend(calls);
        Ok(answers)
    }

    fn print(&mut self, _: &str) {}
}

/// Runs code in the engine and returns its calls.
fn run_and_record(code: &str) -> Vec<ScriptCall> {
    let tools = ["a", "b"].map(|name| protocol::ScriptTool {
        name: name.to_owned(),
        parameters: Vec::new(),
    });
    let script = ScriptRequest {
        language: Language::Starlark,
        code: code.to_owned(),
        servers: vec![protocol::ScriptServer {
            name: "yt".to_owned(),
            tools: tools.to_vec(),
        }],
        bounds: WorkerLimits {
            compute_ms: 1000,
            memory: 1 << 30,
            calls: 10,
            result: 1 << 20,
            printed: 1 << 20,
        },
    };
    let mut host = RecordingHost::default();
    let _ = starlark::run(&script, &mut host);
    host.0
}

/// Fragments of code that are sometimes valid when concatenated.
const PIECES: &[&str] = &[
    "yt.a()",
    "yt.b()",
    "yt",
    ".a()",
    ".b()",
    "yt.a()",
    "yt.b()",
    "getattr(yt, 'a')()",
    "getattr(",
    "yt, ",
    "\"a\"",
    "'b'",
    ")",
    ")()",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "f\"",
    "f'",
    "f\"\"\"",
    "fr'",
    "r\"",
    "r'",
    "b'",
    "{",
    "}",
    "{{",
    "}}",
    "{yt.a()}",
    "{yt}",
    ":",
    "!r",
    "\\",
    "\\\\",
    "\\\"",
    "\\n",
    "\n",
    "\n",
    "\r\n",
    "\r",
    "#",
    "# it's",
    " ",
    "  ",
    "+",
    "x = ",
    "[",
    "]",
    "(",
    ",",
    ";",
    "=",
    "str(",
    "x",
    "0",
    "1.",
    "...",
    "lambda: ",
    " for s in [yt]",
    "s.a()",
    "if ",
    "else ",
    " or ",
    "```",
    "```\n",
    "\n```",
    "\t",
    "\u{feff}",
    "é",
];

#[test]
fn engine_calls_only_mentioned_tools() {
    let mut config = ProptestConfig::with_cases(1500);
    config.failure_persistence = None;
    let pieces = prop::sample::select(PIECES);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let code = proptest::collection::vec(pieces, 1..9).prop_map(|pieces| pieces.concat());
    let outcome = runner.run(&code, |code| {
        let mentions = find_mentions(&code, &["yt"]);
        for call in run_and_record(&code) {
            prop_assert!(
                mentions.may_call(&call.server, &call.tool),
                "{:?} in {:?}",
                call.tool,
                code
            );
        }
        Ok(())
    });
    outcome.unwrap();
}

/// Generates code that uses no server.
fn noise() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("x = 1".to_owned()),
        Just("# it's \"quoted".to_owned()),
        Just("y = \"it's # fine\"".to_owned()),
        Just("z = '\"'".to_owned()),
        Just("s = \"\"\"a \" b '' c\n\"\"\"".to_owned()),
        Just("s = f\"{x} {{}} {d['a']}\"".to_owned()),
        Just("s = f'{x:>3}'".to_owned()),
        Just("s = f\"{x:'>3}\"".to_owned()),
        Just("s = f\"{d[\"a\"]}\"".to_owned()),
        Just("s = r'\\d'".to_owned()),
        Just("s = '\\\\'".to_owned()),
        Just("s = '\\''".to_owned()),
        Just("s = 'é' # ü".to_owned()),
        Just("s = [1, 2,\n  3]".to_owned()),
        Just("s = \"a\\\nb\"".to_owned()),
        Just("s = ...".to_owned()),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn uses_are_always_mentioned(
        before in noise(),
        after in noise(),
        (code, is_opaque) in prop::sample::select(vec![
            ("youtube.delete(id=1)", false),
            ("f = youtube.delete", false),
            ("r = [t(id=1) for t in [youtube.delete]]", false),
            ("def f(t=youtube.delete): return t", false),
            ("f\"{youtube.delete(id='x')}\"", false),
            ("f'''{youtube.delete(id=\"x\")}'''", false),
            ("getattr(youtube, 'delete')(id=1)", false),
            ("y = youtube\ny.delete()", true),
            ("[s.delete() for s in [youtube]]", true),
            ("{\"s\": youtube}[\"s\"].delete()", true),
            ("getattr(youtube, 'del' + 'ete')()", true),
            ("(lambda s: s.delete())(youtube)", true),
            ("def f(s=youtube): s.delete()\nf()", true),
            ("f\"{[s.delete() for s in (youtube,)]}\"", true),
            ("if (y := youtube): y.delete()", true),
            ("g = getattr\ng(youtube, 'delete')()", true),
            ("list(map(lambda s: s.delete(), [youtube]))", true),
        ]),
        glue in prop::sample::select(vec!["\n", "\r\n", " # c\n", "\n\n\t", "\\\n\n"]),
    ) {
        let whole = format!("{before}{glue}{code}{glue}{after}");
        let mentions = find_mentions(&whole, &SERVERS);
        prop_assert!(mentions.may_call("youtube", "delete"), "{whole}");
        if is_opaque {
            prop_assert!(mentions.servers.contains("youtube"), "{whole}");
        }
    }

    #[test]
    fn arbitrary_text_never_panics(code in "(youtube|fs|[ \\PC]|[\"'{}()\\\\fr#\n.,=:]){0,60}") {
        let _ = find_mentions(&code, &SERVERS);
    }
}
