//! Newline-delimited JSON-RPC on stdin and stdout.
//!
//! One thread reads, one thread writes, and each request is a task between them. Only the writer
//! touches stdout, so lines are never interleaved.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::flags::FaultFlags;
use super::outbox::{Frame, Outbox};
use super::rpc::RpcMessage;
use super::server::{RequestOrigin, ZooServer};

const REORDER_HOLD: Duration = Duration::from_millis(50);

/// Lines that `--garbage` writes before each answer: not JSON, not an object, empty, not UTF-8.
const GARBAGE_LINES: &[&[u8]] = &[
    b"Server listening, have fun!",
    b"",
    b"{\"jsonrpc\":\"2.0\",\"id\":",
    b"42",
    b"[]",
    b"\"text\"",
    b"null",
    b"   ",
    b"\xff\xfe\x00broken",
];

/// Serves until stdin ends, or forever with `--ignore-sigterm`.
pub(crate) async fn serve(server: Arc<ZooServer>, faults: &FaultFlags) {
    if let Some(ms) = faults.slow_start {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let (outbox, frames) = Outbox::new();
    let writer = start_writer(frames, faults);
    let mut lines = start_reader();
    while let Some(line) = lines.recv().await {
        if !line.trim_ascii().is_empty() {
            handle_line(&server, &line, &outbox);
        }
    }
    if faults.ignore_sigterm {
        std::future::pending::<()>().await;
    }
    server.close().await;
    drop(outbox);
    writer.join().expect("the writer thread panicked");
}

fn handle_line(server: &Arc<ZooServer>, line: &[u8], outbox: &Outbox) {
    let message = match RpcMessage::parse(line) {
        Ok(message) => message,
        Err(answer) => {
            if !server.is_silent_on("") {
                outbox.answer(answer);
            }
            return;
        }
    };
    server.on_message(&message);
    match message {
        RpcMessage::Request(request) => {
            server.start(request, RequestOrigin::default(), outbox.clone())
        }
        RpcMessage::Notification { method, params } => {
            server.on_notification(&method, &params, "", Some(outbox));
        }
        RpcMessage::Response(reply) => server.on_response("", reply),
    }
}

fn start_reader() -> UnboundedReceiver<Vec<u8>> {
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            match stdin.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if sender.send(line).is_err() => return,
                Ok(_) => {}
            }
        }
    });
    lines
}

fn start_writer(mut frames: UnboundedReceiver<Frame>, faults: &FaultFlags) -> JoinHandle<()> {
    let (garbage, reorder) = (faults.garbage, faults.reorder);
    let runtime = Handle::current();
    std::thread::spawn(move || {
        while let Some(first) = frames.blocking_recv() {
            let mut batch = vec![first];
            if reorder && matches!(batch[0], Frame::Answer(_)) {
                runtime.block_on(collect_batch(&mut batch, &mut frames));
                batch = newest_answer_first(batch);
            }
            for frame in batch {
                // A disconnected client is detected at the end of stdin.
                let _ = write_frame(&frame, garbage);
            }
        }
    })
}

/// Collects the frames that arrive within the hold time.
async fn collect_batch(batch: &mut Vec<Frame>, frames: &mut UnboundedReceiver<Frame>) {
    let hold = tokio::time::sleep(REORDER_HOLD);
    tokio::pin!(hold);
    loop {
        tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => batch.push(frame),
                None => return,
            },
            () = &mut hold => return,
        }
    }
}

/// Orders a batch: notifications in order, then answers newest first.
fn newest_answer_first(batch: Vec<Frame>) -> Vec<Frame> {
    let (answers, mut batch): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .partition(|frame| matches!(frame, Frame::Answer(_)));
    batch.extend(answers.into_iter().rev());
    batch
}

fn write_frame(frame: &Frame, garbage: bool) -> std::io::Result<()> {
    let Some(text) = frame.text() else {
        return Ok(());
    };
    let mut out = Vec::with_capacity(text.len() + 1);
    if garbage && matches!(frame, Frame::Answer(_)) {
        for line in GARBAGE_LINES {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    }
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()
}
