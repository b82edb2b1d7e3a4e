//! Loading, merging and checking of configuration files.

use std::time::Duration;

use super::*;
use crate::policy::ToolList;

const TOML: &str = r#"
tool_name_style = "mcp"

[mcp_servers.github]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-github"]
env = { GITHUB_TOKEN = "env.GITHUB_TOKEN", MODE = "x" }
timeout = "45s"

[mcp_servers.remote]
url = "http://localhost:8080"
headers = { Authorization = "Bearer abc" }
enabled = false
tools_to_execute = ["a", "b"]
tools_to_auto_execute = ["a"]

[security]
mcp_server_allowlist = ["github", "remote"]
mcp_server_denylist = ["remote"]

[[permissions.rules]]
tool = "mcp__github__*"
action = "allow"
"#;

const JSON: &str = r#"{
  "mcp": {
    "client_configs": [
      {
        "name": "filesystem",
        "client_id": "fs-1",
        "connection_type": "stdio",
        "stdio_config": {"command": "npx", "args": ["-y", "x"], "envs": ["TOKEN", "A=b", "C=env.D"]},
        "tools_to_execute": ["*"],
        "tools_to_auto_execute": ["read_file"],
        "tool_execution_timeout": 5
      },
      {
        "name": "web",
        "connection_type": "http",
        "connection_string": "env.WEB_URL",
        "tls_config": {"insecure_skip_verify": true},
        "allowed_extra_headers": ["X-Tenant"]
      }
    ],
    "tool_manager_config": {"tool_execution_timeout": "1m", "max_agent_depth": 5},
    "tool_sync_interval": "5m"
  },
  "providers": {"openai": {"keys": []}}
}"#;

fn load(format: ConfigFormat, text: &str) -> Result<(Config, Vec<ConfigFinding>), InvalidConfig> {
    Config::load(&[Document::parse("test", format, text)])
}

fn errors(format: ConfigFormat, text: &str) -> Vec<String> {
    let findings = load(format, text).expect_err("must not load").0;
    findings.iter().map(ToString::to_string).collect()
}

fn stdio(server: &ServerConfig) -> &StdioConnection {
    match &server.connection {
        ServerConnection::Stdio(stdio) => stdio,
        other => panic!("{other:?}"),
    }
}

#[test]
fn toml_format_loads() {
    let (config, findings) = load(ConfigFormat::Toml, TOML).unwrap();
    assert_eq!(findings, []);
    assert_eq!(config.tool_name_style, NameStyle::Mcp);
    let [github, remote] = &config.servers[..] else {
        panic!("two servers")
    };
    assert_eq!(github.timeout, Some(Duration::from_secs(45)));
    assert_eq!(
        stdio(github).env["GITHUB_TOKEN"],
        Secret::Env("GITHUB_TOKEN".into())
    );
    assert_eq!(github.lists.execute, ToolList::All);
    assert_eq!(github.lists.auto_execute, ToolList::none());
    assert!(!remote.enabled);
    assert!(remote.lists.auto_execute.contains("a"));
    assert_eq!(
        config.security.refusal_key(&remote.name),
        Some("security.mcp_server_denylist")
    );
    assert_eq!(config.security.refusal_key(&github.name), None);
    assert_eq!(
        config.permissions.rules[0].config_key,
        "permissions.rules[0]"
    );
}

#[test]
fn json_format_loads() {
    let (config, findings) = load(ConfigFormat::Json, JSON).unwrap();
    let [fs, web] = &config.servers[..] else {
        panic!("two servers")
    };
    assert_eq!((fs.id.as_str(), web.id.as_str()), ("fs-1", "web"));
    assert_eq!(fs.timeout, Some(Duration::from_secs(5)));
    let env = &stdio(fs).env;
    assert_eq!(env["TOKEN"], Secret::Env("TOKEN".into()));
    assert_eq!(env["A"], Secret::Literal("b".into()));
    assert_eq!(env["C"], Secret::Env("D".into()));
    assert_eq!(
        web.lists.execute,
        ToolList::none(),
        "absent lists mean no tools"
    );
    assert_eq!(config.tool_manager.max_agent_depth, 5);
    assert_eq!(
        config.tool_manager.tool_execution_timeout,
        Duration::from_secs(60)
    );
    let [empty_list] = &findings[..] else {
        panic!("one finding: {findings:?}")
    };
    assert_eq!(
        empty_list.location.key,
        "mcp.client_configs[1].tools_to_execute"
    );
    assert_eq!(empty_list.severity, Severity::Warning);
    let [openai] = &config.models.providers[..] else {
        panic!("one provider")
    };
    assert_eq!(openai.base_url.as_str(), "https://api.openai.com/v1");
}

