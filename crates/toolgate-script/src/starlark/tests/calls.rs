//! Tool calls: names, arguments, concurrency and errors.

use super::{FailureKind, FakeHost, failure, run_script, script, text, value};

/// Runs a script and returns the calls the host received, by batch.
fn batches(code: &str) -> Vec<Vec<String>> {
    let (result, host) = run_script(script(code), FakeHost::default());
    result.unwrap();
    host.batches
}

fn requested_calls(code: &str) -> String {
    batches(code).concat().join(" ")
}

fn bad_call(code: &str) -> String {
    let failure = failure(code);
    assert!(
        matches!(failure.kind, FailureKind::BadCall { .. }),
        "{failure:?}"
    );
    format!("{} {}", failure.message, failure.hints.join(" "))
}

#[test]
fn arguments_use_schema_names() {
    let expected = r#"youtube.search{"query":"x","max_results":2}"#;
    for call in [
        r#"youtube.search(query="x", max_results=2)"#,
        r#"youtube.search("x", 2)"#,
        r#"youtube.search("x", max_results=2)"#,
        r#"youtube.search({"query": "x", "max_results": 2})"#,
        r#"youtube.search(**{"query": "x", "max_results": 2})"#,
        r#"youtube.search(*["x", 2])"#,
        r#"getattr(youtube, "sea" + "rch")(query="x", max_results=2)"#,
        r#"parallel([(youtube.search, {"query": "x", "max_results": 2})])"#,
        r#"parallel([[youtube.search, {"query": "x", "max_results": 2}]])"#,
    ] {
        assert_eq!(requested_calls(call), expected, "{call}");
    }
    let expected = r#"files.read{"path":"p","from":3}"#;
    for call in [
        r#"files.read("p", from_=3)"#,
        r#"files.read(**{"path": "p", "from": 3})"#,
        r#"files.read({"path": "p", "from": 3})"#,
        r#"files.read("p", 3)"#,
    ] {
        assert_eq!(requested_calls(call), expected, "{call}");
    }
    assert_eq!(
        requested_calls("files.open(any=1, more={'a': [None]})"),
        r#"files.open{"any":1,"more":{"a":[null]}}"#
    );
    assert_eq!(
        requested_calls("files.open({'any': 1})"),
        r#"files.open{"any":1}"#
    );
    assert_eq!(
        requested_calls("parallel([files.open, (files.open,)])"),
        "files.open{} files.open{}"
    );
}

#[test]
fn none_omits_an_argument_except_in_a_dict() {
    assert_eq!(
        requested_calls("youtube.search(query='x', max_results=None)"),
        r#"youtube.search{"query":"x"}"#
    );
    assert_eq!(
        requested_calls("youtube.search({'query': None})"),
        r#"youtube.search{"query":null}"#
    );
    assert_eq!(
        requested_calls("parallel([(youtube.search, {'query': None})])"),
        "youtube.search{}"
    );
}

#[test]
fn invalid_calls_explain_the_signature() {
    let message = bad_call("youtube.search(qery='x')");
    assert!(
        message.contains("no parameter `qery`; it takes `query`, `max_results`"),
        "{message}"
    );
    assert!(message.contains("write `query=` instead"), "{message}");
    assert!(bad_call("youtube.search('a', 1, 2)").contains("got 3 positional arguments"));
    assert!(bad_call("youtube.search('a', query='b')").contains("multiple values for `query`"));
    assert!(
        bad_call("files.read('p', **{'from_': 1, 'from': 2})")
            .contains("multiple values for `from`")
    );
    assert!(bad_call("youtube.search(query=youtube)").contains("a `server` is not data"));
    assert!(bad_call("youtube.search(query=youtube.search)").contains("a `tool` is not data"));
    assert!(bad_call("youtube.search(query=lambda: 1)").contains("a `function` is not data"));
    assert!(bad_call("youtube.search(query=float('nan'))").contains("not a JSON number"));
    assert!(bad_call("x = []\nx.append(x)\nyoutube.search(query=x)").contains("contains itself"));
    assert!(bad_call("parallel([(youtube.search, {'qery': 1})])").contains("no parameter `qery`"));
    assert!(bad_call("parallel([(youtube.search, 'x')])").contains("must be a dict"));
}

