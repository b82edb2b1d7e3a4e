//! The strict sandbox: system calls, users, and hints about what it denies; and a sandbox that is not there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, clean_environment, run, serve_args, wait_for_url};
use crate::sandbox::{
    SECRET, client_with_key, folder_with, is_root, measures, shell, shell_server, start,
};

/// Makes system calls by number and prints for each one its name and the error.
const MAKE_CALLS: &str = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
def call(name, x86, arm, *args):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(x86 if X86 else arm), *[ctypes.c_long(arg) for arg in args])
    code = ctypes.get_errno()
    print(name, errno.errorcode.get(code, code))
def in_child(name, *args):
    # What it does must not stay.
    if os.fork() == 0:
        call(name, *args)
        os._exit(0)
    os.wait()
import sys
os.dup2(1, 2)
sys.stdout.reconfigure(line_buffering=True)
in_child("ptrace", 101, 117, 0, 0, 0, 0)
in_child("process_vm_readv", 310, 270, os.getpid(), 0, 0, 0, 0, 0)
in_child("keyctl", 250, 219, 0, -5, 0, 0, 0)
in_child("setns", 308, 268, -1, 0)
in_child("pidfd_getfd", 438, 438, -1, 0, 0)
in_child("ioctl", 16, 29, 0, 0x5412, 0)
in_child("io_uring_setup", 425, 425, 0, 0)
in_child("bpf", 321, 280, 0, 0, 0)
in_child("perf_event_open", 298, 241, 0, 0, 0, 0, 0)
in_child("kexec_load", 246, 104, 0, 0, 0, 0)
in_child("init_module", 175, 105, 0, 0, 0)
in_child("mount", 165, 40, 0, 0, 0, 0, 0)
in_child("umount2", 166, 39, 0, 0)
in_child("fsopen", 430, 430, 0, 0)
in_child("open_tree", 428, 428, -1, 0, 0)
in_child("open_by_handle_at", 304, 265, -1, 0, 0)
in_child("swapon", 167, 224, 0, 0)
in_child("reboot", 169, 142, 0, 0, 0, 0)
in_child("settimeofday", 170, 170, 0, 0)
in_child("clock_settime", 227, 112, 0, 0)
in_child("acct", 163, 89, -1)
in_child("add_key", 248, 217, 0, 0, 0, 0, 0)
in_child("userfaultfd", 323, 282, 1)
if X86:
    in_child("x32_ptrace", 0x40000000 | 521, 0, 0, 0, 0, 0)
    in_child("x32_mount", 0x40000000 | 165, 0, 0, 0, 0, 0, 0)
"#;

/// Calls that do not fail in this way without a sandbox, for any user.
const USUAL_CALLS: [&str; 3] = ["ptrace", "process_vm_readv", "ioctl"];
/// Further ones of which that is true for root.
const USUAL_CALLS_OF_ROOT: [&str; 6] = ["keyctl", "setns", "pidfd_getfd", "bpf", "mount", "swapon"];

/// Configures a strict server `sh_NAME` that may read its script and the file `calls.py`.
fn strict_server(folder: &Path, name: &str, settings: &str) -> String {
    let read = ["shell.py", "calls.py"].map(|name| folder.join(name));
    let read = format!("read = {read:?}\n{settings}\n");
    shell_server(
        folder,
        name,
        &format!("cwd = \"/\"\n[mcp_servers.sh_{name}.sandbox]\n{read}"),
    )
}