#[test]
fn either_spelling_in_either_file_type() {
    let value = Document::parse("t", ConfigFormat::Toml, TOML).value;
    let as_json = serde_json::to_string(&value).unwrap();
    assert_eq!(
        load(ConfigFormat::Json, &as_json).unwrap().0.servers.len(),
        2
    );
    let toml = r#"
        [[mcp.client_configs]]
        name = "fs"
        connection_type = "stdio"
        stdio_config = { command = "x" }
        [mcp.tool_manager_config]
        tool_execution_timeout = "2s"
    "#;
    let (config, _) = load(ConfigFormat::Toml, toml).unwrap();
    assert_eq!(
        config.tool_manager.tool_execution_timeout,
        Duration::from_secs(2)
    );
}

#[test]
fn every_error_is_reported_with_its_location() {
    let text = r#"
tool_name_stile = "mcp"
port = 99999

[mcp_servers."bad name"]
command = "x"

[mcp_servers.both]
command = "x"
url = "http://h"

[mcp_servers.typo]
comand = "x"

[mcp_servers.none]

[mcp_servers.time]
command = "x"
timeout = "30 parsecs"

[mcp_servers.url]
url = "localhost:3000"

[mcp_servers.lists]
command = "x"
tools_to_execute = ["*", "a"]

[[permissions.rules]]
tool = "*"
action = "alow"

[[permissions.rules]]
action = "deny"
"#;
    let errors = errors(ConfigFormat::Toml, text).join("\n");
    for expected in [
        "test:2:1: tool_name_stile: error: unknown key `tool_name_stile`; did you mean `tool_name_style`?",
        "test:3:1: port: error: expected at most 65535, found 99999",
        "test:5:14: mcp_servers.bad name: error: server name `bad name` may contain only letters",
        "test:8:14: mcp_servers.both: error: has both `command` and `url`",
        "test:13:1: mcp_servers.typo.comand: error: unknown key `comand`; did you mean `command`?",
        "test:15:14: mcp_servers.none: error: needs `command` or `url`",
        "test:19:1: mcp_servers.time.timeout: error: expected a duration such as \"30s\"",
        "test:22:1: mcp_servers.url.url: error: not a URL starting with",
        "test:26:1: mcp_servers.lists.tools_to_execute: error: `*` means all tools",
        "test:30:1: permissions.rules[0].action: error: expected one of allow, manual, ask, deny (did you mean `allow`?), found a string",
        "permissions.rules[1]: error: a rule needs `tool`, `server`, `resource` or `prompt`",
    ] {
        assert!(
            errors.contains(expected),
            "missing: {expected}\nin:\n{errors}"
        );
    }
    assert_eq!(errors.lines().count(), 11, "{errors}");
}

