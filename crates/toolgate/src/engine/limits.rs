//! Rate limits, concurrency limits and budgets.
//!
//! Counts survive a configuration change as long as the limit itself is unchanged.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, InsufficientCapacity, Quota, RateLimiter};
use parking_lot::Mutex;
use toolgate_core::Config;
use toolgate_core::config::ServerConfig;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::plural::count;
use toolgate_core::rate::{Budget, Rate};
use toolgate_mcp::Deadline;
use toolgate_mcp::fair_queue::{FairQueue, Owner, QueueLimits, Slot};

use super::spending::{self, Spending};
use crate::call::{CallError, LimitReached};
use crate::store::{Store, clock};

/// Calls that may queue for each concurrency slot.
const MAX_QUEUED_PER_SLOT: usize = 4;

/// The subject of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LimitTarget {
    Key(Arc<str>),
    Server(ServerName),
    Tool(ToolId),
}

/// All configured rate and concurrency limits.
#[derive(Debug, Default)]
pub(super) struct CallLimits {
    rates: HashMap<LimitTarget, (Rate, Arc<RateCounter>)>,
    concurrency: HashMap<LimitTarget, FairQueue>,
}

/// Counts calls against a rate.
#[derive(Debug)]
struct RateCounter {
    limiter: DefaultDirectRateLimiter,
    /// Until when every further call will be refused.
    exhausted_until: Mutex<Option<Instant>>,
}

/// Spending of each key in its current budget window.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    windows: Mutex<HashMap<Arc<str>, Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// Start of the window, in milliseconds since the Unix epoch.
    since: i64,
    calls: u64,
    tokens: u64,
    micro_usd: u64,
}

/// Outcome of charging a call to a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChargeResult {
    Charged,
    BudgetExceeded,
    WindowNotLoaded,
}

/// The charge of one call to the budget of a key. Dropping it refunds the call, unless it was kept.
#[derive(Debug)]
pub(super) struct Charge {
    budgets: Arc<Budgets>,
    key: Arc<str>,
    /// Start of the window that was charged.
    since: i64,
    price: u64,
    is_kept: bool,
}

impl Charge {
    /// Keeps the charge: the call is about to be sent.
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Refunds the charge: the call was not sent.
    pub(super) fn refund(mut self) {
        self.is_kept = false;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.is_kept {
            self.budgets.refund(&self.key, self.since, self.price);
        }
    }
}

impl CallLimits {
    /// Builds the limits of a configuration, carrying over the counts of unchanged limits.
    pub(super) fn new(config: &Config, before: &Self) -> Self {
        let mut limits = Self::default();
        for key in &config.keys {
            let name = LimitTarget::Key(key.name.as_str().into());
            limits.add(name, key.limits.rate, key.limits.max_in_flight, before);
        }
        for server in &config.servers {
            let ServerConfig {
                name,
                limits: server_limits,
                ..
            } = server;
            limits.add(
                LimitTarget::Server(name.clone()),
                server_limits.rate,
                None,
                before,
            );
            for (tool, tool_limits) in &server_limits.tools {
                let id = ToolId {
                    server: name.clone(),
                    tool: ToolName::new(tool),
                };
                limits.add(
                    LimitTarget::Tool(id),
                    tool_limits.rate,
                    tool_limits.max_in_flight,
                    before,
                );
            }
        }
        limits
    }

    fn add(
        &mut self,
        target: LimitTarget,
        rate: Option<Rate>,
        max_in_flight: Option<usize>,
        before: &Self,
    ) {
        if let Some(rate) = rate {
            let known = before.rates.get(&target);
            let same = known.filter(|(known, _)| *known == rate);
            let limiter = match same {
                Some((_, limiter)) => Arc::clone(limiter),
                None => Arc::new(RateCounter {
                    limiter: RateLimiter::direct(quota(rate)),
                    exhausted_until: Mutex::default(),
                }),
            };
            self.rates.insert(target.clone(), (rate, limiter));
        }
        if let Some(size) = max_in_flight {
            let known = before.concurrency.get(&target);
            let limits = QueueLimits::shared(size, size * MAX_QUEUED_PER_SLOT);
            let queue = match known.filter(|known| known.limits() == limits) {
                Some(known) => known.clone(),
                None => FairQueue::new(limits),
            };
            self.concurrency.insert(target, queue);
        }
    }