/// Lets other users enter a folder and read its files.
fn open_to_others(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_server_cannot_make_dangerous_system_calls() {
    let folder = folder_with(|folder| {
        fs::write(folder.join("calls.py"), MAKE_CALLS).unwrap();
        strict_server(folder, "strict", "") + &shell_server(folder, "free", "sandbox = \"off\"")
    });
    let gate = TestGate::start_in(folder);
    for server in ["sh_strict", "sh_free"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let command = format!("python3 {}/calls.py", gate.folder.path().display());
    let blocked = shell(&gate, "strict", &command).await;
    let control = shell(&gate, "free", &command).await;
    let lines = |text: &str| -> Vec<(String, String)> {
        let lines = text.lines().filter(|line| !line.starts_with("exit "));
        let parts = lines.map(|line| line.split_once(' ').unwrap());
        parts
            .map(|(name, error)| (name.to_owned(), error.to_owned()))
            .collect()
    };
    let (blocked, control) = (lines(&blocked), lines(&control));
    assert!(blocked.len() >= 23, "{blocked:?}");
    assert_eq!(blocked.len(), control.len(), "{control:?}");
    for ((name, error), (_, without)) in blocked.iter().zip(&control) {
        let expected = if name == "io_uring_setup" {
            "ENOSYS"
        } else {
            "EPERM"
        };
        assert_eq!(error, expected, "{name}");
        if USUAL_CALLS.contains(&name.as_str())
            || is_root() && USUAL_CALLS_OF_ROOT.contains(&name.as_str())
        {
            assert_ne!(without, expected, "{name}");
        }
    }
    // What programs need still works: threads, child processes, namespaces as browsers use them.
    let usual = "python3 -c 'import threading, subprocess, multiprocessing, asyncio; t = threading.Thread(target=print); t.start(); t.join(); print(subprocess.check_output([\"echo\", \"x\"]))' && unshare -U true && echo fine";
    let output = shell(&gate, "strict", usual).await;
    let control = shell(&gate, "free", usual).await;
    assert_eq!(output, control);
    let entry = gate.json("/api/mcp/client/sh_strict").await;
    assert!(
        entry.to_string().contains("\"mechanism\":\"seccomp\""),
        "{entry}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_server_of_root_runs_as_another_user() {
    if !is_root() {
        return; // the next test is about this
    }
    let folder = folder_with(|folder| {
        fs::write(folder.join("secret"), "for root only").unwrap();
        fs::set_permissions(folder.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(folder.join("calls.py"), "").unwrap();
        open_to_others(folder);
        let work = folder.join("work");
        fs::create_dir(&work).unwrap();
        std::os::unix::fs::chown(&work, Some(12345), Some(12345)).unwrap();
        let write = format!("write = [{work:?}, {:?}]", folder.join("secret"));
        strict_server(folder, "root", &write)
            + &strict_server(folder, "number", &format!("{write}\nuser = 12345"))
            + &strict_server(folder, "name", &format!("{write}\nuser = \"daemon\""))
            + &strict_server(folder, "nobody", "user = \"no-such-user\"")
    });
    let gate = TestGate::start_in(folder);
    for server in ["sh_root", "sh_number", "sh_name"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let folder = gate.folder.path().display();
    let ids = "id -u; id -g; id -G; grep -E 'Uid|CapEff|CapPrm|NoNewPrivs' /proc/self/status";
    let output = shell(&gate, "number", ids).await;
    let expected = "12345\n12345\n12345\nUid:\t12345\t12345\t12345\t12345\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nexit 0";
    assert_eq!(output, expected);
    let output = shell(&gate, "name", "id -un; id -gn").await;
    assert_eq!(output, "daemon\ndaemon\nexit 0");
    let secret = format!("cat {folder}/secret");
    for (server, reads) in [("root", true), ("number", false), ("name", false)] {
        let output = shell(&gate, server, &secret).await;
        assert_eq!(
            output.contains("for root only"),
            reads,
            "{server}: {output}"
        );
    }
    let usual = format!(
        "echo x > {folder}/work/file && cat {folder}/work/file && echo y > /proc/$PPID/fd/2"
    );
    let output = shell(&gate, "number", &usual).await;
    assert_eq!(output, "x\nexit 0");
    let again = shell(
        &gate,
        "number",
        "setpriv --reuid=0 --clear-groups true; kill -0 1",
    )
    .await;
    assert!(!again.ends_with("exit 0"), "{again}");
    let missing = gate.wait_for_state("sh_nobody", "error").await;
    let reason = missing["reason"].as_str().unwrap();
    assert!(
        reason.contains("there is no user `no-such-user`"),
        "{reason}"
    );
    let args = ["servers", "sandbox", "sh_number", "--url", &gate.url];
    let (output, text, _) = run(gate.folder.path(), &args);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("user                   in force (user_id)"),
        "{text}"
    );
    assert!(
        text.contains("system_calls           in force (seccomp)"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_root_runs_servers_as_another_user() {
    let folder = folder_with(|folder| {
        fs::write(folder.join("calls.py"), "").unwrap();
        "admin_key = \"env.GATEWAY_SECRET\"\n".to_owned()
            + &strict_server(folder, "strict", "user = 12345")
    });
    let mut gate = start(folder, is_root().then_some(65534));
    gate.client = client_with_key(SECRET);
    let entry = gate.wait_for_state("sh_strict", "error").await;
    let reason = entry["reason"].as_str().unwrap();
    assert!(
        reason.contains("`user`: only root can run servers as another user"),
        "{reason}"
    );
    let missing = measures(&entry)
        .into_iter()
        .filter(|(_, in_force)| !in_force);
    assert_eq!(missing.collect::<Vec<_>>(), [("user".to_owned(), false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_accesses_are_explained_in_the_log_of_the_server() {
    let folder = folder_with(|folder| {
        fs::write(folder.join("calls.py"), "").unwrap();
        fs::write(folder.join("private"), "private").unwrap();
        strict_server(folder, "strict", "")
            + &shell_server(folder, "nothing", "sandbox = \"strict\"")
            + &shell_server(folder, "default", "")
    });
    let gate = TestGate::start_in(folder);
    let path = gate.folder.path().display().to_string();
    let hint = |what: &str, server: &str| {
        format!(
            "`{path}/{what}` is not in the sandbox: if server `{server}` needs it, add it to `sandbox.read` or `sandbox.write`"
        )
    };
    // A server that does not start says so in its state, too.
    let nothing = gate.wait_for_state("sh_nothing", "unavailable").await;
    for field in ["stderr_tail", "reason"] {
        let text = nothing[field].as_str().unwrap();
        assert!(
            text.contains(&hint("shell.py", "sh_nothing")),
            "{field}: {text}"
        );
        assert!(text.contains("Permission denied"), "{field}: {text}");
    }
    for server in ["strict", "default"] {
        gate.wait_for_state(&format!("sh_{server}"), "healthy")
            .await;
        // What the command prints to standard error, here twice, goes to that of the server.
        let denied = format!(
            "for i in 1 2; do cat {path}/private {path}/calls.py /no/such/file; done 2> /proc/$PPID/fd/2"
        );
        shell(&gate, server, &denied).await;
        // A failed call, whose text only the caller gets.
        let failed = json!({
            "command": "echo \"EACCES: permission denied, open '/srv/of-a-call'\"; echo connect ENETUNREACH 192.0.2.1:443",
            "is_error": true,
        });
        gate.call(&format!("sh_{server}_sh"), &failed.to_string())
            .await;
    }
    let tail = async |server: &str| -> String {
        let entry = gate.json(&format!("/api/mcp/client/sh_{server}")).await;
        entry["stderr_tail"].as_str().unwrap_or_default().to_owned()
    };
    let strict = eventually("the hints are there", WAIT_TIMEOUT, async || {
        let tail = tail("strict").await;
        let has_all =
            tail.matches("/private: Permission denied").count() == 2 && tail.contains("of-a-call");
        has_all.then_some(tail)
    })
    .await;
    assert_eq!(
        strict.matches(&hint("private", "sh_strict")).count(),
        1,
        "{strict}"
    );
    for expected in [
        "toolgate: `/srv/of-a-call` is not in the sandbox",
        "toolgate: the sandbox of server `sh_strict` has no network",
    ] {
        assert_eq!(strict.matches(expected).count(), 1, "{strict}");
    }
    assert_eq!(strict.matches("toolgate: ").count(), 3, "{strict}");
    let default = tail("default").await;
    assert!(!default.contains("toolgate: "), "{default}");
}

/// Without `/proc`, the launcher cannot be started, so nothing is known about the sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn server_whose_sandbox_is_unknown_starts_only_if_it_is_not_strict_and_the_gateway_says_so() {
    let folder = folder_with(|folder| {
        fs::write(folder.join("calls.py"), "").unwrap();
        shell_server(folder, "default", "") + &strict_server(folder, "strict", "")
    });
    let mut command = Command::new("unshare");
    command
        .args([
            "-rm",
            "sh",
            "-c",
            "mount -t tmpfs tmpfs /proc && exec \"$@\"",
            "sh",
        ])
        .args(serve_args());
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let mut child = clean_environment(command, folder.path())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let url = wait_for_url(&mut child, folder.path());
    let gate = TestGate::new(child, url, folder);
    let entry: Value = gate.wait_for_state("sh_default", "healthy").await;
    let measures = measures(&entry);
    assert_eq!(measures.len(), 8, "{entry}");
    assert!(measures.iter().all(|(_, in_force)| !in_force), "{entry}");
    let reason = "the launcher did not start";
    assert!(entry["sandbox"].to_string().contains(reason), "{entry}");
    let log = gate.log();
    assert!(
        log.contains("failed to find out what the sandbox of servers can enforce"),
        "{log}"
    );
    let args = ["servers", "sandbox", "sh_default", "--url", &gate.url];
    let (output, text, _) = run(gate.folder.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(
        text.matches("NOT in force: the launcher did not start")
            .count(),
        8,
        "{text}"
    );
    let strict = gate.wait_for_state("sh_strict", "error").await;
    let text = strict["reason"].as_str().unwrap();
    assert!(
        text.contains("the strict sandbox cannot be enforced"),
        "{text}"
    );
}
