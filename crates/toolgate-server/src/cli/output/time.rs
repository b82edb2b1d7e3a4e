//! Times that people read and write.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::Layout;

/// Times that are accepted, for error messages.
const EXAMPLES: &str = "use a duration such as `1h` or `7d`, or a time such as `2026-01-31`, `2026-01-31 12:00` or `2026-01-31T12:00:00Z`";

/// Formats a time of the API: as local time on a terminal, otherwise as it is.
pub(crate) fn format_time(time: &str) -> String {
    match Layout::of_stdout() {
        Layout::Terminal { .. } => format_local(time, TimeZone::system()),
        Layout::Plain => time.to_owned(),
    }
}

fn format_local(time: &str, zone: TimeZone) -> String {
    match time.parse::<Timestamp>() {
        Ok(at) => at.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => time.to_owned(),
    }
}

/// Parses a time in the past: a local or absolute time, or how long ago it was.
pub(crate) fn parse_past_time(text: &str) -> Result<String, String> {
    parse_time(text, |now, age| now.checked_sub(age))
}

/// Parses a time in the future: a local or absolute time, or the time until then.
pub(crate) fn parse_future_time(text: &str) -> Result<String, String> {
    parse_time(text, |now, delay| now.checked_add(delay))
}

/// Parses a time and returns it as the API takes it.
fn parse_time(
    text: &str,
    shift: impl Fn(SystemTime, Duration) -> Option<SystemTime>,
) -> Result<String, String> {
    if let Ok(duration) = humantime::parse_duration(text) {
        let shifted = shift(SystemTime::now(), duration);
        let at = shifted.and_then(|at| Timestamp::try_from(at).ok());
        return at
            .map(format_utc)
            .ok_or_else(|| "the time is too far away".to_owned());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(format_utc(at));
    }
    // Accepts a date alone, which is its first moment.
    let local: DateTime = text
        .parse()
        .map_err(|_| format!("not a time; {EXAMPLES}"))?;
    let zoned: Zoned = local
        .to_zoned(TimeZone::system())
        .map_err(|_| format!("not a time; {EXAMPLES}"))?;
    Ok(format_utc(zoned.timestamp()))
}

fn format_utc(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_local_zone() {
        let tokyo = TimeZone::fixed(jiff::tz::offset(9));
        let shown = format_local("2026-01-31T20:00:00.123Z", tokyo.clone());
        assert_eq!(shown, "2026-02-01 05:00:00");
        assert_eq!(format_local("soon", tokyo), "soon");
    }

    #[test]
    fn times_may_be_relative_absolute_or_local() {
        let absolute = parse_past_time("2026-01-31T12:00:00+02:00").unwrap();
        assert_eq!(absolute, "2026-01-31T10:00:00Z");
        let now = Timestamp::now();
        let at = |text: Result<String, String>| text.unwrap().parse::<Timestamp>().unwrap();
        assert!(at(parse_past_time("1h")) < now);
        assert!(at(parse_future_time("30d")) > now);
        for local in ["2026-01-31", "2026-01-31 12:00", "2026-01-31T12:00:00"] {
            assert!(parse_past_time(local).is_ok(), "{local}");
        }
        for bad in ["", "yesterday", "12:00", "1 hour ago", "9999999999y"] {
            assert!(parse_past_time(bad).is_err(), "{bad}");
        }
    }
}
