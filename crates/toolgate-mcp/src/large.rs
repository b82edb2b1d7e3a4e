//! Work whose time grows with the size of its input, such as parsing a message.
//!
//! On the threads that run all tasks, it would delay the tasks of other callers. Large inputs are therefore
//! processed while those tasks move to another thread, and only on half of the processors at a time.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Size from which an input is large.
pub const LARGE_BYTES: usize = 64 * 1024;

/// One for each large input that is processed at a time.
static TURNS: LazyLock<Vec<Mutex<()>>> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    (0..processors.div_ceil(2))
        .map(|_| Mutex::new(()))
        .collect()
});
static NEXT_TURN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Runs work on an input of this size.
pub fn run_large<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE_BYTES || HAS_TURN.get() {
        return work();
    }
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| run_in_turn(work)),
        _ => work(),
    }
}

fn run_in_turn<T>(work: impl FnOnce() -> T) -> T {
    /// Frees the turn, also if the work panics.
    struct Turn(Option<MutexGuard<'static, ()>>);
    impl Drop for Turn {
        fn drop(&mut self) {
            HAS_TURN.set(false);
            if let Some(guard) = self.0.take() {
                MutexGuard::unlock_fair(guard);
            }
        }
    }
    let turns = &*TURNS;
    let next = NEXT_TURN.fetch_add(1, Ordering::Relaxed) % turns.len();
    let _turn = Turn(turns.get(next).map(Mutex::lock));
    HAS_TURN.set(true);
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nested_and_concurrent_work_runs_to_its_end() {
        let mut tasks = tokio::task::JoinSet::new();
        for at in 0..50 {
            tasks.spawn(async move {
                run_large(LARGE_BYTES, || run_large(LARGE_BYTES, || at)) + run_large(1, || 1)
            });
        }
        let mut all = tasks.join_all().await;
        all.sort_unstable();
        assert_eq!(all, (1..=50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_panic_frees_the_turn() {
        let panicked = std::thread::spawn(|| run_in_turn(|| panic!("expected"))).join();
        assert!(panicked.is_err());
        for _ in 0..TURNS.len() {
            assert_eq!(run_in_turn(|| 1), 1);
        }
        assert!(!HAS_TURN.get());
    }
}
