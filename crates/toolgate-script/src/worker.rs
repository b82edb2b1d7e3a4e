//! Worker process: runs scripts and can do nothing else.
//!
//! A worker is started with [`WORKER_FLAG`] as its first argument, sandboxes itself, and then serves its
//! host over standard input and output until they close. A program that embeds the gateway calls [`main`]
//! at the start of its own `main` if [`is_worker_process`] returns true.

mod sandbox;

use std::io::{self, BufReader, Stdin, Stdout, Write as _};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::thread;

use crate::protocol::{
    self, FailureKind, HostMessage, ScriptCall, ScriptCallResult, ScriptFailure, ScriptRequest,
    WorkerLimits, WorkerMessage,
};
use crate::starlark::{self, Host, HostGone};
use crate::tokens;

/// First argument of a worker process. The second is the memory limit of a script in bytes.
pub const WORKER_FLAG: &str = "__script-worker";

/// Returns whether this process was started as a worker.
pub fn is_worker_process() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == WORKER_FLAG)
}

/// Runs a worker until its host disconnects.
pub fn main() -> ExitCode {
    let memory = std::env::args().nth(2).and_then(|text| text.parse().ok());
    let Some(memory) = memory else {
        return ExitCode::from(2);
    };
    // A script that panics fails with a message over the pipe, not on standard error.
    std::panic::set_hook(Box::new(|_| {}));
    // Landlock applies to the calling thread and its children, so restrict before spawning.
    let sandbox = sandbox::restrict_files();
    let worker = thread::Builder::new()
        .stack_size(starlark::STACK_BYTES)
        .spawn(move || {
            let sandbox = sandbox?;
            warm_up();
            sandbox.restrict_fully(memory)?;
            serve()
        });
    let outcome = worker.and_then(|thread| {
        let panicked = |_| Err(io::Error::other("the worker thread panicked"));
        thread.join().unwrap_or_else(panicked)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The host logs this if the worker does not become ready. It may be gone already.
            let _best_effort = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Initializes lazily created state so that it does not count towards a script's limits.
fn warm_up() {
    let script = ScriptRequest {
        language: protocol::Language::Starlark,
        code: "result = [str(x) for x in range(3)]".to_owned(),
        servers: Vec::new(),
        bounds: WorkerLimits {
            compute_ms: 1000,
            memory: u64::MAX,
            calls: 0,
            result: 1024,
            printed: 0,
        },
    };
    let _result = starlark::run(&script, &mut NoHost);
}

fn serve() -> io::Result<()> {
    let mut pipe = HostPipe {
        input: BufReader::new(io::stdin()),
        output: io::stdout(),
        printed: String::new(),
        disconnected: false,
    };
    pipe.send(&WorkerMessage::Ready)?;
    while let Some(message) = protocol::read_message(&mut pipe.input)? {
        let reply = match message {
            HostMessage::Run(script) => {
                sandbox::limit_cpu_time(script.bounds.compute_ms)?;
                let ended = run(&script, &mut pipe);
                let printed = std::mem::take(&mut pipe.printed);
                WorkerMessage::Ended { ended, printed }
            }
            HostMessage::Count(texts) => WorkerMessage::Counts(
                texts
                    .iter()
                    .map(|text| tokens::count_tokens(text))
                    .collect(),
            ),
            HostMessage::Answers(_) => {
                return Err(io::Error::other("received call results without a request"));
            }
        };
        if pipe.disconnected {
            return Ok(());
        }
        pipe.send(&reply)?;
    }
    Ok(())
}

fn run(
    script: &ScriptRequest,
    pipe: &mut HostPipe,
) -> Result<protocol::ScriptResult, ScriptFailure> {
    let run = || match script.language {
        protocol::Language::Starlark => starlark::run(script, pipe),
    };
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let message = "the script crashed the interpreter";
        Err(ScriptFailure::new(FailureKind::Broken, message))
    })
}

/// Host connected through standard input and output.
struct HostPipe {
    input: BufReader<Stdin>,
    output: Stdout,
    /// Printed output that has not been sent yet.
    printed: String,
    disconnected: bool,
}

impl HostPipe {
    fn send(&mut self, message: &WorkerMessage) -> io::Result<()> {
        protocol::write_message(&mut self.output, message)
    }

    fn request_calls(&mut self, calls: Vec<ScriptCall>) -> io::Result<Vec<ScriptCallResult>> {
        let count = calls.len();
        let printed = std::mem::take(&mut self.printed);
        self.send(&WorkerMessage::Calls { calls, printed })?;
        match protocol::read_message(&mut self.input)? {
            Some(HostMessage::Answers(results)) if results.len() == count => Ok(results),
            _ => Err(io::Error::other("the host did not send the results")),
        }
    }
}

impl Host for HostPipe {
    fn call(&mut self, calls: Vec<ScriptCall>) -> Result<Vec<ScriptCallResult>, HostGone> {
        // The host is gone, so the error cannot be reported.
        let results = self.request_calls(calls).map_err(|_| HostGone);
        self.disconnected = results.is_err();
        results
    }

    fn print(&mut self, text: &str) {
        self.printed.push_str(text);
    }
}

/// Host for scripts that make no calls.
struct NoHost;

impl Host for NoHost {
    fn call(&mut self, _: Vec<ScriptCall>) -> Result<Vec<ScriptCallResult>, HostGone> {
        Err(HostGone)
    }

    fn print(&mut self, _: &str) {}
}
