//! A model that says what a script tells it to, in the wire forms of the real ones.
//!
//! It serves `POST /v1/chat/completions` and `/v1/responses` as OpenAI does, `POST /v1/messages`
//! as Anthropic does, each whole or streamed, and `GET /v1/models` as either. [`Script`] holds the
//! replies, `turn` what a reply says; `chat`, `responses` and `messages` know one wire form each;
//! `delivery` knows bytes and connections only. The same script tells the same story over every
//! API, and nothing in an answer depends on the clock, so answers can be compared byte by byte.

mod api;
mod chat;
mod delivery;
mod flags;
mod messages;
mod reply;
mod responses;
mod script;
mod server;
mod turn;

pub use delivery::Chunking;
pub use flags::main;
pub use reply::Reply;
pub use script::Script;
pub use server::Recorded;
pub use turn::has_tool_result;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio_util::sync::CancellationToken;

use server::Stage;

/// A running model, on a thread and a port of its own; dropping it cuts every connection.
#[derive(Debug)]
pub struct Model {
    port: u16,
    stage: Arc<Stage>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    /// Plays these replies, one a request, and the last one again and again.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start(replies: Vec<Reply>) -> Self {
        Script::new(replies).start()
    }

    /// Plays these replies, one a request, and answers 500 to every request after them.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn strict(replies: Vec<Reply>) -> Self {
        Script::new(replies).strict().start()
    }

    fn perform(script: Script) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("it can be polled");
        let port = listener.local_addr().expect("it is bound").port();
        let stage = Arc::new(Stage::new(script));
        let stop = CancellationToken::new();
        let (playing, stopped) = (Arc::clone(&stage), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime starts");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
                stopped
                    .run_until_cancelled(server::serve(listener, playing))
                    .await;
            });
        });
        Self {
            port,
            stage,
            stop,
            thread: Some(thread),
        }
    }

    /// Its address, without `/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port it listens on, and after [`Model::stop`] the one it listened on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Every request so far, in the order in which they arrived.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.stage.recorded()
    }

    /// The requests that asked the model to speak: all but those for lists and unknown paths.
    #[must_use]
    pub fn turns(&self) -> Vec<Recorded> {
        let mut turns = self.requests();
        turns.retain(Recorded::is_turn);
        turns
    }

    /// How many clients went away before they had their whole answer.
    #[must_use]
    pub fn disconnects(&self) -> usize {
        self.stage.disconnects()
    }

    /// Cuts every connection; nothing listens on the port any more when this returns.
    ///
    /// # Panics
    /// If the server had panicked.
    pub fn stop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            // A second panic while a test already fails would hide the first.
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the scripted model panicked"
            );
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.stop();
    }
}
