//! Commands other than `serve`.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use crate::gate::{TestGate, run, toolgate, zoo};

#[test]
fn check_reports_every_mistake_with_its_location() {
    let folder = tempfile::tempdir().unwrap();
    let toml = "[mcp_servers.a]\ncomand = \"x\"\n\n[mcp_servers.b]\nurl = \"nowhere\"\n\n[[permissions.rules]]\ntool = \"x\"\naction = \"maybe\"\n";
    fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
    let (output, stdout, _) = run(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1));
    for expected in [
        "toolgate.toml:2:1: mcp_servers.a.comand: error: unknown key `comand`; did you mean `command`?",
        "toolgate.toml:5:1: mcp_servers.b.url: error: not a URL",
        "toolgate.toml:9:1: permissions.rules[0].action: error: expected one of allow, manual, ask, deny",
        "3 errors",
    ] {
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    }
}

#[test]
fn check_accepts_valid_file_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (output, stdout, _) = run(folder.path(), &["check"]);
    assert!(
        output.status.success() && stdout.contains("no configuration file"),
        "{stdout}"
    );
    let json =
        r#"{"mcp_servers": {"a": {"command": "x", "env": {"T": "env.NOT_SET"}}}, "plugins": []}"#;
    fs::write(folder.path().join("config.json"), json).unwrap();
    let (output, stdout, _) = run(folder.path(), &["check", "--config", "config.json"]);
    assert!(output.status.success(), "{stdout}");
    for expected in [
        "warning: `plugins` is ignored",
        "`NOT_SET` is not set",
        "config.json is valid: 1 server",
    ] {
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    }
}

#[test]
fn invalid_config_json_is_not_ignored_as_foreign() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), "{\"mcp\": ").unwrap();
    let (output, stdout, _) = run(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout.contains("config.json:1:"), "{stdout}");
}

#[test]
fn config_files_are_found_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let user = folder.path().join(".config/toolgate");
    fs::create_dir_all(&user).unwrap();
    fs::write(
        user.join("toolgate.toml"),
        "[mcp_servers.mine]\ncommand = \"x\"\n",
    )
    .unwrap();
    fs::write(
        folder.path().join("config.json"),
        r#"{"name": "some other program's file"}"#,
    )
    .unwrap();
    let servers = |expected: &str| {
        let mut check = toolgate(folder.path());
        let check = check.arg("check").env_remove("TOOLGATE_CONFIG");
        let stdout = String::from_utf8(check.output().unwrap().stdout).unwrap();
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    };
    servers("toolgate.toml is valid: 1 server");
    fs::write(
        folder.path().join("config.json"),
        r#"{"mcp_servers": {"two": {"command": "x"}}}"#,
    )
    .unwrap();
    servers("and config.json is valid: 2 servers");
    fs::write(
        folder.path().join("toolgate.toml"),
        "[mcp_servers.mine]\ncommand = \"y\"\n",
    )
    .unwrap();
    servers("and toolgate.toml is valid: 1 server");
    let (_, stdout, _) = run(folder.path(), &["check", "--config", "config.json"]);
    assert!(
        stdout.starts_with("config.json is valid: 1 server"),
        "{stdout}"
    );
    let (output, _, stderr) = run(folder.path(), &["check", "--config", "missing.toml"]);
    assert!(
        !output.status.success() && stderr.contains("cannot read `missing.toml`"),
        "{stderr}"
    );
}

#[tokio::test]
async fn tools_command_works_remote_and_standalone() {
    let toml = zoo("zoo", &[]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("own.toml"), &toml).unwrap();
    for target in [["--url", gate.url.as_str()], ["--config", "own.toml"]] {
        let tools = |args: &[&str]| run(folder.path(), &[&["tools"], &target[..], args].concat());

        let (output, stdout, stderr) = tools(&["list"]);
        assert!(output.status.success(), "{stderr}");
        assert!(
            stdout.contains("zoo_add") && stdout.contains("Adds two integers"),
            "{stdout}"
        );
        let (_, stdout, _) = tools(&["list", "adds"]);
        assert_eq!(stdout.lines().count(), 1, "{stdout}");

        let (_, stdout, _) = tools(&["describe", "zoo.add"]);
        assert!(
            stdout.starts_with("zoo_add\n") && stdout.contains("input schema:"),
            "{stdout}"
        );
        let (output, _, stderr) = tools(&["describe", "zoo.nothing"]);
        assert!(
            !output.status.success() && stderr.contains("unknown tool `zoo.nothing`"),
            "{stderr}"
        );

        let (output, stdout, stderr) = tools(&["call", "zoo_add", "a=40", "b=2"]);
        assert_eq!(
            (output.status.code(), stdout.as_str()),
            (Some(0), "42\n"),
            "{stderr}"
        );
        let (_, stdout, _) = tools(&["call", "zoo.echo", "--args", r#"{"n": 1e400, "m":-0.0}"#]);
        assert_eq!(stdout, "{\"n\": 1e400, \"m\":-0.0}\n");
        let (_, stdout, _) = tools(&["call", "zoo.echo", "text=hello", "n=7", "list=[1,2]"]);
        assert_eq!(stdout, "{\"text\":\"hello\",\"n\":7,\"list\":[1,2]}\n");
        let (output, stdout, _) = tools(&["call", "zoo_fail", "--json"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout.contains("\"is_error\": true"), "{stdout}");
        let (output, _, stderr) = tools(&["call", "zoo_add", "oops"]);
        assert!(
            !output.status.success() && stderr.contains("`oops` is not a valid argument"),
            "{stderr}"
        );
    }
}

#[tokio::test]
async fn arguments_can_be_read_from_stdin() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let mut child = toolgate(gate.folder.path())
        .args(["tools", "call", "zoo_echo", "--args", "-"])
        .env("TOOLGATE_URL", &gate.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"{\"a\": 0.10}")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "{\"a\": 0.10}\n");
}

#[tokio::test]
async fn key_is_read_from_environment() {
    let gate = TestGate::start_with(
        &zoo("zoo", &[]),
        &[],
        &[("TOOLGATE_ADMIN_KEY", "open-sesame")],
    );
    let (output, _, stderr) = run(gate.folder.path(), &["tools", "--url", &gate.url, "list"]);
    assert!(
        !output.status.success() && stderr.contains("TOOLGATE_KEY"),
        "{stderr}"
    );
    let mut command = toolgate(gate.folder.path());
    let output = command
        .args(["tools", "--url", &gate.url, "list"])
        .env("TOOLGATE_KEY", "open-sesame")
        .output()
        .unwrap();
    assert!(output.status.success());
}

#[test]
fn unreachable_gateway_error_suggests_serve() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _, stderr) = run(
        folder.path(),
        &["tools", "--url", "http://127.0.0.1:9", "list"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("no gateway is running at http://127.0.0.1:9/")
            && stderr.contains("toolgate serve"),
        "{stderr}"
    );
}

#[test]
fn help_version_and_completions_print() {
    let folder = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (&["--help"][..], "Run the gateway"),
        (&["serve", "--help"], "TOOLGATE_PORT"),
        (&["tools", "call", "--help"], "KEY=VALUE"),
        (&["completions", "bash"], "_toolgate"),
        (&["completions", "zsh"], "#compdef toolgate"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let (output, stdout, _) = run(folder.path(), args);
        assert!(
            output.status.success() && stdout.contains(expected),
            "{args:?}: {stdout}"
        );
    }
}
