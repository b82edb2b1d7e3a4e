//! Bounds what refused calls leave in the trail.
//!
//! Anybody can make calls that are refused, as fast as they like. The first ones of a caller and reason
//! are recorded one by one; the rest of an interval is counted, and leaves one record for each tool.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::AuditRecord;

/// Time in which refusals are counted together.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Refusals of one caller and reason that have records of their own, in an interval.
const MAX_SINGLE_RECORDS: usize = 10;
/// Tools of one caller and reason that are counted separately, in an interval.
const MAX_COUNTED_NAMES: usize = 50;
/// Callers and reasons that are counted separately.
const MAX_WINDOWS: usize = 10_000;
/// Stands for names that are not counted separately.
const OTHER_NAMES: &str = "(other names)";

/// Counts refused calls.
#[derive(Debug, Default)]
pub(super) struct RefusalCounter(Mutex<HashMap<Reason, Window>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reason {
    kind: &'static str,
    caller: Option<String>,
    outcome: String,
}

#[derive(Debug)]
struct Window {
    started: Instant,
    single_records: usize,
    counted: HashMap<String, AuditRecord>,
}

impl RefusalCounter {
    /// Returns the record if it is to be written by itself, or counts it.
    pub(super) fn admit(&self, record: Box<AuditRecord>, now: Instant) -> Option<Box<AuditRecord>> {
        let mut windows = self.0.lock();
        let mut reason = Reason {
            kind: record.kind.as_str(),
            caller: record.caller.clone(),
            outcome: record.outcome.clone(),
        };
        if windows.len() >= MAX_WINDOWS && !windows.contains_key(&reason) {
            reason.caller = None;
        }
        let window = windows.entry(reason).or_insert_with(|| Window {
            started: now,
            single_records: 0,
            counted: HashMap::new(),
        });
        if window.single_records < MAX_SINGLE_RECORDS {
            window.single_records += 1;
            return Some(record);
        }
        let name = if window.counted.len() < MAX_COUNTED_NAMES
            || window.counted.contains_key(&record.name)
        {
            record.name.clone()
        } else {
            OTHER_NAMES.to_owned()
        };
        match window.counted.get_mut(&name) {
            Some(known) => known.occurrences += record.occurrences,
            None => {
                let record = AuditRecord {
                    name: name.clone(),
                    ..*record
                };
                window.counted.insert(name, record);
            }
        }
        None
    }

    /// Ends the intervals that are over and returns the records of what was counted in them.
    pub(super) fn take_counted(&self, now: Instant) -> Vec<AuditRecord> {
        self.take(|window| now.duration_since(window.started) >= INTERVAL)
    }

    /// Ends all intervals.
    pub(super) fn take_all(&self) -> Vec<AuditRecord> {
        self.take(|_| true)
    }

    fn take(&self, is_over: impl Fn(&Window) -> bool) -> Vec<AuditRecord> {
        let mut windows = self.0.lock();
        let over = windows.extract_if(|_, window| is_over(window));
        over.flat_map(|(_, window)| window.counted.into_values())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(caller: &str, name: &str) -> Box<AuditRecord> {
        Box::new(AuditRecord {
            caller: Some(caller.to_owned()),
            name: name.to_owned(),
            outcome: "limited".to_owned(),
            ..AuditRecord::default()
        })
    }

    #[test]
    fn flood_leaves_few_records_that_add_up() {
        let counter = RefusalCounter::default();
        let now = Instant::now();
        let mut written = Vec::new();
        for call in 0..10_000 {
            let name = format!("tool{}", call % 1000);
            written.extend(
                counter
                    .admit(refused("k", &name), now)
                    .map(|record| *record),
            );
        }
        assert_eq!(written.len(), MAX_SINGLE_RECORDS);
        assert!(counter.take_counted(now).is_empty());
        let counted = counter.take_counted(now + INTERVAL);
        assert_eq!(counted.len(), MAX_COUNTED_NAMES + 1);
        written.extend(counted);
        let total: i64 = written.iter().map(|record| record.occurrences).sum();
        assert_eq!(total, 10_000);
        assert!(counter.admit(refused("k", "t"), now).is_some());
    }

    #[test]
    fn callers_do_not_share_records() {
        let counter = RefusalCounter::default();
        let now = Instant::now();
        for _ in 0..100 {
            counter.admit(refused("noisy", "t"), now);
        }
        assert!(counter.admit(refused("quiet", "t"), now).is_some());
    }
}