#[test]
fn syntax_errors_have_a_location() {
    assert!(errors(ConfigFormat::Json, "{\n  \"mcp\": }")[0].starts_with("test:2:10: error:"));
    assert!(errors(ConfigFormat::Toml, "a = \n")[0].starts_with("test:1:"));
    assert!(
        errors(ConfigFormat::Json, r#"{"port": 1, "port": 2}"#)[0].contains("duplicate key `port`")
    );
}

#[test]
fn unsupported_security_settings_are_rejected() {
    let client = |extra: &str| {
        format!(
            r#"{{"mcp": {{"client_configs": [{{"name": "a", "connection_type": "http", "connection_string": "http://h", "tools_to_execute": ["*"], {extra}}}]}}}}"#
        )
    };
    for (extra, expected) in [
        (r#""oauth_config": {}"#, "`oauth_config` is not supported"),
        (r#""auth_type": "oauth""#, "only `none` and `headers`"),
        (
            r#""token_exchange": {}"#,
            "`token_exchange` is not supported",
        ),
        (
            r#""per_user_header_keys": []"#,
            "`per_user_header_keys` is not supported",
        ),
    ] {
        let errors = errors(ConfigFormat::Json, &client(extra));
        assert!(errors[0].contains(expected), "{errors:?}");
    }
    let rule = "[[permissions.rules]]\ntool = \"*\"\npattern = \"rm *\"\naction = \"allow\"";
    assert!(errors(ConfigFormat::Toml, rule)[0].contains("`pattern` does not apply to MCP tools"));
    let builtin = rule.replace("\"*\"", "\"Bash\"");
    let (_, findings) = load(ConfigFormat::Toml, &builtin).unwrap();
    assert!(
        findings[0].message.contains("never matches"),
        "a rule for a built-in tool of agent-code is harmless"
    );
}

#[test]
fn later_entries_replace_earlier_ones_and_rules_accumulate() {
    let user = Document::parse(
        "user",
        ConfigFormat::Toml,
        r#"
        port = 1
        host = "::1"
        [mcp_servers.a]
        command = "user"
        env = { X = "1" }
        [mcp_servers.b]
        command = "b"
        [security]
        mcp_server_denylist = ["b"]
        mcp_server_allowlist = ["a", "b"]
        [[permissions.rules]]
        tool = "a.x"
        action = "deny"
    "#,
    );
    let project = Document::parse(
        "project",
        ConfigFormat::Json,
        r#"{
        // comments are fine
        "port": 2,
        "mcp_servers": {"a": {"command": "project"}, "c": {"command": "c"}},
        "security": {"mcp_server_denylist": [], "mcp_server_allowlist": ["a", "c"]},
        "permissions": {"default": "ask", "rules": [{"tool": "a.y", "action": "ask"}]},
    }"#,
    );
    let (config, _) = Config::load(&[user, project]).unwrap();
    let names: Vec<_> = config.servers.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
    let a = stdio(&config.servers[1]);
    assert_eq!((a.command.as_str(), a.env.len()), ("project", 0));
    assert_eq!(
        (config.listen.port, config.listen.host.as_deref()),
        (Some(2), Some("::1"))
    );
    assert_eq!(config.permissions.rules.len(), 2);
    let refused: Vec<_> = config
        .servers
        .iter()
        .map(|s| config.security.refusal_key(&s.name).is_some())
        .collect();
    assert_eq!(
        refused,
        [true, false, true],
        "merged files must not be less strict than a single one"
    );
}

#[test]
fn conflicting_names_and_ids_are_errors() {
    let clash = "[mcp_servers.web-search]\ncommand=\"x\"\n[mcp_servers.Web_Search]\ncommand=\"x\"";
    assert!(errors(ConfigFormat::Toml, clash)[0].contains("has the same name as `web-search`"));
    let same_id = r#"{"mcp": {"client_configs": [
        {"name": "a", "client_id": "x", "connection_type": "stdio", "stdio_config": {"command": "c"}, "tools_to_execute": ["*"]},
        {"name": "b", "client_id": "x", "connection_type": "stdio", "stdio_config": {"command": "c"}, "tools_to_execute": ["*"]}]}}"#;
    assert!(errors(ConfigFormat::Json, same_id)[0].contains("`client_id` is the same"));
}

#[test]
fn secrets_are_never_displayed() {
    let (config, _) = load(ConfigFormat::Toml, TOML).unwrap();
    assert!(!format!("{config:?}").contains("abc"));
    let wrong = "[mcp_servers.a]\ncommand = \"x\"\ntimeout = \"hunter2\"";
    assert!(!errors(ConfigFormat::Toml, wrong)[0].contains("hunter2"));
}

const CONTROL: &str = r#"
environment = "production"

[mcp]
blocked_tools = ["fs.drop"]

[mcp_servers.fs]
command = "x"
rate_limit = "10/s"
tool_pricing = { read = 0.25 }
[mcp_servers.fs.tools.read]
timeout = "5s"
max_in_flight = 2

[[permissions.rules]]
tool = "fs.*"
arguments = { path = ["/etc/*", "*.env"], force = "true" }
roles = "dev"
environment = ["production", "staging"]
hint = "destructive"
action = "deny"

[roles.dev]
tools = ["fs.*"]

[keys.ci]
sha256 = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
roles = ["dev", "approver"]
mcp_configs = [{ mcp_client_name = "fs", tools_to_execute = ["read", "write"] }]
rate_limit = "60/min"
budget = { usd = 1.5, per = "day" }
expires_at = "2027-01-31T00:00:00Z"

[scanner]
shell = "deny"

[environments.production]
permissions.default = "ask"
[environments.production.mcp_servers.fs]
command = "y"
[environments.development.mcp_servers.other]
command = "z"
"#;