    /// Counts a call against its rate limit, or fails if the rate is exceeded.
    pub(super) fn check_rate(&self, target: &LimitTarget) -> Result<(), CallError> {
        let Some((rate, counter)) = self.rates.get(target) else {
            return Ok(());
        };
        counter.limiter.check().map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            *counter.exhausted_until.lock() = Instant::now().checked_add(wait);
            CallError::Limited {
                limit: target.rate_limit(rate.to_string()),
                retry_after: Some(wait),
            }
        })
    }

    /// Fails if a call would be refused by the rate limit of a key, as an earlier one was. Counts
    /// nothing.
    pub(super) fn check_exhausted(&self, key: &Arc<str>) -> Result<(), CallError> {
        let target = LimitTarget::Key(Arc::clone(key));
        let Some((rate, counter)) = self.rates.get(&target) else {
            return Ok(());
        };
        let until = *counter.exhausted_until.lock();
        let wait = until.and_then(|until| until.checked_duration_since(Instant::now()));
        match wait.filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(CallError::Limited {
                limit: target.rate_limit(rate.to_string()),
                retry_after: Some(wait),
            }),
            None => Ok(()),
        }
    }

    /// Counts several calls against the rate limit of a key: all of them, or none if they exceed it.
    pub(super) fn check_key_rate(
        &self,
        key: &Arc<str>,
        calls: NonZeroU32,
    ) -> Result<(), CallError> {
        let target = LimitTarget::Key(Arc::clone(key));
        let Some((rate, counter)) = self.rates.get(&target) else {
            return Ok(());
        };
        match counter.limiter.check_n(calls) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => {
                let wait = until.wait_time_from(DefaultClock::default().now());
                if calls == NonZeroU32::MIN {
                    *counter.exhausted_until.lock() = Instant::now().checked_add(wait);
                }
                Err(CallError::Limited {
                    limit: target.rate_limit(rate.to_string()),
                    retry_after: Some(wait),
                })
            }
            Err(InsufficientCapacity(max)) => Err(CallError::TooManyCalls {
                key: key.to_string(),
                rate: rate.to_string(),
                calls: calls.get(),
                max,
            }),
        }
    }

    /// Acquires a concurrency slot for a call of `owner`, queueing for one until the deadline unless
    /// the queue is full.
    pub(super) async fn acquire_slot(
        &self,
        target: &LimitTarget,
        owner: &Owner,
        deadline: Deadline,
    ) -> Result<Option<Slot>, CallError> {
        let Some(concurrency) = self.concurrency.get(target) else {
            return Ok(None);
        };
        match tokio::time::timeout_at(deadline, concurrency.acquire(owner)).await {
            Ok(Ok(slot)) => Ok(Some(slot)),
            Ok(Err(_)) | Err(_) => Err(CallError::Limited {
                limit: target.concurrency_limit(),
                retry_after: None,
            }),
        }
    }
}

impl LimitTarget {
    fn rate_limit(&self, rate: String) -> LimitReached {
        match self {
            Self::Key(key) => LimitReached::KeyRate {
                key: key.to_string(),
                rate,
            },
            Self::Server(server) => LimitReached::ServerRate {
                server: server.clone(),
                rate,
            },
            Self::Tool(tool) => LimitReached::ToolRate {
                tool: tool.clone(),
                rate,
            },
        }
    }

    fn concurrency_limit(&self) -> LimitReached {
        match self {
            Self::Key(key) => LimitReached::KeyBusy {
                key: key.to_string(),
            },
            Self::Server(server) => LimitReached::ServerBusy {
                server: server.clone(),
            },
            Self::Tool(tool) => LimitReached::ToolBusy { tool: tool.clone() },
        }
    }
}

impl Budgets {
    /// Charges one call and its price to a key's budget.
    pub(super) async fn charge(
        self: &Arc<Self>,
        store: &Store,
        key: &Arc<str>,
        budget: &Budget,
        price: u64,
    ) -> Result<Charge, CallError> {
        let since = window_start(budget, clock::now());
        let mut charged = self.try_charge(key, budget, since, price);
        if charged == ChargeResult::WindowNotLoaded {
            self.load_window(store, key, since).await?;
            charged = self.try_charge(key, budget, since, price);
        }
        match charged {
            ChargeResult::Charged => Ok(Charge {
                budgets: Arc::clone(self),
                key: Arc::clone(key),
                since,
                price,
                is_kept: false,
            }),
            ChargeResult::BudgetExceeded => Err(budget_error(key, budget, since)),
            // A concurrent call started a newer window meanwhile.
            ChargeResult::WindowNotLoaded => Err(CallError::Unrecorded),
        }
    }

    /// Checks that a key has budget left for a model request, whose cost is only known afterwards.
    pub(super) async fn check_remaining(
        &self,
        store: &Store,
        key: &Arc<str>,
        budget: &Budget,
    ) -> Result<(), CallError> {
        let since = window_start(budget, clock::now());
        if self.window(key, since).is_none() {
            self.load_window(store, key, since).await?;
        }
        let Some(window) = self.window(key, since) else {
            return Err(CallError::Unrecorded);
        };
        let tokens_left = budget.tokens.is_none_or(|max| window.tokens < max);
        let money_left = budget.micro_usd.is_none_or(|max| window.micro_usd < max);
        if tokens_left && money_left {
            Ok(())
        } else {
            Err(budget_error(key, budget, since))
        }
    }

