//! Isolation of stdio servers: a malicious server against the gateway, its data and other servers.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gate::{TestGate, clean_environment, processes_with, run, serve_args, wait_for_url};

/// A server with tools that run any shell command, allocate memory and use CPU time.
const SHELL_SERVER: &str = r#"
import json, subprocess, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    params = request.get("params", {})
    if request["method"] == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "shell", "version": "1"}}
    elif request["method"] == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("sh", "hold", "spin")]}
    elif request["method"] == "tools/call" and params["name"] == "hold":
        held = b"x" * (params["arguments"]["mb"] * 1024 * 1024)
        result = {"content": [{"type": "text", "text": "held"}]}
    elif request["method"] == "tools/call" and params["name"] == "spin":
        while True:
            pass
    elif request["method"] == "tools/call":
        command = ["sh", "-c", params["arguments"]["command"]]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace") + "exit %d" % done.returncode
        result = {"content": [{"type": "text", "text": text}], "isError": "is_error" in params["arguments"]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

pub(crate) const SECRET: &str = "s3cret-of-the-gateway";

/// Configures a shell server named `sh_NAME`.
pub(crate) fn shell_server(folder: &Path, name: &str, settings: &str) -> String {
    let script = folder.join("shell.py");
    format!(
        "[mcp_servers.sh_{name}]\ncommand = \"python3\"\nargs = [{script:?}, \"sh_{name}\"]\ntools_to_auto_execute = [\"*\"]\n{settings}\n"
    )
}

/// Creates a folder with a shell server and a configuration.
pub(crate) fn folder_with(config: impl Fn(&Path) -> String) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("shell.py"), SHELL_SERVER).unwrap();
    fs::write(folder.path().join("toolgate.toml"), config(folder.path())).unwrap();
    folder
}

/// Runs a shell command in a server and returns its output and exit code.
pub(crate) async fn shell(gate: &TestGate, server: &str, command: &str) -> String {
    let arguments = serde_json::json!({"command": command}).to_string();
    let message = gate.call(&format!("sh_{server}_sh"), &arguments).await;
    message["content"].as_str().unwrap().to_owned()
}

pub(crate) fn measures(entry: &Value) -> Vec<(String, bool)> {
    let measures = entry["sandbox"]["measures"].as_array().unwrap().iter();
    let measure = |measure: &Value| {
        let name = measure["measure"].as_str().unwrap().to_owned();
        (name, measure["in_force"].as_bool().unwrap())
    };
    measures.map(measure).collect()
}

/// Returns whether the tests run as root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// What surrounds a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surroundings {
    Host,
    /// A part of `/proc` is covered and root cannot mount, as in a container. So servers get no PID namespace.
    Container,
}

/// Starts the gateway with a secret in its environment, as another user if one is given.
pub(crate) fn start(folder: TempDir, user: Option<u32>) -> TestGate {
    start_in(Surroundings::Host, folder, user)
}

/// Starts the gateway like [`start`], in some surroundings.
pub(crate) fn start_in(surroundings: Surroundings, folder: TempDir, user: Option<u32>) -> TestGate {
    let path = folder.path();
    let mut words: Vec<String> = Vec::new();
    if surroundings == Surroundings::Container {
        let cover = "mount -t tmpfs tmpfs /proc/fs && exec \"$@\"";
        let flags = if is_root() { "-m" } else { "-rm" };
        words.extend(["unshare", flags, "sh", "-c", cover, "sh"].map(String::from));
    }
    if let Some(user) = user {
        std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        words.push("setpriv".to_owned());
        words.extend(ids);
        words.push("--clear-groups".to_owned());
    } else if surroundings == Surroundings::Container {
        words.extend(["setpriv", "--bounding-set=-sys_admin"].map(String::from));
    }
    words.extend(serve_args().map(String::from));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let mut command = clean_environment(command, path);
    let log = fs::File::create(path.join("log")).unwrap();
    let mut child = command
        .env("GATEWAY_SECRET", SECRET)
        .env_remove("TOOLGATE_ADMIN_KEY")
        .env("TOOLGATE_KEY", "unused")
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let url = wait_for_url(&mut child, path);
    TestGate::new(child, url, folder)
}

