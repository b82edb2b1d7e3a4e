//! Snapshots of the stubs of real servers, with their actual schemas, and of hostile ones.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolgate_core::catalog::{ItemKind, ItemOutcome, ListingProblem, ServerListing};
use toolgate_core::name::ServerName;

use super::*;

fn tools(server: &str, definitions: &[Value]) -> Vec<Arc<catalog::Tool>> {
    let server = ServerName::parse(server).unwrap();
    let mut listing = ServerListing::default();
    for definition in definitions {
        let raw = serde_json::value::to_raw_value(definition).unwrap();
        listing.add(&server, ItemKind::Tool, &raw);
    }
    let left_out = |problem: &&ListingProblem| problem.outcome == ItemOutcome::LeftOut;
    let left_out = listing.problems.iter().find(left_out);
    assert!(left_out.is_none(), "{left_out:?}");
    listing.into_sorted().tools
}

fn tools_with_names(server: &str, names: &[&str]) -> Vec<Arc<catalog::Tool>> {
    let definitions: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    tools(server, &definitions)
}

fn bind(server: &str, definitions: &[Value]) -> Bindings {
    Bindings::new(&tools(server, definitions))
}

/// Returns a server `s` with one tool `t` that has these parameters.
fn with_properties(properties: &Value, required: &Value) -> Bindings {
    bind(
        "s",
        &[
            json!({"name": "t", "inputSchema": {"type": "object", "properties": properties, "required": required}}),
        ],
    )
}

fn signature(bindings: &Bindings) -> &str {
    bindings.tool("s", "t").unwrap().signature()
}

fn read(bindings: &Bindings, file: &str) -> String {
    bindings.read(FileLevel::Server, file, None, None).unwrap()
}

/// Returns the servers of the fixture files. Schemas are those of the real servers; descriptions are not.
fn real_bindings() -> Bindings {
    let mut all = Vec::new();
    for (server, text) in [
        ("everything", include_str!("tests/everything.json")),
        ("file-system", include_str!("tests/filesystem.json")),
        ("memory", include_str!("tests/memory.json")),
    ] {
        let definitions: Vec<Value> = serde_json::from_str(text).unwrap();
        all.extend(tools(server, &definitions));
    }
    Bindings::new(&all)
}

#[test]
fn stubs_of_real_servers() {
    let bindings = real_bindings();
    for server in bindings.servers() {
        let file = read(&bindings, &server.identifier);
        assert_eq!(file, server.file());
        insta::assert_snapshot!(server.identifier.to_string(), file);
        check_file(&file);
    }
    insta::assert_snapshot!("list", bindings.list(FileLevel::Server));
    insta::assert_snapshot!("list_of_tools", bindings.list(FileLevel::Tool));
}

#[test]
fn docs_of_real_tools() {
    let bindings = real_bindings();
    for (server, tool) in [
        ("everything", "get-structured-content"),
        ("servers/file-system.pyi", "EDIT_FILE"),
        ("Memory", "memory.add_observations"),
    ] {
        let name = tool.replace('.', "_");
        insta::assert_snapshot!(format!("docs_{name}"), bindings.docs(server, tool).unwrap());
    }
}