    /// Adds the usage of a model request.
    pub(super) fn record_spending(&self, key: &Arc<str>, tokens: u64, micro_usd: u64) {
        let mut windows = self.windows.lock();
        if let Some(window) = windows.get_mut(key) {
            window.tokens = window.tokens.saturating_add(tokens);
            window.micro_usd = window.micro_usd.saturating_add(micro_usd);
        }
    }

    fn window(&self, key: &Arc<str>, since: i64) -> Option<Window> {
        let windows = self.windows.lock();
        let window = windows.get(key).copied();
        window.filter(|window| window.since == since)
    }

    /// Starts a window with the spending found in the store.
    async fn load_window(
        &self,
        store: &Store,
        key: &Arc<str>,
        since: i64,
    ) -> Result<(), CallError> {
        let Spending {
            calls,
            tokens,
            micro_usd,
        } = spending::spending(store, key, since).await?;
        self.start_window(
            key,
            Window {
                since,
                calls,
                tokens,
                micro_usd,
            },
        );
        Ok(())
    }

    /// Resets the spending of a key.
    pub(super) fn reset(&self, key: &str) {
        self.windows.lock().remove(key);
    }

    /// Refunds one call and its price, unless its window has ended.
    fn refund(&self, key: &Arc<str>, since: i64, price: u64) {
        let mut windows = self.windows.lock();
        if let Some(window) = windows.get_mut(key).filter(|window| window.since == since) {
            window.calls = window.calls.saturating_sub(1);
            window.micro_usd = window.micro_usd.saturating_sub(price);
        }
    }

    fn try_charge(&self, key: &Arc<str>, budget: &Budget, since: i64, price: u64) -> ChargeResult {
        let mut windows = self.windows.lock();
        let window = windows.get_mut(key).filter(|window| window.since == since);
        let Some(window) = window else {
            return ChargeResult::WindowNotLoaded;
        };
        let calls_left = budget.calls.is_none_or(|max| window.calls < max);
        let money_left = budget
            .micro_usd
            .is_none_or(|max| window.micro_usd.saturating_add(price) <= max);
        if calls_left && money_left {
            window.calls += 1;
            window.micro_usd = window.micro_usd.saturating_add(price);
            ChargeResult::Charged
        } else {
            ChargeResult::BudgetExceeded
        }
    }

    /// Inserts a window, unless a concurrent call has already started the same one.
    fn start_window(&self, key: &Arc<str>, window: Window) {
        let mut windows = self.windows.lock();
        let known = windows.entry(Arc::clone(key)).or_insert(window);
        if known.since != window.since {
            *known = window;
        }
    }
}

fn budget_error(key: &Arc<str>, budget: &Budget, since: i64) -> CallError {
    CallError::Limited {
        limit: LimitReached::KeyBudget {
            key: key.to_string(),
            budget: describe_budget(budget),
        },
        retry_after: budget.per.map(|per| {
            let ends = since + i64::try_from(per.duration().as_millis()).unwrap_or(0);
            let left = ends - clock::now();
            Duration::from_millis(left.max(0).unsigned_abs())
        }),
    }
}

/// Returns the start of the current window. Windows are aligned to multiples of their length since
/// the Unix epoch, so that every gateway instance and restart agrees on them.
fn window_start(budget: &Budget, now: i64) -> i64 {
    let Some(per) = budget.per else { return 0 };
    let length = i64::try_from(per.duration().as_millis()).unwrap_or(i64::MAX);
    now - now % length
}

fn describe_budget(budget: &Budget) -> String {
    let calls = budget.calls.map(|calls| count(calls, "call", "calls"));
    #[allow(
        clippy::cast_precision_loss,
        reason = "only displayed, and budgets are small"
    )]
    let money = budget
        .micro_usd
        .map(|micro| format!("{} US dollars", micro as f64 / 1e6));
    let tokens = budget.tokens.map(|tokens| count(tokens, "token", "tokens"));
    let parts: Vec<String> = calls.into_iter().chain(tokens).chain(money).collect();
    let per = match budget.per {
        Some(per) => format!(" per {}", per.as_str()),
        None => String::new(),
    };
    format!("{}{per}", parts.join(" and "))
}

fn quota(rate: Rate) -> Quota {
    let Rate { count, per } = rate;
    let interval = per.duration() / count.get();
    Quota::with_period(interval)
        .unwrap_or_else(|| Quota::per_second(NonZeroU32::MAX))
        .allow_burst(count)
}
