//! A run as a task of its own: it goes on until it has its answer, or whoever waits for that leaves.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::event::Happening;
use super::report::Stop;
use super::resume::{Decided, ResumeError, Told};
use super::sink::Sink;
use super::turn::Trouble;
use super::{End, Run, RunState};
use crate::call::CallError;
use crate::models::{AnswerBody, ModelAnswer, ModelError, Place};

/// What a run is answered with, or why it was not gone on with.
type Answered = Result<Result<ModelAnswer, ModelError>, ResumeError>;

/// A run that is under way, until this is dropped.
pub(super) struct Started {
    work: JoinHandle<Answered>,
    guard: DropGuard,
    listening: Option<Listening>,
}

/// Where the pieces of a streamed run arrive.
pub(super) struct Listening {
    /// Told when there is something to say; until then the answer may be one without a stream.
    pub(super) begun: oneshot::Receiver<()>,
    pub(super) pieces: mpsc::Receiver<Bytes>,
}

/// Sets a run going.
pub(super) fn begin(run: Run, decided: Option<Decided>) -> Started {
    let place = run.models.runs().enter(&run.id);
    let guard = place.token().clone().drop_guard();
    let (sink, listening) = Sink::of(&run);
    let tasks = run.models.tasks().clone();
    let work = tasks.spawn(Box::pin(play(run, sink, decided, place)));
    Started {
        work,
        guard,
        listening,
    }
}

impl Started {
    /// The answer, or its beginning. A model that fails at once is answered as it would be without
    /// a stream.
    pub(super) async fn answer(self, id: &str) -> Answered {
        let Self {
            work,
            guard,
            listening,
        } = self;
        if let Some(Listening { begun, pieces }) = listening
            && begun.await.is_ok()
        {
            return Ok(Ok(streamed(id, pieces, guard)));
        }
        let answer = work.await;
        drop(guard);
        answer.unwrap_or(Ok(Err(ModelError::Cancelled)))
    }
}

/// An answer that ends the run when it is dropped.
fn streamed(id: &str, pieces: mpsc::Receiver<Bytes>, guard: DropGuard) -> ModelAnswer {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("cache-control", HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    super::report::sign(&mut headers, id);
    let pieces = stream::unfold((pieces, guard), |(mut pieces, guard)| async move {
        let piece = pieces.recv().await?;
        Some((piece, (pieces, guard)))
    });
    ModelAnswer {
        status: StatusCode::OK,
        headers,
        body: AnswerBody::Stream(pieces.boxed()),
    }
}

async fn play(mut run: Run, mut sink: Sink, decided: Option<Decided>, place: Place) -> Answered {
    let work = async {
        if let Some(decided) = &decided {
            run.decide(decided, &mut sink).await?;
        }
        Ok::<End, ResumeError>(run.go(&mut sink).await)
    };
    let end = match place.token().run_until_cancelled(work).await {
        Some(Ok(end)) => end,
        Some(Err(refused)) => {
            run.put_back(decided).await;
            sink.refused(&run, &refused).await;
            return Err(refused);
        }
        None => run.cut_off(place.is_for_all()).await,
    };
    run.close(&end).await;
    let stop_reason = end.stop.as_str();
    sink.tell(Happening::Ended { stop_reason });
    if !sink.has_begun() {
        return Ok(run.answer(end).await);
    }
    tokio::select! {
        biased;
        () = sink.end(&run, &end) => {}
        // One who does not read must not hold it up.
        () = place.token().cancelled() => {}
    }
    Ok(Err(ModelError::Cancelled))
}

impl Run {
    /// It waits as before.
    async fn put_back(&self, decided: Option<Decided>) {
        let Some(decided) = decided else { return };
        let put = self.models.store().update_run(&decided.record).await;
        if let Err(error) = put {
            tracing::error!(%error, run = %self.id, "a run could not be put back");
        }
    }

    /// The end of a run in the middle of a step: what there is of it stands in its journal.
    async fn cut_off(&mut self, by_the_end_of_all: bool) -> End {
        match self.models.store().steps(&self.id).await {
            Ok(steps) => self.take_back(&Told::read(&steps)),
            Err(error) => {
                tracing::error!(%error, run = %self.id, "the journal of a run cannot be read");
            }
        }
        let (state, error) = match by_the_end_of_all {
            true => (
                RunState::Interrupted,
                ModelError::Refused(CallError::Stopping),
            ),
            false => (RunState::Cancelled, ModelError::Cancelled),
        };
        End {
            stop: Stop::CutOff(state),
            pending: Vec::new(),
            trouble: Some(Trouble::Error(error)),
        }
    }

    fn take_back(&mut self, told: &Told) {
        self.iterations = told.iterations;
        self.turns.clone_from(&told.turns);
        self.usage = told.usage;
        self.micro_usd = told.micro_usd;
        self.executed.clone_from(&told.executed);
        let left = told.left();
        let under_way = left.iter().filter(|call| told.opened.contains(&call.id));
        let late: Vec<_> = under_way.map(|call| self.late(call)).collect();
        self.executed.extend(late);
    }
}
