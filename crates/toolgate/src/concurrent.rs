//! Runs several futures at a time. Results are available as soon as they are there, so that a slow future
//! delays no other one, and can be put in order.

use futures_util::stream::{self, Stream, StreamExt as _};

/// Runs futures, at most `limit` at a time, and yields each result with the position of its future.
pub(crate) fn run_numbered<F: Future>(
    futures: Vec<F>,
    limit: usize,
) -> impl Stream<Item = (usize, F::Output)> {
    // Collected first: the compiler cannot prove that a stream over closures may move between threads.
    let mut numbered = Vec::with_capacity(futures.len());
    for (number, future) in futures.into_iter().enumerate() {
        numbered.push(with_number(number, future));
    }
    stream::iter(numbered).buffer_unordered(limit.max(1))
}

/// Runs futures, at most `limit` at a time, and returns their results in order.
pub async fn run_in_order<F: Future>(futures: Vec<F>, limit: usize) -> Vec<F::Output> {
    let mut results: Vec<_> = run_numbered(futures, limit).collect().await;
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

async fn with_number<F: Future>(number: usize, future: F) -> (usize, F::Output) {
    (number, future.await)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt as _;
    use futures_util::future::{pending, ready};

    use super::*;

    #[test]
    fn slow_future_delays_no_other_and_results_are_in_order() {
        let started = Cell::new(0);
        let futures = (0..10).map(|number| {
            let started = &started;
            async move {
                started.set(started.get() + 1);
                match number {
                    0 => pending().await,
                    number => ready(number).await,
                }
            }
        });
        let running = run_in_order(futures.collect(), 2);
        assert!(running.now_or_never().is_none());
        assert_eq!(started.get(), 10, "all others have run beside the first");
        let reversed = (0..5).map(|number| async move {
            for _ in number..5 {
                tokio::task::yield_now().await;
            }
            number
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let results = runtime
            .unwrap()
            .block_on(run_in_order(reversed.collect(), 5));
        assert_eq!(results, [0, 1, 2, 3, 4]);
    }
}