#[test]
fn adversarial_schemas() {
    let values: Vec<String> = (0..500).map(|n| format!("v{n}")).collect();
    let many: serde_json::Map<String, Value> = (0..300)
        .map(|n| (format!("parameter_{n}"), json!({"type": "string"})))
        .collect();
    let definitions = [
        json!({"name": "cycle", "inputSchema": {"$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "all": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}},
            "type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}, "self": {"$ref": "#"}}}}),
        json!({"name": "huge_enum", "inputSchema": {"type": "object", "properties": {"v": {"enum": values}}}}),
        json!({"name": "huge_list_of_parameters", "inputSchema": {"type": "object", "properties": many}}),
        json!({"name": "reserved", "inputSchema": {"type": "object", "properties": {"from": {"type": "string"}, "class": {}, "import": {}, "None": {}, "from_": {}, "x-y": {}, "x_y": {}, "$filter": {}, "1st": {}, "": {}, "größe": {}}}}),
        json!({"name": "no schema"}),
        json!({"name": "odd.schema/1", "inputSchema": {"type": "object", "required": ["x"]}}),
        json!({"name": "搜索", "description": "搜索视频。返回列表。"}),
        json!({"name": "variants", "inputSchema": {"type": "object", "properties": {"all": {}}, "required": ["kind"],
            "oneOf": [{"properties": {"kind": {"const": "a"}, "a": {"type": "integer"}}, "required": ["kind", "a"]}, {"properties": {"kind": {"const": "b"}, "b": {"type": "string"}}, "required": ["kind"]}]}}),
        json!({"name": "defaults", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "string", "default": "x\"\n# def evil():"}, "b": {"type": "array", "default": [1, true, null]}, "c": {"type": "object", "default": {"k": "v".repeat(100)}},
            "d": {"type": "number", "default": 1e100}, "e": {"type": "boolean", "default": false}, "f": {"type": ["string", "null"], "default": null}}}}),
        json!({"name": "hostile", "description": "Nice\u{2028}def evil(): \u{202e}pass\r\n\"\"\"\nimport os # def evil()\u{0}\u{1b}[31m", "inputSchema": {"type": "object", "properties": {
            "a): pass\ndef evil(b": {"enum": ["\"]\ndef evil(): pass", "\\"], "description": "\"\"\"\nevil()"}, "k": {"type": "object", "properties": {"\"}: pass\n": {"type": "string"}}}}}}),
    ];
    let bindings = bind("adversarial", &definitions);
    let file = read(&bindings, "adversarial");
    insta::assert_snapshot!("adversarial", file);
    check_file(&file);
    for name in ["hostile", "reserved", "huge_enum"] {
        let docs = bindings.docs("adversarial", name).unwrap();
        insta::assert_snapshot!(format!("docs_{name}"), docs);
        assert_eq!(docs.matches("\"\"\"").count(), 2);
    }
    let reserved = bindings.tool("adversarial", "reserved").unwrap();
    let wires: Vec<(&str, &str)> = reserved
        .parameters()
        .iter()
        .map(|p| (p.name.as_str(), p.wire()))
        .collect();
    assert!(
        wires.contains(&("from_", "from_")) && wires.contains(&("import_", "import")),
        "{wires:?}"
    );
}

#[test]
fn identifiers_are_valid_and_unique() {
    let all: Vec<_> = ["web-search", "json", "12306-mcp", "time", "lambda"]
        .iter()
        .flat_map(|server| tools_with_names(server, &["get-it", "get.it", "get_it", "print"]))
        .collect();
    let bindings = Bindings::new(&all);
    let names: Vec<&str> = bindings
        .servers()
        .iter()
        .map(|server| &*server.identifier)
        .collect();
    assert_eq!(
        names,
        ["_12306_mcp", "json_", "lambda_", "time", "web_search"]
    );
    let server = bindings.server("web_search").unwrap();
    let raw: Vec<&str> = server
        .tools()
        .iter()
        .map(|tool| tool.source.id.tool.as_str())
        .collect();
    assert_eq!(server.tools()[0].identifier, "get_it");
    assert_eq!(raw[0], "get_it");
    assert!(server.tool("print").is_some());
    assert_eq!(server.tools().len(), 4);
    let reversed: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(
        read(&bindings, "json"),
        read(&Bindings::new(&reversed), "json")
    );
}

#[test]
fn hidden_tools_do_not_affect_identifiers() {
    let all = [
        tools_with_names("a", &["x-y", "x.y", "x_z", "x-z", "other"]),
        tools_with_names("print", &["z"]),
        tools_with_names("print_", &["z"]),
    ]
    .concat();
    let bindings = Bindings::new(&all);
    assert!(bindings.server("a").unwrap().tool("x_y").is_none());
    let seen: [fn(&ToolId) -> bool; 4] = [
        |id| ["x-y", "x-z"].contains(&id.tool.as_str()),
        |id| ["x.y", "x_z", "other"].contains(&id.tool.as_str()),
        |id| id.server.as_str() == "print",
        |id| id.server.as_str() != "print",
    ];
    for visible in seen {
        let alone: Vec<_> = all.iter().filter(|tool| visible(&tool.id)).collect();
        let alone = Bindings::new(alone);
        let narrowed = bindings.filter_tools(visible);
        assert_eq!(narrowed.list(FileLevel::Tool), alone.list(FileLevel::Tool));
        for server in alone.servers() {
            assert_eq!(
                read(&narrowed, &server.identifier),
                read(&alone, &server.identifier)
            );
        }
    }
    let narrowed = bindings.filter_tools(seen[0]);
    let x_y = narrowed.tool("a", "x_y").unwrap();
    assert_eq!(x_y.source.id.tool.as_str(), "x-y");
    assert!(bindings.filter_tools(seen[2]).server("print_").is_some());
    assert!(bindings.filter_tools(|_| false).is_empty());
    assert_eq!(
        bindings.filter_tools(|_| false).list(FileLevel::Server),
        "no servers are available to scripts"
    );
}

