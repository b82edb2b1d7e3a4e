//! Limits for a single agent run.

use std::time::Duration;

use super::duration::ConfigDuration;
use super::file::AgentTable;
use super::micro_usd;

/// Limits for a single agent run; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    pub depth: Option<u32>,
    pub model_calls: Option<u64>,
    pub tool_calls: Option<u64>,
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
    pub time: Option<Duration>,
    /// Calls of one turn that run at the same time.
    pub parallel_tools: Option<u32>,
    /// Whether the run continues without its client once its calls are decided.
    pub resume_on_approval: Option<bool>,
}

impl RunLimits {
    /// Combines two sets of limits; the lower value of each wins.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        Self {
            depth: min_option(self.depth, other.depth),
            model_calls: min_option(self.model_calls, other.model_calls),
            tool_calls: min_option(self.tool_calls, other.tool_calls),
            tokens: min_option(self.tokens, other.tokens),
            micro_usd: min_option(self.micro_usd, other.micro_usd),
            time: min_option(self.time, other.time),
            parallel_tools: min_option(self.parallel_tools, other.parallel_tools),
            resume_on_approval: min_option(self.resume_on_approval, other.resume_on_approval),
        }
    }

    /// Parses the limits of a request: `tool_calls=5, tokens=20000, usd=0.5, time=30s`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut limits = Self::default();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let invalid = || {
                format!(
                    "`{part}` is not a limit; use a form such as `tool_calls=5, tokens=20000, usd=0.5, time=30s`"
                )
            };
            let (name, value) = part.split_once('=').ok_or_else(invalid)?;
            let (name, value) = (name.trim(), value.trim());
            let count = || value.parse::<u64>().map_err(|_| invalid());
            match name {
                "model_calls" => limits.model_calls = Some(count()?),
                "tool_calls" => limits.tool_calls = Some(count()?),
                "tokens" => limits.tokens = Some(count()?),
                "usd" => {
                    let usd = value.parse::<f64>().ok().filter(|usd| *usd >= 0.0);
                    limits.micro_usd = Some(micro_usd(usd.ok_or_else(invalid)?));
                }
                "time" => {
                    let span = ConfigDuration::parse(value).map_err(|_| invalid())?;
                    limits.time = Some(span.0);
                }
                _ => return Err(invalid()),
            }
        }
        Ok(limits)
    }
}

impl From<AgentTable> for RunLimits {
    fn from(table: AgentTable) -> Self {
        Self {
            depth: table.max_depth,
            model_calls: table.max_model_calls,
            tool_calls: table.max_tool_calls,
            tokens: table.max_tokens,
            micro_usd: table.max_usd.map(micro_usd),
            time: table.max_time.map(|span| span.0),
            parallel_tools: table.parallel_tools,
            resume_on_approval: table.resume_on_approval,
        }
    }
}

fn min_option<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_limits_parse_and_combine() {
        let limits = RunLimits::parse("tool_calls=5, tokens = 20000,usd=0.5, time=30s").unwrap();
        assert_eq!(limits.tool_calls, Some(5));
        assert_eq!(limits.micro_usd, Some(500_000));
        assert_eq!(limits.time, Some(Duration::from_secs(30)));
        assert_eq!(RunLimits::parse(" , ").unwrap(), RunLimits::default());
        for invalid in ["tokens", "tokens=x", "usd=-1", "speed=3", "time=soon"] {
            assert!(RunLimits::parse(invalid).is_err(), "{invalid}");
        }
        let other = RunLimits {
            tool_calls: Some(9),
            depth: Some(2),
            ..RunLimits::default()
        };
        let both = limits.combine(other);
        assert_eq!(
            (both.tool_calls, both.depth, both.tokens),
            (Some(5), Some(2), Some(20000))
        );
    }
}