/// Two servers, the first of which tries to read what belongs to the gateway and to the second.
async fn assert_default_profile_protects(surroundings: Surroundings, user: Option<u32>) {
    let folder = folder_with(|folder| {
        "admin_key = \"env.GATEWAY_SECRET\"\n".to_owned()
            + &shell_server(folder, "bad", "")
            + &shell_server(folder, "other", "env = { TOKEN = \"t0ken-of-other\" }")
            + &shell_server(folder, "off", "sandbox = \"off\"")
    });
    let mut gate = start_in(surroundings, folder, user);
    gate.client = client_with_key(SECRET);
    for server in ["sh_bad", "sh_other", "sh_off"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let data = gate.folder.path().join("data");
    let data = data.display();
    let gateway = gate.child.id();
    let output = shell(&gate, "other", "echo token $TOKEN").await;
    assert!(output.contains("t0ken-of-other"), "{output}");
    let script = gate.folder.path().join("shell.py");
    let other = processes_with(&format!("{} sh_other", script.display()))[0];
    let is_root = shell(&gate, "off", "id -u").await == "0\nexit 0";
    let protects_settings = surroundings == Surroundings::Host || is_root;
    // With each attempt, whether it succeeds without a sandbox; `None` if it would do harm or cannot.
    for (attempt, control) in [
        (format!("cat /proc/{gateway}/environ"), Some(is_root)),
        (format!("cat /proc/{gateway}/mem"), None),
        (format!("cat /proc/{gateway}/maps"), Some(is_root)),
        (
            format!("for file in /proc/{gateway}/fd/*; do readlink $file && exit 0; done; exit 1"),
            Some(is_root),
        ),
        (format!("cat /proc/{gateway}/fd/*"), None),
        (
            format!("cat /proc/{gateway}/root{data}/store.key"),
            Some(is_root),
        ),
        (
            format!("cat /proc/{gateway}/cwd/data/store.key"),
            Some(is_root),
        ),
        (format!("cat {data}/store.key"), Some(true)),
        (format!("cat {data}/toolgate.db"), Some(true)),
        (format!("cat {data}/../data/intents-0.log"), Some(true)),
        (format!("touch {data}/planted"), Some(true)),
        (
            format!("touch {data}/../.local/share/toolgate/trusted.json"),
            Some(true),
        ),
        (format!("umount {data}"), None),
        (format!("unshare -Urm umount {data}"), None),
        (format!("kill -STOP {gateway}"), None),
        (format!("kill -0 {gateway}"), Some(true)),
        (format!("prlimit --pid {gateway} --nofile=5:5"), None),
        (format!("prlimit --pid {other} --fsize=0:0"), None),
        (format!("cat /proc/{other}/environ"), Some(true)),
        (format!("cat /proc/{other}/mem"), None),
        (format!("cat /proc/{other}/root{data}/store.key"), None),
        (
            format!("nsenter -t {gateway} -m true"),
            Some(is_root && surroundings == Surroundings::Host),
        ),
        (
            format!("echo 1 > /proc/{gateway}/oom_score_adj"),
            Some(is_root),
        ),
        (format!("echo 2 > /proc/{other}/oom_score_adj"), Some(true)),
        (
            format!("echo 0 > /proc/{other}/coredump_filter"),
            Some(true),
        ),
        (format!("echo 1 > /proc/{other}/clear_refs"), Some(true)),
        (
            format!("for file in /proc/{other}/task/*/comm; do echo x > $file || exit 1; done"),
            None,
        ),
        ("echo x > /proc/sys/kernel/core_pattern".to_owned(), None),
    ] {
        if !protects_settings && attempt.contains(&format!("> /proc/{other}/")) {
            continue;
        }
        if let Some(succeeds) = control {
            let output = shell(&gate, "off", &attempt).await;
            assert_eq!(output.ends_with("exit 0"), succeeds, "{attempt}: {output}");
        }
        let output = shell(&gate, "bad", &attempt).await;
        assert!(!output.ends_with("exit 0"), "{attempt}: {output}");
        assert!(
            !output.contains(SECRET) && !output.contains("t0ken") && !output.contains("SQLite"),
            "{attempt}: {output}"
        );
    }
    let files = format!(
        "ls -A {data}; for file in /proc/$PPID/fd/*; do readlink $file; done | grep -vE 'pipe:|/dev/null'; true"
    );
    assert_eq!(
        shell(&gate, "bad", &files).await,
        "exit 0",
        "no inherited files"
    );
    // Everything else works as without a sandbox.
    let usual = "ulimit -n 64 && cd ~ && mkdir -p a b && echo x > a/f && mv a/f b/f && cat b/f && rm -r a b && cat shell.py | head -c 1";
    let output = shell(&gate, "bad", usual).await;
    assert_eq!(output, "x\n\nexit 0");
    // The gateway protects itself, except from root.
    let environ = format!("tr '\\0' '\\n' < /proc/{gateway}/environ");
    let output = shell(&gate, "off", &environ).await;
    assert_eq!(output.contains(SECRET), is_root, "{output}");
    let limits = fs::read_to_string(format!("/proc/{gateway}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let core: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(core[4..6], ["0", "0"]);

    let entry = gate.json("/api/mcp/client/sh_bad").await;
    assert_eq!(entry["sandbox"]["profile"], "default");
    let expected = [
        "data_hidden",
        "processes_isolated",
        "signals_blocked",
        "limits_isolated",
        "settings_isolated",
        "no_new_privileges",
        "capabilities_dropped",
        "descendants_stopped",
    ];
    let is_in_force = |name: &str| name != "settings_isolated" || protects_settings;
    assert_eq!(
        measures(&entry),
        expected.map(|name| (name.to_owned(), is_in_force(name))),
        "{entry}"
    );
    let mechanism = |index: usize| entry["sandbox"]["measures"][index]["mechanism"].clone();
    let mechanisms = match surroundings {
        Surroundings::Host => [json!("pid_namespace"), json!("pid_namespace")],
        Surroundings::Container if is_root => [json!("landlock"), json!("subreaper")],
        Surroundings::Container => [Value::Null, json!("subreaper")],
    };
    assert_eq!([mechanism(4), mechanism(7)], mechanisms, "{entry}");
    let off = gate.json("/api/mcp/client/sh_off").await;
    assert_eq!(off["sandbox"]["profile"], "off");
    assert_eq!(measures(&off), []);
}

pub(crate) fn client_with_key(key: &str) -> reqwest::Client {
    use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
    headers.insert(AUTHORIZATION, format!("Bearer {key}").parse().unwrap());
    let client = reqwest::Client::builder().default_headers(headers);
    client.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn malicious_server_cannot_read_the_gateway_or_other_servers() {
    assert_default_profile_protects(Surroundings::Host, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malicious_server_in_a_container_cannot_either() {
    assert_default_profile_protects(Surroundings::Container, None).await;
    if is_root() {
        assert_default_profile_protects(Surroundings::Container, Some(65534)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malicious_server_of_an_unprivileged_user_cannot_either() {
    // Otherwise, the other test is already the one of an unprivileged user.
    if is_root() {
        assert_default_profile_protects(Surroundings::Host, Some(65534)).await;
    }
}

/// Creates a folder with strict servers `sh_NETWORK`, and one without a sandbox.
fn strict_folder() -> TempDir {
    folder_with(|folder| {
        let path = |name: &str| format!("{:?}", folder.join(name));
        fs::create_dir(folder.join("work")).unwrap();
        fs::create_dir(folder.join("private")).unwrap();
        fs::write(folder.join("private/file"), "private").unwrap();
        let settings = |network: &str| {
            format!(
                "cwd = {work}\n[mcp_servers.sh_{network}.sandbox]\nread = [{script}]\nwrite = [{work}]\nnetwork = \"{network}\"\nmemory_mb = 400\nfiles = 64\ncpu_seconds = 100\n",
                work = path("work"),
                script = path("shell.py"),
            )
        };
        ["off", "loopback", "on"]
            .map(|network| shell_server(folder, network, &settings(network)))
            .concat()
            + &shell_server(folder, "free", "sandbox = \"off\"")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_server_has_only_the_listed_paths_and_no_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let folder = strict_folder();
    let gate = TestGate::start_in(folder);
    for server in ["sh_off", "sh_loopback", "sh_on", "sh_free"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let folder = gate.folder.path().display();
    for attempt in [
        format!("cat {folder}/private/file"),
        format!("cat {folder}/toolgate.toml"),
        format!("ls {folder}"),
        format!("echo x >> {folder}/private/file"),
        "ls /home /tmp".to_owned(),
        "file=$(mktemp /tmp/planted-XXXXXX) && rm $file".to_owned(),
        "python3 -c 'files = [open(\"/dev/null\") for _ in range(100)]'".to_owned(),
    ] {
        let output = shell(&gate, "off", &attempt).await;
        assert!(!output.ends_with("exit 0"), "{attempt}: {output}");
        let control = shell(&gate, "free", &attempt).await;
        assert!(control.ends_with("exit 0"), "{attempt}: {control}");
    }
    let output = shell(&gate, "off", &format!("echo x > {folder}/shell.py")).await;
    assert!(!output.ends_with("exit 0"), "{output}");
    let output = shell(
        &gate,
        "off",
        "echo x > file && mv file file2 && cat file2 && pwd",
    )
    .await;
    assert!(output.ends_with("work\nexit 0"), "{output}");

    let connect = |port: u16| {
        format!("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'")
    };
    let own = "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); socket.create_connection(s.getsockname(), 5)'";
    for (server, reaches_gateway, reaches_own) in [
        ("off", false, false),
        ("loopback", false, true),
        ("on", true, true),
    ] {
        let output = shell(&gate, server, &connect(address.port())).await;
        assert_eq!(
            output.ends_with("exit 0"),
            reaches_gateway,
            "{server}: {output}"
        );
        let output = shell(&gate, server, own).await;
        assert_eq!(
            output.ends_with("exit 0"),
            reaches_own,
            "{server}: {output}"
        );
    }
    let entry = gate.json("/api/mcp/client/sh_off").await;
    let names: Vec<String> = measures(&entry)
        .into_iter()
        .map(|(name, in_force)| {
            assert!(in_force, "{entry}");
            name
        })
        .collect();
    assert_eq!(
        names[8..],
        [
            "paths",
            "network",
            "system_calls",
            "memory",
            "cpu_time",
            "open_files"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_enforced_is_reported_and_stops_a_strict_server() {
    let folder = folder_with(|folder| {
        shell_server(
            folder,
            "strict",
            "sandbox = { read = [\"/does/not/exist\"] }",
        ) + &shell_server(folder, "home", "env = { HOME = \"data\" }\ncwd = \"data\"")
            + "[mcp_servers.missing]\ncommand = \"no-such-command\"\n"
            + "[mcp_servers.refused]\ncommand = \"/etc/passwd\"\n"
    });
    let gate = TestGate::start_in(folder);
    let strict = gate.wait_for_state("sh_strict", "error").await;
    let reason = strict["reason"].as_str().unwrap();
    assert!(
        reason.contains("`paths`: `/does/not/exist` does not exist"),
        "{reason}"
    );
    // The server works in the data directory, so that cannot be hidden.
    let home = gate.wait_for_state("sh_home", "healthy").await;
    let missing: Vec<_> = measures(&home)
        .into_iter()
        .filter(|(_, in_force)| !in_force)
        .collect();
    assert_eq!(missing, [("data_hidden".to_owned(), false)], "{home}");
    let log = gate.log();
    assert!(
        log.contains("a part of the sandbox of servers is not in force"),
        "{log}"
    );
    // The launcher does not appear in errors.
    let missing = gate.wait_for_state("missing", "unavailable").await;
    let reason = missing["reason"].as_str().unwrap();
    assert!(
        reason.contains("command `no-such-command` not found"),
        "{reason}"
    );
    let refused = gate.wait_for_state("refused", "unavailable").await;
    let reason = refused["reason"].as_str().unwrap();
    assert!(
        reason.contains("failed to start command `/etc/passwd`: Permission denied"),
        "{reason}"
    );

    let folder = gate.folder.path();
    let sandbox = |name: &str| run(folder, &["servers", "sandbox", name, "--url", &gate.url]);
    let (output, text, _) = sandbox("missing");
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("profile: default\ndata_hidden "), "{text}");
    let (output, text, _) = sandbox("sh_home");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("data_hidden            NOT in force: "),
        "{text}"
    );
    let args = ["servers", "sandbox", "missing", "--config", "toolgate.toml"];
    let (output, text, stderr) = run(folder, &args);
    assert!(output.status.success(), "{text}{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn network_variables_are_passed_as_a_group_and_missing_ones_hinted_at() {
    let folder = folder_with(|folder| {
        let bin = folder.join("bin");
        fs::create_dir(&bin).unwrap();
        let npx = bin.join("npx");
        fs::write(&npx, "#!/bin/sh\necho cannot download >&2\nexit 1\n").unwrap();
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&npx, fs::Permissions::from_mode(0o755)).unwrap();
        shell_server(folder, "proxy", "env_groups = [\"network\"]")
            + &shell_server(folder, "plain", "")
            + &format!("[mcp_servers.npm]\ncommand = {npx:?}\n")
            + &format!("[mcp_servers.npm_proxy]\ncommand = {npx:?}\nenv_groups = [\"network\"]\n")
    });
    let toml = fs::read_to_string(folder.path().join("toolgate.toml")).unwrap();
    let gate = TestGate::start_with(&toml, &[], &[("HTTPS_PROXY", "http://proxy.example:3128")]);
    for (server, proxy) in [
        ("proxy", "http://proxy.example:3128\nexit 0"),
        ("plain", "\nexit 0"),
    ] {
        gate.wait_for_state(&format!("sh_{server}"), "healthy")
            .await;
        assert_eq!(shell(&gate, server, "echo $HTTPS_PROXY").await, proxy);
    }
    for (server, has_hint) in [("npm", true), ("npm_proxy", false)] {
        let entry = gate.wait_for_state(server, "unavailable").await;
        let reason = entry["reason"].as_str().unwrap();
        assert!(reason.contains("cannot download"), "{reason}");
        assert_eq!(
            reason.contains("`HTTPS_PROXY` is set for the gateway"),
            has_hint,
            "{reason}"
        );
    }
    drop(folder);
}