#[test]
fn files_are_found_by_any_spelling() {
    let bindings = real_bindings();
    let file = read(&bindings, "servers/file_system.pyi");
    for spelling in [
        "file_system",
        "file-system",
        "File-System.pyi",
        "/servers/file-system.PYI",
        " ./servers/file_system/ ",
    ] {
        assert_eq!(read(&bindings, spelling), file, "{spelling}");
    }
    let tool = read(&bindings, "servers/file_system/read_file.pyi");
    assert_eq!(tool.lines().count(), 2);
    for spelling in [
        "file-system/READ_FILE",
        "file_system.read_file",
        "servers/file-system/read_file.py",
    ] {
        assert_eq!(read(&bindings, spelling), tool, "{spelling}");
    }
    assert_eq!(
        read(&bindings, "servers/"),
        bindings.list(FileLevel::Server)
    );
    let found = read(&bindings, "servers/*/*_file.pyi");
    assert!(
        found.contains("def edit_file(") && !found.contains("def list_directory("),
        "{found}"
    );
    assert_eq!(read(&bindings, "*graph*").lines().count(), 2);
}

#[test]
fn unknown_names_get_suggestions() {
    let bindings = real_bindings();
    let unknown = |file: &str| {
        bindings
            .read(FileLevel::Server, file, None, None)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        unknown("servers/memry.pyi"),
        "there is no file `memry` (did you mean `memory`?); available: servers/everything.pyi, servers/file_system.pyi, servers/memory.pyi"
    );
    assert_eq!(
        bindings.find_similar("file_system.readfile")[0],
        "file_system.read_file"
    );
    assert_eq!(bindings.find_similar("read_grap")[0], "memory.read_graph");
    assert!(bindings.find_similar("zzz").is_empty());
    let missing = bindings
        .docs("memory", "read_file")
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with(
            "there is no tool `memory.read_file` (did you mean `file_system.read_file`"
        ),
        "{missing}"
    );
    assert!(
        bindings
            .docs("nothing", "x")
            .unwrap_err()
            .to_string()
            .contains("available: everything, file_system, memory")
    );
    assert!(unknown(&"*".repeat(100_000)).len() < 1000);
}

#[test]
fn reads_line_ranges() {
    let bindings = Bindings::new(&tools_with_names("s", &["one", "two"]));
    let lines = |start, end| bindings.read(FileLevel::Server, "s", start, end).unwrap();
    let header = "# s.tool(name=value); more: getToolDocs(\"s\", \"tool\")\n";
    let all = format!("{header}def one() -> Any:\ndef two() -> Any:\n");
    for (start, end, expected) in [
        (None, None, all.clone()),
        (Some(1), Some(usize::MAX), all),
        (
            Some(2),
            None,
            "def one() -> Any:\ndef two() -> Any:\n# lines 2-3 of 3\n".to_owned(),
        ),
        (
            Some(2),
            Some(2),
            "def one() -> Any:\n# lines 2-2 of 3\n".to_owned(),
        ),
        (Some(0), Some(1), format!("{header}# lines 1-1 of 3\n")),
        (
            Some(9),
            None,
            "def two() -> Any:\n# lines 3-3 of 3\n".to_owned(),
        ),
        (
            Some(3),
            Some(1),
            "def two() -> Any:\n# lines 3-3 of 3\n".to_owned(),
        ),
        (
            Some(usize::MAX),
            Some(0),
            "def two() -> Any:\n# lines 3-3 of 3\n".to_owned(),
        ),
    ] {
        assert_eq!(lines(start, end), expected, "{start:?} {end:?}");
    }
}

#[test]
fn worker_receives_only_mentioned_tools() {
    let definition = |name: &str| json!({"name": name, "inputSchema": {"type": "object", "properties": {"from": {}}}});
    let bindings = bind("s", &[definition("a"), definition("b")]);
    let server = bindings.server("s").unwrap();
    let mentions = crate::preview::find_mentions("s.a()", &["s"]);
    let sent = server.to_script_server(&mentions);
    let names = |sent: &crate::protocol::ScriptServer| {
        let tools = sent.tools.iter();
        tools.map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&sent), ["a"]);
    assert_eq!(sent.tools[0].parameters[0].wire(), "from");
    let opaque = crate::preview::find_mentions("x = s", &["s"]);
    assert_eq!(names(&server.to_script_server(&opaque)), ["a", "b"]);
}

