//! Scripts that exceed a limit fail without taking down the process.

use super::{FailureKind, FakeHost, failure, run_script, script, value};

fn limit(code: &str) -> String {
    match failure(code).kind {
        FailureKind::Limit(limit) => limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn deeply_nested_code_is_rejected_before_parsing() {
    let count = 20_000;
    let bombs = [
        format!("x = {}1{}", "(".repeat(count), ")".repeat(count)),
        format!("x = {}{}", "[".repeat(count), "]".repeat(count)),
        format!("x = {}{}", "{1:".repeat(count), "}".repeat(count)),
        format!("x = {}1", "-".repeat(count)),
        format!("x = {}1", "not ".repeat(count)),
        format!("x = 1{}", "+1".repeat(count)),
        format!("x = 1{}", " and 1".repeat(count)),
        format!("x = a{}", ".a".repeat(count)),
        format!("x = f{}", "()".repeat(count)),
        format!("x = f{}", "[0]".repeat(count)),
        format!("x = {}1", "1 if 1 else ".repeat(count / 2)),
        format!("x = {}1", "lambda: ".repeat(count / 2)),
        format!("x = [1{}]", " for a in b".repeat(count / 4)),
        format!("if 1:\n    pass\n{}", "elif 1:\n    pass\n".repeat(3_000)),
        (0..5_000).fold(String::new(), |code, n| {
            code + &" ".repeat(n % 300) + "if 1:\n"
        }),
        format!("x = {}", "1".repeat(60_000)),
        format!("x = {}1{}", "f\"{".repeat(3_000), "}\"".repeat(3_000)),
        format!("x = f\"{{{}1}}\"", "-".repeat(count)),
    ];
    for bomb in bombs {
        assert_eq!(limit(&bomb), "depth", "{}", &bomb[..60]);
    }
}

#[test]
fn code_at_the_nesting_limits_runs() {
    let deepest = [
        format!("x = {}1{}", "(".repeat(79), ")".repeat(79)),
        format!("x = {}{}", "[".repeat(79), "]".repeat(79)),
        format!("x = {}1", "-".repeat(399)),
        format!("x = {}1", "not ".repeat(399)),
        format!("x = 1{}", "+1".repeat(399)),
        format!("x = {}1", "1 if 1 else ".repeat(199)),
        format!("x = {}1", "lambda: ".repeat(66)),
        format!("if 1:\n    pass\n{}", "elif 1:\n    pass\n".repeat(200)),
        (0..40).fold(String::new(), |code, n| code + &" ".repeat(n) + "if 1:\n")
            + &" ".repeat(40)
            + "pass",
        format!("x = [{}]", "1, ".repeat(20_000)),
        format!(
            "x = [{}]",
            "{\"a\": 1 + 2, \"b\": [f(1).x]}, ".repeat(2_000)
        )
        .replace("f(1).x", "1"),
        "x = 1\n".repeat(10_000),
    ];
    for code in deepest {
        value(&code);
    }
}

#[test]
fn time_limit_reports_the_line() {
    let mut endless = script("for i in range(1000000000):\n    pass");
    endless.bounds.compute_ms = 100;
    let result = run_script(endless, FakeHost::default()).0.unwrap_err();
    assert_eq!(result.kind, FailureKind::Limit("time".to_owned()));
    assert_eq!(result.line, Some(1));
}

#[test]
fn memory_limit_is_checked_before_each_statement() {
    let mut growing = script("x = [1]\nfor i in range(60):\n    x = x + x");
    growing.bounds.memory = 16 * 1024 * 1024;
    let result = run_script(growing, FakeHost::default()).0.unwrap_err();
    assert_eq!(result.kind, FailureKind::Limit("memory".to_owned()));
    assert_eq!(result.line, Some(3));
    let mut straight = script(&format!("x = 'a'\n{}", "x = x + x\n".repeat(60)));
    straight.bounds.memory = 16 * 1024 * 1024;
    let result = run_script(straight, FakeHost::default()).0.unwrap_err();
    assert_eq!(result.kind, FailureKind::Limit("memory".to_owned()));
}

#[test]
fn limits_cannot_be_caught() {
    let mut endless =
        script("attempt(lambda: [0 for i in range(1000000000) if i < 0])\nresult = 1");
    endless.bounds.compute_ms = 100;
    let result = run_script(endless, FakeHost::default()).0.unwrap_err();
    assert_eq!(result.kind, FailureKind::Limit("time".to_owned()));
    let code = "def f(n):\n    return f(n + 1)\nattempt(lambda: f(0))\nresult = 1";
    assert_eq!(limit(code), "depth");
    let code = "for i in range(200):\n    attempt(lambda: youtube.search())";
    assert_eq!(limit(code), "calls");
    let code = "attempt(lambda: parallel([(youtube.search,)] * 101))\nresult = 1";
    assert_eq!(limit(code), "calls");
    let code = "attempt(lambda: print('a' * 300000))\nresult = 1";
    assert_eq!(limit(code), "printed");
}

#[test]
fn lost_host_ends_the_script() {
    let host = FakeHost {
        max_batches: Some(1),
        ..FakeHost::default()
    };
    let code =
        "youtube.search()\nfor i in range(3):\n    attempt(lambda: youtube.search())\n    print(i)";
    let (result, host) = run_script(script(code), host);
    assert_eq!(result.unwrap_err().kind, FailureKind::Runtime);
    assert_eq!(host.batches.len(), 1);
    assert_eq!(host.printed, "");
}

#[test]
fn results_are_limited_in_size_and_depth() {
    assert_eq!(
        limit("x = []\nfor i in range(40):\n    x = [x, x]\nresult = x"),
        "result"
    );
    assert_eq!(
        limit("x = []\nfor i in range(200):\n    x = [x]\nresult = x"),
        "result"
    );
    assert_eq!(limit("x = []\nx.append(x)\nresult = x"), "result");
    assert_eq!(limit("result = 'a' * 2000000"), "result");
    let code = "x = []\nfor i in range(40):\n    x = [x, x]\nyoutube.search(query=x)";
    let result = failure(code);
    assert!(
        matches!(result.kind, FailureKind::BadCall { .. }),
        "{result:?}"
    );
    let code = "x = []\nfor i in range(40):\n    x = [x, x]\nprint(len(str(x)))";
    let result = failure(code);
    let is_time_limit = result.kind == FailureKind::Limit("time".to_owned());
    assert!(
        is_time_limit || result.message.contains("too large"),
        "{result:?}"
    );
}

#[test]
fn oversized_values_are_rejected_immediately() {
    for code in [
        "x = list(range(1000000000))",
        "x = max(range(1000000000))",
        "x = sorted(range(100000000))",
        "x = set(range(100000000))",
        "x = attempt(lambda: sum(range(1000000000)))",
    ] {
        assert_eq!(limit(code), "memory", "{code}");
    }
    assert!(failure("x = int('9' * 5000)").message.contains("digits"));
    assert!(
        failure("x = pow(7, 100000000)")
            .message
            .contains("too large")
    );
    assert!(
        failure("x = format(1, '1000000000')")
            .message
            .contains("at most")
    );
}

#[test]
fn engine_panics_become_failures() {
    assert_eq!(limit("x = tuple(range(1000000000))"), "memory");
}
