//! `toolgate connect`: writes the settings of clients, and leaves everything else in their files as it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::gate::run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolgate");

/// A client, its settings file below the home folder, and the path of its entry in a JSON file.
const JSON_CLIENTS: [(&str, &str, &str); 9] = [
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        "/mcpServers/toolgate",
    ),
    ("claude-code", ".claude.json", "/mcpServers/toolgate"),
    ("cursor", ".cursor/mcp.json", "/mcpServers/toolgate"),
    ("vscode", ".config/Code/User/mcp.json", "/servers/toolgate"),
    (
        "windsurf",
        ".codeium/windsurf/mcp_config.json",
        "/mcpServers/toolgate",
    ),
    (
        "zed",
        ".config/zed/settings.json",
        "/context_servers/toolgate",
    ),
    (
        "gemini-cli",
        ".gemini/settings.json",
        "/mcpServers/toolgate",
    ),
    (
        "cline",
        ".cline/data/settings/cline_mcp_settings.json",
        "/mcpServers/toolgate",
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        "/mcp/toolgate",
    ),
];

const URL: &str = "http://127.0.0.1:8080/mcp";

fn write(home: &Path, file: &str, content: &str) -> PathBuf {
    let path = home.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// Runs `connect` and returns its standard output.
fn connect(home: &Path, args: &[&str]) -> String {
    let (output, stdout, stderr) = run(home, &[&["connect"], args].concat());
    assert!(output.status.success(), "{args:?}: {stdout}{stderr}");
    stdout
}

/// Runs `connect`, which must fail, and returns its standard error.
fn refuse(home: &Path, args: &[&str]) -> String {
    let (output, stdout, stderr) = run(home, &[&["connect"], args].concat());
    assert!(!output.status.success(), "{args:?}: {stdout}{stderr}");
    stderr
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the files beside a file, apart from itself.
fn others(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path.parent().unwrap()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files.filter(|file| file != path).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns what connects a client without a key, and with a key in MY_KEY.
fn expected_entries(client: &str) -> [Value; 2] {
    let bearer = |reference: &str| json!({"Authorization": format!("Bearer {reference}")});
    let process = |args: Value| json!({"command": PROGRAM, "args": args});
    let plain = process(json!(["mcp"]));
    let keyed = process(json!(["mcp", "--key-env", "MY_KEY"]));
    let typed = |mut entry: Value| {
        entry["type"] = "stdio".into();
        entry
    };
    match client {
        "claude-desktop" | "zed" => [plain, keyed],
        "cline" => [typed(plain), typed(keyed)],
        "claude-code" => [json!({"type": "http", "url": URL}), typed(keyed)],
        "cursor" => [
            json!({"url": URL}),
            json!({"url": URL, "headers": bearer("${env:MY_KEY}")}),
        ],
        "vscode" => [
            json!({"type": "http", "url": URL}),
            json!({"type": "http", "url": URL, "headers": bearer("${env:MY_KEY}")}),
        ],
        "windsurf" => [
            json!({"serverUrl": URL}),
            json!({"serverUrl": URL, "headers": bearer("${env:MY_KEY}")}),
        ],
        "gemini-cli" => [
            json!({"httpUrl": URL}),
            json!({"httpUrl": URL, "headers": bearer("${MY_KEY}")}),
        ],
        "opencode" => [
            json!({"type": "remote", "url": URL, "enabled": true}),
            json!({"type": "remote", "url": URL, "enabled": true, "headers": bearer("{env:MY_KEY}")}),
        ],
        other => panic!("{other}"),
    }
}

#[test]
fn absent_file_is_created_and_entry_replaced_later() {
    for (client, file, pointer) in JSON_CLIENTS {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(file);
        let [plain, keyed] = expected_entries(client);
        let shown = connect(home.path(), &[client, "--yes"]);
        assert!(shown.contains("+++ "), "{shown}");
        assert_eq!(read_json(&path).pointer(pointer), Some(&plain), "{client}");
        assert_eq!(mode(&path), 0o600);
        let again = connect(home.path(), &[client, "--yes"]);
        assert!(again.contains("connects to the gateway already"), "{again}");
        assert!(others(&path).is_empty(), "{client}");
        connect(home.path(), &[client, "--yes", "--key-env", "MY_KEY"]);
        assert_eq!(read_json(&path).pointer(pointer), Some(&keyed), "{client}");
        assert_eq!(others(&path).len(), 1);
        connect(home.path(), &[client, "--yes"]);
        assert_eq!(read_json(&path).pointer(pointer), Some(&plain), "{client}");
    }
}

#[test]
fn comments_and_other_servers_stay() {
    for (client, file, pointer) in JSON_CLIENTS {
        let home = tempfile::tempdir().unwrap();
        let section = pointer.split('/').nth(1).unwrap();
        let before = format!(
            "// my settings\n{{\n    \"theme\": \"dark\", // not light\n    /* servers */\n    \"{section}\": {{\n        // the notes\n        \"notes\": {{ \"command\": \"notes\", \"args\": [1.50, \"é\"], }},\n    }},\n    \"last\": [\n        1,\n    ],\n}}\n"
        );
        let path = write(home.path(), file, &before);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        connect(home.path(), &[client, "--yes"]);
        let after = fs::read_to_string(&path).unwrap();
        let kept: Vec<&str> = before.lines().collect();
        let mut lines = after.lines();
        for line in &kept {
            assert!(
                lines.any(|found| found == *line),
                "{client}: {line} in\n{after}"
            );
        }
        assert!(after.contains("\"toolgate\""));
        assert_eq!(mode(&path), 0o640, "{client}");
        let backups = others(&path);
        assert_eq!(backups.len(), 1, "{backups:?}");
        assert_eq!(fs::read_to_string(&backups[0]).unwrap(), before);
        assert_eq!(mode(&backups[0]), 0o640);
        // Comments stay, also when the entry is written again.
        connect(home.path(), &[client, "--yes", "--server", "notes"]);
        let after = fs::read_to_string(&path).unwrap();
        assert!(
            after.contains("// the notes") && after.contains("// not light"),
            "{after}"
        );
    }
}

#[test]
fn members_that_the_user_added_to_the_entry_stay() {
    let home = tempfile::tempdir().unwrap();
    let before = json!({"mcpServers": {"toolgate": {"url": "http://old/mcp", "env": {"A": "b"}, "disabled": true}}});
    let file = ".config/Claude/claude_desktop_config.json";
    let path = write(home.path(), file, &before.to_string());
    connect(home.path(), &["claude-desktop", "--yes"]);
    let entry = &read_json(&path)["mcpServers"]["toolgate"];
    let expected =
        json!({"command": PROGRAM, "args": ["mcp"], "env": {"A": "b"}, "disabled": true});
    assert_eq!(entry, &expected);
}

#[test]
fn codex_settings_are_toml() {
    let home = tempfile::tempdir().unwrap();
    let before = "# mine\nmodel = \"gpt\" # good\n\n[mcp_servers.notes]\ncommand = \"notes\"\n\n[mcp_servers.toolgate]\ncommand = \"old\" # mine too\nstartup_timeout_sec = 20\n\n[tui]\nnotifications = true\n";
    let path = write(home.path(), ".codex/config.toml", before);
    connect(home.path(), &["codex", "--yes", "--key-env", "MY_KEY"]);
    let after = fs::read_to_string(&path).unwrap();
    let expected = before.replace(
        "command = \"old\" # mine too\nstartup_timeout_sec = 20\n",
        "startup_timeout_sec = 20\nurl = \"http://127.0.0.1:8080/mcp\"\nbearer_token_env_var = \"MY_KEY\"\n",
    );
    assert_eq!(after, expected);
    let again = connect(home.path(), &["codex", "--yes", "--key-env", "MY_KEY"]);
    assert!(again.contains("already"), "{again}");
    fs::remove_file(&path).unwrap();
    connect(
        home.path(),
        &["codex", "--yes", "--url", "https://gate.example/x/"],
    );
    let created = fs::read_to_string(&path).unwrap();
    assert_eq!(
        created,
        "[mcp_servers.toolgate]\nurl = \"https://gate.example/x/mcp\"\n"
    );
    fs::write(&path, "[mcp_servers\n").unwrap();
    let refused = refuse(home.path(), &["codex", "--yes"]);
    assert!(refused.contains("cannot be parsed"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "[mcp_servers\n");
}

#[test]
fn goose_settings_are_yaml() {
    let home = tempfile::tempdir().unwrap();
    let file = ".config/goose/config.yaml";
    let notes = "  notes:\n    type: stdio # mine\n    cmd: notes\n    args:\n    - -x\n";
    let before =
        format!("# goose\nGOOSE_MODE: auto\nextensions:\n{notes}\n# the end\nother:\n- 1\n");
    let path = write(home.path(), file, &before);
    connect(home.path(), &["goose", "--yes", "--key-env", "MY_KEY"]);
    let entry = format!(
        "  toolgate:\n    enabled: true\n    type: \"stdio\"\n    name: \"toolgate\"\n    description: \"Tools of the Toolgate gateway\"\n    cmd: {PROGRAM:?}\n    args: [\"mcp\",\"--key-env\",\"MY_KEY\"]\n    envs: {{}}\n    env_keys: [\"MY_KEY\"]\n    timeout: 300\n"
    );
    let expected = before.replace(notes, &format!("{entry}{notes}"));
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    let again = connect(home.path(), &["goose", "--yes", "--key-env", "MY_KEY"]);
    assert!(again.contains("already"), "{again}");
    connect(home.path(), &["goose", "--yes"]);
    let entry = entry
        .replace(",\"--key-env\",\"MY_KEY\"", "")
        .replace("[\"MY_KEY\"]", "[]");
    for (content, expected) in [
        ("", format!("extensions:\n{entry}")),
        ("a: 1\n", format!("a: 1\nextensions:\n{entry}")),
        (
            "extensions: {}\nb: 2\n",
            format!("extensions:\n{entry}b: 2\n"),
        ),
    ] {
        fs::write(&path, content).unwrap();
        connect(home.path(), &["goose", "--yes"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }
    for malformed in ["a: 1\nb\n", "\tx: 1\n", "extensions: {a: {}}\n", "[1]\n"] {
        fs::write(&path, malformed).unwrap();
        let refused = refuse(home.path(), &["goose", "--yes"]);
        assert!(refused.contains("toolgate:"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), malformed);
    }
}

#[test]
fn malformed_files_are_refused_and_kept() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".cursor/mcp.json");
    for (content, expected) in [
        ("{\"mcpServers\": {", "cannot be parsed"),
        ("{'a': 1}", "cannot be parsed"),
        ("{\"a\": 1 \"b\": 2}", "cannot be parsed"),
        ("[]", "not an object"),
        (
            "{\"mcpServers\": []}",
            "`mcpServers` in it is not an object",
        ),
        ("{\"mcpServers\": {}, \"mcpServers\": {}}", "twice"),
    ] {
        write(home.path(), ".cursor/mcp.json", content);
        let refused = refuse(home.path(), &["cursor", "--yes"]);
        assert!(refused.contains(expected), "{content}: {refused}");
        assert!(
            refused.contains("\"toolgate\""),
            "the settings are printed: {refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        assert!(others(&path).is_empty());
    }
}

#[test]
fn symbolic_link_stays_and_its_file_is_changed() {
    let home = tempfile::tempdir().unwrap();
    let real = write(home.path(), "dotfiles/cursor.json", "{}");
    let link = home.path().join(".cursor/mcp.json");
    fs::create_dir(home.path().join(".cursor")).unwrap();
    symlink("../dotfiles/cursor.json", &link).unwrap();
    connect(home.path(), &["cursor", "--yes"]);
    assert!(link.is_symlink());
    assert_eq!(read_json(&real)["mcpServers"]["toolgate"]["url"], URL);
    fs::remove_file(&real).unwrap();
    let refused = refuse(home.path(), &["cursor", "--yes"]);
    assert!(refused.contains("symbolic link"), "{refused}");
}

#[test]
fn folder_that_cannot_be_written_is_reported() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), "").unwrap();
    let refused = refuse(home.path(), &["cursor", "--yes", "--file", "file/mcp.json"]);
    assert!(refused.contains("file/mcp.json"), "{refused}");
    let path = write(home.path(), ".cursor/mcp.json", "{}");
    let folder = path.parent().unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o500)).unwrap();
    // The superuser may write everywhere.
    if fs::write(folder.join("probe"), "").is_err() {
        let refused = refuse(home.path(), &["cursor", "--yes"]);
        assert!(refused.contains("nothing was changed"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn nothing_is_written_without_consent() {
    let home = tempfile::tempdir().unwrap();
    let path = write(home.path(), ".cursor/mcp.json", "{}");
    let refused = refuse(home.path(), &["cursor"]);
    assert!(refused.contains("--yes"), "{refused}");
    let printed = connect(home.path(), &["cursor", "--print"]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["mcpServers"]["toolgate"]["url"], URL);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    let printed = connect(home.path(), &["codex", "--print", "--virtual-server", "v"]);
    assert!(printed.contains("mcp/v/v"), "{printed}");
}

#[test]
fn key_is_written_only_on_request() {
    let home = tempfile::tempdir().unwrap();
    let connect_with_key = |args: &[&str]| {
        let output = crate::gate::toolgate(home.path())
            .arg("connect")
            .args(args)
            .env("MY_KEY", "tg-secret")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for client in [
        "claude-desktop",
        "claude-code",
        "cursor",
        "codex",
        "goose",
        "zed",
    ] {
        let args = [client, "--print", "--key-env", "MY_KEY"];
        assert!(!connect_with_key(&args).contains("tg-secret"), "{client}");
        let args = [client, "--print", "--key-env", "MY_KEY", "--write-key"];
        assert!(connect_with_key(&args).contains("tg-secret"), "{client}");
    }
    let refused = refuse(
        home.path(),
        &["cursor", "--print", "--key-env", "MY_KEY", "--write-key"],
    );
    assert!(refused.contains("MY_KEY is not set"), "{refused}");
    let refused = refuse(
        home.path(),
        &["cursor", "--print", "--key-env", "tg-secret"],
    );
    assert!(refused.contains("not the key"), "{refused}");
}

#[test]
fn line_ends_and_byte_order_mark_stay() {
    let home = tempfile::tempdir().unwrap();
    for (client, content) in [
        ("cursor", "\u{feff}{\r\n  // mine\r\n  \"a\": 1\r\n}\r\n"),
        ("codex", "\u{feff}# mine\r\na = 1\r\n"),
        ("goose", "\u{feff}# mine\r\na: 1\r\n"),
    ] {
        let path = write(home.path(), "settings", content);
        connect(home.path(), &[client, "--yes", "--file", "settings"]);
        let after = fs::read_to_string(&path).unwrap();
        assert!(after.starts_with('\u{feff}'), "{after:?}");
        assert!(after.contains("toolgate") && after.contains("# mine\r\n") || client == "cursor");
        let ends = after.matches('\n').count();
        assert_eq!(after.matches("\r\n").count(), ends, "{after:?}");
    }
}