#[test]
fn overlay_replaces_settings_of_the_active_environment() {
    let (config, findings) = load(ConfigFormat::Toml, CONTROL).unwrap();
    assert_eq!(findings, []);
    assert_eq!(config.environment.as_deref(), Some("production"));
    assert_eq!(config.blocked_tools, ["fs.drop"]);
    assert_eq!(config.permissions.default, Some(Verdict::Ask));
    let [server] = &config.servers[..] else {
        panic!("one server")
    };
    assert!(
        matches!(&server.connection, ServerConnection::Stdio(stdio) if stdio.command == "y"),
        "the overlay's entry replaces the whole entry of the file"
    );
    assert_eq!(server.limits, ServerLimits::default());
    let when = &config.permissions.rules[0].when;
    assert_eq!(when.arguments.len(), 2);
    assert_eq!(when.environments, ["production", "staging"]);
    assert_eq!(when.roles, ["dev"]);
    let key = &config.keys[0];
    assert_eq!(
        key.tools.as_deref(),
        Some(&["fs.read".to_owned(), "fs.write".to_owned()][..])
    );
    let budget = key.limits.budget.unwrap();
    assert_eq!(budget.micro_usd, Some(1_500_000));
    assert_eq!(config.scanner.shell, OnDanger::Deny);
    assert_eq!(config.scanner.secret, OnDanger::Warn);

    let mistyped = CONTROL.replacen("\"production\"", "\"prodution\"", 1);
    let messages = errors(ConfigFormat::Toml, &mistyped);
    assert!(
        messages[0].contains("did you mean `production`?"),
        "{messages:?}"
    );
    let elsewhere = CONTROL.replacen("\"production\"", "\"test\"", 1);
    let (config, findings) = load(ConfigFormat::Toml, &elsewhere).unwrap();
    assert_eq!(findings, []);
    let server = &config.servers[0];
    let read = server.tool_limits("read");
    assert_eq!(read.price, Some(250_000));
    assert_eq!(read.timeout, Some(Duration::from_secs(5)));
    assert_eq!(config.permissions.default, None);
}

#[test]
fn errors_in_keys_roles_and_overlays_are_reported() {
    let base = "[mcp_servers.fs]\ncommand = \"x\"\n";
    for (text, expected) in [
        ("[keys.ci]\n", "either `key`"),
        ("[keys.ci]\nkey = \"\"\n", "can be guessed"),
        (
            "[keys.ci]\nkey = \"a-long-enough-key\"\nsha256 = \"00\"\n",
            "keys.ci.sha256",
        ),
        (
            "[keys.ci]\nkey = \"a-long-enough-key\"\nroles = [\"nope\"]\n",
            "no role named `nope`",
        ),
        (
            "[keys.\"a b\"]\nkey = \"a-long-enough-key\"\n",
            "1 to 64 letters",
        ),
        (
            "[keys.ci]\nkey = \"a-long-enough-key\"\nexpires_at = \"soon\"\n",
            "not a valid time",
        ),
        (
            "[keys.ci]\nkey = \"a-long-enough-key\"\nrate_limit = \"fast\"\n",
            "a rate",
        ),
        (
            "[environments.x.mcp_servers.fs]\ncomand = \"y\"\n",
            "did you mean `command`?",
        ),
        ("[scanner]\nshell = \"maybe\"\n", "expected one of off"),
        (
            "[mcp_servers.s]\ncommand = \"x\"\nsandbox = { user = \"root\" }\n",
            "root is not a user for servers",
        ),
        (
            "[mcp_servers.s]\ncommand = \"x\"\nsandbox = { user = \"0\" }\n",
            "root is not a user for servers",
        ),
        (
            "[mcp_servers.s]\ncommand = \"x\"\nsandbox = { user = \"a:b\" }\n",
            "not the name of a user",
        ),
        (
            "[store]\nkey = \"text\"\n",
            "the key itself has no place in a configuration file",
        ),
        (
            "[store]\nkey = \"env.K\"\nkey_file = \"f\"\n",
            "set only one of `key`, `key_file` and `key_command`",
        ),
        ("[store]\nkey_command = []\n", "names no program"),
        (
            "[store]\nkey_command_timeout = \"1s\"\n",
            "need `key_command`",
        ),
        (
            "[store]\nkey = \"env.K\"\n[mcp_servers.other]\ncommand = \"x\"\nenv = { A = \"env.K\" }\n",
            "`K` holds the key of the store and cannot be used here",
        ),
        (
            "[store]\nkey_command = [\"x\"]\nkey_command_env = [\"TOOLGATE_STORE_KEY\"]\n",
            "`TOOLGATE_STORE_KEY` holds the key of the store",
        ),
        (
            "[environments.x.store]\nkey = \"env.K\"\n",
            "unknown key `store`",
        ),
        (
            "[environments.x]\nhost = \"0.0.0.0\"\n",
            "unknown key `host`",
        ),
    ] {
        let messages = errors(ConfigFormat::Toml, &format!("{base}{text}"));
        assert!(
            messages.iter().any(|error| error.contains(expected)),
            "{text}: {messages:?}"
        );
    }
}

mod providers;
mod rules;
