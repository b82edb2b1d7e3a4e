//! The worker: a process that runs scripts and can do nothing else.
//!
//! It is started with [`FLAG`] as its first argument, locks itself in, and then talks to its host
//! over its standard input and output until they close. A program that embeds the gateway calls
//! [`main`] first thing in its own `main` when [`is_asked_for`] says so.

mod lock;

use std::io::{self, BufReader, Stdin, Stdout};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::thread;

use crate::protocol::{self, Answer, Bounds, Call, Failure, FailureKind, Script, ToHost, ToWorker};
use crate::starlark::{self, Gone, Host};
use crate::tokens;

/// The first argument of a program that is to be a worker; the second is the bytes of memory that a
/// script may use.
pub const FLAG: &str = "__script-worker";

/// Whether this process was started as a worker.
pub fn is_asked_for() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == FLAG)
}

/// The whole of a worker, until its host leaves.
pub fn main() -> ExitCode {
    let memory = std::env::args().nth(2).and_then(|text| text.parse().ok());
    let Some(memory) = memory else {
        return ExitCode::from(2);
    };
    // What broke is said over the pipe.
    std::panic::set_hook(Box::new(|_| {}));
    let locked = lock::files();
    let work = thread::Builder::new()
        .stack_size(starlark::STACK)
        .spawn(move || {
            let locked = locked?;
            warm_up();
            locked.wholly(memory)?;
            serve()
        });
    let ended = work.map(thread::JoinHandle::join);
    match ended {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(_)) | Err(_)) | Err(_) => ExitCode::FAILURE,
    }
}

/// Has everything made that is made once, so that it does not count as a script's.
fn warm_up() {
    let script = Script {
        language: protocol::Language::Starlark,
        code: "result = [str(x) for x in range(3)]".to_owned(),
        servers: Vec::new(),
        bounds: Bounds {
            own_ms: 1000,
            memory: u64::MAX,
            calls: 0,
            result: 1024,
            printed: 0,
        },
    };
    let _ready = starlark::run(&script, &mut Nobody);
}

fn serve() -> io::Result<()> {
    let mut pipe = Pipe {
        from: BufReader::new(io::stdin()),
        to: io::stdout(),
        printed: String::new(),
        broken: false,
    };
    pipe.say(&ToHost::Ready)?;
    while let Some(message) = protocol::read(&mut pipe.from)? {
        let answer = match message {
            ToWorker::Run(script) => {
                lock::time(script.bounds.own_ms)?;
                let ended = run(&script, &mut pipe);
                let printed = std::mem::take(&mut pipe.printed);
                ToHost::Ended { ended, printed }
            }
            ToWorker::Count(texts) => {
                ToHost::Counts(texts.iter().map(|text| tokens::count(text)).collect())
            }
            ToWorker::Answers(_) => return Err(io::Error::other("nothing was asked")),
        };
        if pipe.broken {
            return Ok(());
        }
        pipe.say(&answer)?;
    }
    Ok(())
}

fn run(script: &Script, pipe: &mut Pipe) -> Result<protocol::Value, Failure> {
    let run = || match script.language {
        protocol::Language::Starlark => starlark::run(script, pipe),
    };
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let message = "the script broke the interpreter";
        Err(Failure::new(FailureKind::Broken, message))
    })
}

/// The host at the other end of the pipes.
struct Pipe {
    from: BufReader<Stdin>,
    to: Stdout,
    /// What is not said yet.
    printed: String,
    broken: bool,
}

impl Pipe {
    fn say(&mut self, message: &ToHost) -> io::Result<()> {
        protocol::write(&mut self.to, message)
    }

    fn ask(&mut self, calls: Vec<Call>) -> io::Result<Option<Vec<Answer>>> {
        let wanted = calls.len();
        let printed = std::mem::take(&mut self.printed);
        self.say(&ToHost::Calls { calls, printed })?;
        match protocol::read(&mut self.from)? {
            Some(ToWorker::Answers(answers)) if answers.len() == wanted => Ok(Some(answers)),
            _ => Ok(None),
        }
    }
}

impl Host for Pipe {
    fn call(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, Gone> {
        let answers = self.ask(calls).ok().flatten();
        self.broken = answers.is_none();
        answers.ok_or(Gone)
    }

    fn print(&mut self, text: &str) {
        self.printed.push_str(text);
    }
}

/// No host at all.
struct Nobody;

impl Host for Nobody {
    fn call(&mut self, _: Vec<Call>) -> Result<Vec<Answer>, Gone> {
        Err(Gone)
    }

    fn print(&mut self, _: &str) {}
}