#[test]
fn large_catalogs_are_paged() {
    let mut all = Vec::new();
    for server in 0..300 {
        let names: Vec<String> = (0..40).map(|n| format!("do_something_{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        all.extend(tools_with_names(&format!("server{server}"), &names));
    }
    let names: Vec<String> = (0..3000)
        .map(|n| format!("a_rather_long_name_of_a_tool_{n:04}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    all.extend(tools_with_names("big", &names));
    let bindings = Bindings::new(&all);
    for level in [FileLevel::Server, FileLevel::Tool] {
        let list = bindings.list(level);
        assert!(list.len() < 12_500, "{}", list.len());
        assert!(list.contains("server299"));
    }
    let page = read(&bindings, "big");
    assert!(page.len() < 15_000, "{}", page.len());
    let last = page.lines().last().unwrap();
    assert!(
        last.starts_with("# lines 1-")
            && last.contains(" of 3001; continue with readToolFile(\"big\", startLine="),
        "{last}"
    );
}

#[test]
fn signature_shows_nested_types() {
    let bindings = with_properties(
        &json!({
            "limit": {"type": "integer", "default": 5},
            "query": {"type": "string"},
            "filter": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}, "since": {"type": "string"}}, "required": ["tags"]},
            "order": {"enum": ["asc", "desc", null]},
            "cursor": {"type": ["string", "null"]},
        }),
        &json!(["query"]),
    );
    assert_eq!(
        signature(&bindings),
        r#"def t(query: str, limit: int = 5, filter: {"tags": list[str], "since?": str} = None, order: Literal["asc", "desc", None] = None, cursor: str = None) -> Any:"#
    );
}

/// Checks the format of a file: comments, and one-line definitions with balanced brackets and closed
/// strings, in which a comment only begins at the end.
fn check_file(file: &str) {
    for line in file.lines() {
        assert!(line.starts_with("# ") || line.starts_with("def "), "{line}");
        assert!(
            !line
                .chars()
                .any(|c| c.is_control() || "\u{2028}\u{2029}\u{202e}\u{200b}".contains(c)),
            "{line:?}"
        );
        assert!(line.len() < 1800, "{}", line.len());
        if let Some(definition) = line.strip_prefix("def ") {
            let rest = after_code(definition);
            assert!(rest.is_empty() || rest.starts_with("  # "), "{line}");
        }
    }
}

/// Returns the text after the colon that ends a definition.
fn after_code(definition: &str) -> &str {
    let mut open = Vec::new();
    let mut chars = definition.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' => assert_eq!(open.pop(), Some(c), "{definition}"),
            '"' => loop {
                match chars.next().expect("unterminated string").1 {
                    '\\' => {
                        chars.next();
                    }
                    '"' => break,
                    _ => {}
                }
            },
            ':' if open.is_empty() => return &definition[at + 1..],
            '#' | '\'' => panic!("{definition}"),
            _ => {}
        }
    }
    panic!("no end: {definition}")
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "enum",
        "const",
        "default",
        "$ref",
        "$defs",
        "object",
        "string",
        "array",
        "null",
        "#",
        "#/$defs/a",
        "#/properties/a",
        "a",
        "additionalProperties",
        "prefixItems",
        "description",
        "not",
        "nullable",
        "patternProperties",
        "\"\n)",
        "examples",
    ]);
    let leaf = prop_oneof![
        words.clone().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((words.clone(), inner), 0..6).prop_map(|members| members
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_schemas_yield_valid_stubs(
        input in any_json(),
        properties in any_json(),
        output in any_json(),
        description in any::<String>(),
        name in "\\PC{1,12}",
    ) {
        let input = json!({"type": "object", "properties": properties, "anyOf": [input]});
        let definition = json!({"name": name, "description": description, "inputSchema": input, "outputSchema": output});
        let bindings = bind("s", &[definition]);
        let file = read(&bindings, "s");
        prop_assert_eq!(file.lines().count(), 2);
        check_file(&file);
        let server = &bindings.servers()[0];
        let docs = bindings.docs("s", &server.tools()[0].identifier).unwrap();
        prop_assert_eq!(docs.matches("\"\"\"").count(), 2);
        prop_assert!(docs.len() < 100_000);
    }
}
