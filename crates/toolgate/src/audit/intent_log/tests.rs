use tokio_util::task::TaskTracker;

use super::*;

const KEY: [u8; 32] = [3; 32];

fn record(id: &str, outcome: &str) -> AuditRecord {
    AuditRecord {
        id: id.to_owned(),
        outcome: outcome.to_owned(),
        name: format!("tool of {id}"),
        ..AuditRecord::default()
    }
}

fn append_opening(log: &IntentLog, id: &str) -> AppendedLine {
    let mut state = log.0.state.lock();
    log.0
        .append_opening(&mut state, &record(id, "open"))
        .unwrap()
}

fn append_ending(log: &IntentLog, record: &AuditRecord) -> AppendedLine {
    log.0
        .append_ending(&mut log.0.state.lock(), record)
        .unwrap()
}

fn open(log: &IntentLog, id: &str) -> u64 {
    let line = append_opening(log, id);
    log.try_write().unwrap();
    line.n
}

fn end(log: &IntentLog, id: &str) -> u64 {
    let line = append_ending(log, &record(id, "ok"));
    log.try_write().unwrap();
    line.n
}

fn read(folder: &Path, stored: u64) -> Leftovers {
    IntentLog::read(folder, &KEY, stored).unwrap()
}

fn records(left: Leftovers) -> Vec<(String, String)> {
    let records = left.calls.into_iter().map(|call| call.into_record(None));
    records
        .flatten()
        .map(|record| (record.name, record.outcome))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, outcome)| ((*name).to_owned(), (*outcome).to_owned()))
        .collect()
}

#[test]
fn opening_and_end_of_each_call_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 10).unwrap();
    open(&log, "a");
    open(&log, "b");
    end(&log, "a");
    assert_eq!(read(folder.path(), 10).last, 13);
    assert_eq!(
        records(read(folder.path(), 10)),
        pairs(&[("tool of a", "ok"), ("tool of b", "open")])
    );
    // The database has the openings.
    let mut calls = read(folder.path(), 12).calls;
    let stored = Some(record("a", "open"));
    let ended = calls.remove(0).into_record(stored).unwrap();
    assert_eq!(
        (ended.name.as_str(), ended.outcome.as_str()),
        ("tool of a", "ok")
    );
    let other_key = IntentLog::read(folder.path(), &[4; 32], 10).unwrap();
    assert_eq!(records(other_key), []);
}

#[test]
fn complete_records_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    open(&log, "a");
    let call = read(folder.path(), 0).calls.remove(0);
    assert!(call.into_record(Some(record("a", "timeout"))).is_none());
}

/// Wherever a crash cuts the file, all complete lines are read.
#[test]
fn cut_line_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    let file = folder.path().join(FILES[0]);
    let mut ends = Vec::new();
    for id in ["a", "b", "c"] {
        open(&log, id);
        ends.push(log.0.state.lock().size);
    }
    let whole = std::fs::read(&file).unwrap();
    for cut in 0..=usize::try_from(ends[2]).unwrap() {
        std::fs::write(&file, &whole[..cut]).unwrap();
        // The line break does not belong to the line.
        let complete = ends.iter().filter(|end| **end <= cut as u64 + 1).count();
        let left = read(folder.path(), 0);
        assert_eq!(left.calls.len(), complete, "cut at {cut}");
    }
}

/// Lines of earlier turns are overwritten without being read again, wherever the new ones end.
#[test]
fn files_take_turns_once_the_database_holds_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    let mut stored = 0;
    for n in 0..12_000 {
        let id = format!("call {n} {}", "x".repeat(n % 17));
        open(&log, &id);
        end(&log, &id);
        if n % 499 == 0 {
            let left = read(folder.path(), stored);
            assert_eq!(left.last, 2 * (n as u64 + 1));
            assert_eq!(left.calls.len() as u64, (left.last - stored) / 2);
            stored = left.last;
            log.set_stored(stored);
        }
    }
    for name in FILES {
        let size = std::fs::metadata(folder.path().join(name)).unwrap().len();
        assert_eq!(size, FILE_BYTES);
    }
}

#[test]
fn file_grows_while_the_database_takes_nothing_and_shrinks_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    let mut last = 0;
    while log.0.state.lock().allocated != [FILE_BYTES, 2 * FILE_BYTES] {
        last = open(&log, "a");
        end(&log, "a");
    }
    assert_eq!(read(folder.path(), 0).last, last + 1);
    log.set_stored(last + 1);
    while log.0.state.lock().allocated != [FILE_BYTES; 2] {
        let n = open(&log, "a");
        end(&log, "a");
        log.set_stored(n + 1);
    }
}

/// Every opening leaves room for the end of its call.
#[test]
fn ends_never_need_new_space() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    let longest = AuditRecord {
        id: uuid::Uuid::max().to_string(),
        outcome: "upstream_protocol_error".to_owned(),
        bytes_out: i64::MAX,
        duration_us: Some(i64::MAX),
        cost_micro_usd: i64::MAX,
        ..AuditRecord::default()
    };
    for _ in 0..10_000 {
        open(&log, "a");
    }
    let allocated = log.0.state.lock().allocated;
    for _ in 0..10_000 {
        let before = log.0.state.lock().size;
        append_ending(&log, &longest);
        let state = log.0.state.lock();
        assert!(state.size - before <= MAX_ENDING_BYTES);
        assert!(state.size <= allocated[state.current]);
    }
    log.try_write().unwrap();
}

#[tokio::test]
async fn one_write_takes_the_lines_of_all_calls() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    let first = append_opening(&log, "a");
    let second = append_opening(&log, "b");
    assert_eq!(read(folder.path(), 0).last, 0);
    log.write(first, false).await.unwrap();
    assert_eq!(read(folder.path(), 0).last, 2);
    assert_eq!(*log.0.synced.lock().await, 0);
    log.write(first, true).await.unwrap();
    assert_eq!(*log.0.synced.lock().await, second.n);
    log.write(second, true).await.unwrap();
}

/// Every line is written before its call goes on, whatever other calls do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_lose_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    let tasks = TaskTracker::new();
    for call in 0..40 {
        let log = log.clone();
        tasks.spawn(async move {
            for turn in 0..20 {
                let id = format!("{call}-{turn}");
                for line in [
                    append_opening(&log, &id),
                    append_ending(&log, &record(&id, "ok")),
                ] {
                    log.write(line, false).await.unwrap();
                    assert!(log.0.written.load(Ordering::Acquire) >= line.n);
                }
            }
        });
    }
    tasks.close();
    tasks.wait().await;
    let left = records(read(folder.path(), 0));
    assert_eq!(left.len(), 800);
    assert!(left.iter().all(|(_, outcome)| outcome == "ok"));
}

/// An opening that did not fit reserves nothing, so that calls in flight keep their space.
#[test]
fn opening_that_does_not_fit_reserves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
    open(&log, "a");
    let mut state = log.0.state.lock();
    let (last, size) = (state.last, state.size);
    state.size = MAX_FILE_BYTES;
    state.last_in_other = u64::MAX;
    let refused = log.0.append_opening(&mut state, &record("b", "open"));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    assert_eq!((state.calls_in_flight, state.last), (1, last));
    state.size = size;
    drop(state);
    end(&log, "a");
    assert_eq!(log.0.state.lock().calls_in_flight, 0);
}
