//! A model server that replays a script in the wire formats of real providers.
//!
//! It serves `POST /v1/chat/completions` and `/v1/responses` like OpenAI, `POST /v1/messages` like
//! Anthropic, each streamed or not, and `GET /v1/models` like either. Other endpoints of OpenAI, such
//! as `/v1/embeddings`, have fixed answers. [`ModelScript`] holds the
//! replies, `turn` their content; `chat`, `responses` and `messages` implement one wire format
//! each; `delivery` deals with bytes and connections only. A script produces the same content over
//! every API, and no response depends on the clock, so responses can be compared byte by byte.

mod api;
mod chat;
mod delivery;
mod endpoints;
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
pub use script::ModelScript;
pub use server::RecordedRequest;
pub use turn::has_tool_result;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio_util::sync::CancellationToken;

use server::ModelState;

/// A running model with its own thread and port; dropping it closes every connection.
#[derive(Debug)]
pub struct ScriptedModel {
    port: u16,
    state: Arc<ModelState>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedModel {
    /// Starts a model that gives one reply per request and then repeats the last one.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start(replies: Vec<Reply>) -> Self {
        ModelScript::new(replies).start()
    }

    /// Starts a model that gives one reply per request and answers 500 to every later request.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start_strict(replies: Vec<Reply>) -> Self {
        ModelScript::new(replies).strict().start()
    }

    fn start_script(script: ModelScript) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("failed to bind a port");
        listener
            .set_nonblocking(true)
            .expect("failed to make the listener non-blocking");
        let port = listener
            .local_addr()
            .expect("the listener has no address")
            .port();
        let state = Arc::new(ModelState::new(script));
        let stop = CancellationToken::new();
        let (server_state, stopped) = (Arc::clone(&state), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("failed to start the runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)
                    .expect("failed to register the listener");
                stopped
                    .run_until_cancelled(server::serve(listener, server_state))
                    .await;
            });
        });
        Self {
            port,
            state,
            stop,
            thread: Some(thread),
        }
    }

    /// Returns the base URL, without `/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the port, even after [`ScriptedModel::stop`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns every request so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.recorded_requests()
    }

    /// Returns the completion requests: all except model lists and unknown paths.
    #[must_use]
    pub fn turns(&self) -> Vec<RecordedRequest> {
        let mut turns = self.requests();
        turns.retain(RecordedRequest::is_turn);
        turns
    }

    /// Returns the number of clients that disconnected before the end of their response.
    #[must_use]
    pub fn disconnects(&self) -> usize {
        self.state.disconnects()
    }

    /// Closes every connection; nothing listens on the port when this returns.
    ///
    /// # Panics
    /// If the server thread panicked.
    pub fn stop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            // A second panic while the test already fails would abort and hide the first.
            assert!(
                joined.is_ok() || std::thread::panicking(),
                "the scripted model panicked"
            );
        }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.stop();
    }
}