#[test]
fn unknown_tools_and_undefined_names_are_distinguished() {
    let unknown = failure("x = 1\nyoutube.serch(query='x')");
    let kind = FailureKind::UnknownTool {
        server: "youtube".to_owned(),
        tool: "serch".to_owned(),
    };
    assert_eq!((unknown.kind, unknown.line), (kind, Some(2)));
    assert_eq!(unknown.message, "server `youtube` has no tool `serch`");
    assert_eq!(unknown.hints, ["did you mean `youtube.search`?"]);
    let undefined = failure("x = 1\ny = yutube.search()");
    assert_eq!(
        undefined.kind,
        FailureKind::UndefinedName("yutube".to_owned())
    );
    assert_eq!((undefined.line, undefined.column), (Some(2), Some(5)));
    assert_eq!(undefined.message, "`yutube` is not defined");
    assert_eq!(
        value("[hasattr(youtube, 'search'), hasattr(youtube, 'x'), getattr(youtube, 'x', 1)]"),
        serde_json::json!([true, false, 1])
    );
    assert_eq!(text("dir(youtube)"), r#"["delete","raw","search"]"#);
    assert_eq!(
        text(
            "[str(youtube.search), str(youtube), youtube.search == youtube.search, youtube.search.__name__]"
        ),
        r#"["youtube.search","youtube",true,"search"]"#
    );
}

#[test]
fn tool_errors_raise_and_can_be_caught() {
    let failed = failure("def f():\n    return youtube.delete(id=1)\nf()");
    let kind = FailureKind::Tool {
        server: "youtube".to_owned(),
        tool: "delete".to_owned(),
    };
    assert_eq!((failed.kind, failed.line), (kind, Some(2)));
    assert_eq!(failed.message, "it is protected (`f` called at line 3)");
    let caught = text("attempt(lambda: youtube.delete(id=1))");
    assert_eq!(caught, r#"{"ok":false,"error":"it is protected"}"#);
    assert_eq!(text("attempt(lambda: 1 + 1)"), r#"{"ok":true,"value":2}"#);
    assert_eq!(
        text("attempt(lambda: fail('a', [1, 'b']))"),
        r#"{"ok":false,"error":"a [1, 'b']"}"#
    );
    assert_eq!(value("attempt(lambda: {}['k'])['ok']"), false);
    assert_eq!(value("attempt(lambda: 1 // 0)['ok']"), false);
    assert_eq!(value("attempt(lambda: youtube.nope())['ok']"), false);
    assert_eq!(
        value("attempt(lambda: attempt(lambda: fail('x')))['value']['error']"),
        "x"
    );
    assert_eq!(value("attempt(files.open)['ok']"), true);
    assert!(failure("attempt(youtube.search())").hints[0].contains("lambda"));
}

#[test]
fn parallel_calls_form_one_ordered_batch() {
    let code = "result = [r['args'].get('query') for r in parallel([(youtube.search, {'query': q}) for q in ['a', 'b', 'c']])]";
    let (result, host) = run_script(script(code), FakeHost::default());
    assert_eq!(result.unwrap().unwrap().to_string(), r#"["a","b","c"]"#);
    assert_eq!(host.batches.len(), 1);
    assert_eq!(host.batches[0].len(), 3);
    assert_eq!(text("parallel([])"), "[]");
    let one_fails = "parallel([(youtube.search, {}), (youtube.delete, {'id': 1}), (files.open,)]";
    assert_eq!(failure(&format!("{one_fails})")).message, "it is protected");
    let each = format!("[r['ok'] for r in {one_fails}, attempt=True)]");
    assert_eq!(text(&each), "[true,false,true]");
    for wrong in [
        "parallel([lambda: youtube.search()])",
        "parallel(youtube.search())",
        "parallel([youtube.search()])",
        "parallel([(youtube.search, {}, 1)])",
    ] {
        let failure = failure(wrong);
        assert!(
            failure.hints.concat().contains("parallel([(server.tool,"),
            "{failure:?}"
        );
    }
}

#[test]
fn calls_report_their_lines() {
    let code = "# first\nyoutube.search()\ndef f():\n    return files.open()\nf()\nx = map(lambda x: youtube.search(query=x), ['a'])\nparallel([\n    (files.open,),\n])";
    let (result, host) = run_script(script(code), FakeHost::default());
    result.unwrap();
    assert_eq!(host.lines, [2, 4, 6, 7]);
}

#[test]
fn scripts_are_deterministic() {
    let code = "seen = set()\nfor x in ['b', 'a', 'c', 'a']:\n    seen.add(x)\nfor x in seen:\n    youtube.search(query=x)\nd = {'z': 1, 'y': 2}\nfor k in d:\n    files.open(**{k: d[k]})\nprint(seen)\nresult = [seen, d, sorted(seen)]";
    let runs: Vec<String> = (0..2)
        .map(|_| {
            let (result, host) = run_script(script(code), FakeHost::default());
            format!("{:?} {:?} {}", result, host.batches, host.printed)
        })
        .collect();
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].contains("{'b', 'a', 'c'}"), "{}", runs[0]);
}
