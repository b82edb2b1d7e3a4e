//! Rates, places and budgets. What a limit has counted survives a change of the configuration
//! that leaves the limit as it is.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolgate_core::Config;
use toolgate_core::config::Server;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::rate::{Budget, Rate};

use crate::call::{CallError, Limit};
use crate::store::{Spent, Store, millis};

/// Calls that may wait for a place, for each place.
const QUEUE: usize = 4;

/// What is limited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Limited {
    Key(Arc<str>),
    Server(ServerName),
    Tool(ToolId),
}

/// All rates and places that are configured.
#[derive(Debug, Default)]
pub(super) struct Limits {
    rates: HashMap<Limited, (Rate, Arc<DefaultDirectRateLimiter>)>,
    places: HashMap<Limited, Arc<Places>>,
}

/// A bounded number of calls at once, and a bounded queue for them.
#[derive(Debug)]
struct Places {
    semaphore: Arc<Semaphore>,
    size: usize,
    waiting: AtomicUsize,
}

/// What keys have used up of their budgets.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    windows: Mutex<HashMap<Arc<str>, Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// Milliseconds since 1970.
    since: i64,
    calls: u64,
    tokens: u64,
    micro_usd: u64,
}

impl Limits {
    /// The limits of a configuration, with the counts of those that stay the same.
    pub(super) fn new(config: &Config, before: &Self) -> Self {
        let mut limits = Self::default();
        for key in &config.keys {
            let name = Limited::Key(key.name.as_str().into());
            limits.add(name, key.limits.rate, key.limits.max_in_flight, before);
        }
        for server in &config.servers {
            let Server {
                name, limits: own, ..
            } = server;
            limits.add(Limited::Server(name.clone()), own.rate, None, before);
            for (tool, own) in &own.tools {
                let id = ToolId {
                    server: name.clone(),
                    tool: ToolName::new(tool),
                };
                limits.add(Limited::Tool(id), own.rate, own.max_in_flight, before);
            }
        }
        limits
    }

    fn add(&mut self, what: Limited, rate: Option<Rate>, places: Option<usize>, before: &Self) {
        if let Some(rate) = rate {
            let same = before.rates.get(&what).filter(|(known, _)| *known == rate);
            let limiter = match same {
                Some((_, limiter)) => Arc::clone(limiter),
                None => Arc::new(RateLimiter::direct(quota(rate))),
            };
            self.rates.insert(what.clone(), (rate, limiter));
        }
        if let Some(size) = places {
            let same = before.places.get(&what).filter(|known| known.size == size);
            let places = match same {
                Some(places) => Arc::clone(places),
                None => Arc::new(Places {
                    semaphore: Arc::new(Semaphore::new(size)),
                    size,
                    waiting: AtomicUsize::new(0),
                }),
            };
            self.places.insert(what, places);
        }
    }

    /// Counts a call, unless the rate is used up.
    pub(super) fn count(&self, what: &Limited) -> Result<(), CallError> {
        let Some((rate, limiter)) = self.rates.get(what) else {
            return Ok(());
        };
        limiter.check().map_err(|until| CallError::Limited {
            limit: what.rate(rate.to_string()),
            retry_after: Some(until.wait_time_from(DefaultClock::default().now())),
        })
    }

    /// Takes a place, or waits for one while the queue is not full.
    pub(super) async fn enter(
        &self,
        what: &Limited,
        within: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, CallError> {
        let Some(places) = self.places.get(what) else {
            return Ok(None);
        };
        match tokio::time::timeout(within, places.enter()).await {
            Ok(Some(place)) => Ok(Some(place)),
            Ok(None) | Err(_) => Err(CallError::Limited {
                limit: what.busy(),
                retry_after: None,
            }),
        }
    }
}

impl Limited {
    fn rate(&self, rate: String) -> Limit {
        match self {
            Self::Key(key) => Limit::KeyRate {
                key: key.to_string(),
                rate,
            },
            Self::Server(server) => Limit::ServerRate {
                server: server.clone(),
                rate,
            },
            Self::Tool(tool) => Limit::ToolRate {
                tool: tool.clone(),
                rate,
            },
        }
    }

    fn busy(&self) -> Limit {
        match self {
            Self::Key(key) => Limit::KeyBusy {
                key: key.to_string(),
            },
            Self::Server(server) => Limit::ServerBusy {
                server: server.clone(),
            },
            Self::Tool(tool) => Limit::ToolBusy { tool: tool.clone() },
        }
    }
}

impl Places {
    async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.semaphore).try_acquire_owned() {
            return Some(place);
        }
        let _waiting = Waiting::enter(&self.waiting, self.size * QUEUE)?;
        Arc::clone(&self.semaphore).acquire_owned().await.ok()
    }
}

/// One who waits; dropping it leaves the queue.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let entered = Self(waiting);
        (before < most).then_some(entered)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budgets {
    /// Takes one call and its price from a key's budget.
    pub(super) async fn charge(
        &self,
        store: &Store,
        key: &Arc<str>,
        budget: &Budget,
        price: u64,
    ) -> Result<(), CallError> {
        let since = window_start(budget, SystemTime::now());
        if let Some(charged) = self.try_charge(key, budget, since, price) {
            return charged;
        }
        self.load(store, key, since).await?;
        self.try_charge(key, budget, since, price)
            .unwrap_or(Err(CallError::Unrecorded))
    }

    /// That something is left of a key's budget for a model, whose price is known afterwards.
    pub(super) async fn check(
        &self,
        store: &Store,
        key: &Arc<str>,
        budget: &Budget,
    ) -> Result<(), CallError> {
        let since = window_start(budget, SystemTime::now());
        if self.window(key, since).is_none() {
            self.load(store, key, since).await?;
        }
        let Some(window) = self.window(key, since) else {
            return Err(CallError::Unrecorded);
        };
        let tokens_left = budget.tokens.is_none_or(|most| window.tokens < most);
        let money_left = budget.micro_usd.is_none_or(|most| window.micro_usd < most);
        match tokens_left && money_left {
            true => Ok(()),
            false => Err(spent(key, budget, since)),
        }
    }

    /// Takes what a model request used.
    pub(super) fn spend(&self, key: &Arc<str>, tokens: u64, micro_usd: u64) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = windows.get_mut(key) {
            window.tokens = window.tokens.saturating_add(tokens);
            window.micro_usd = window.micro_usd.saturating_add(micro_usd);
        }
    }

    fn window(&self, key: &Arc<str>, since: i64) -> Option<Window> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.get(key).copied();
        window.filter(|window| window.since == since)
    }

    /// Begins a window with what is on record.
    async fn load(&self, store: &Store, key: &Arc<str>, since: i64) -> Result<(), CallError> {
        let Spent {
            calls,
            tokens,
            micro_usd,
        } = store.spent(key, since).await?;
        self.begin(
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

    /// Forgets what a key has spent.
    pub(super) fn forget(&self, key: &str) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.remove(key);
    }

    /// Gives back one call and its price.
    pub(super) fn refund(&self, key: &Arc<str>, price: u64) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = windows.get_mut(key) {
            window.calls = window.calls.saturating_sub(1);
            window.micro_usd = window.micro_usd.saturating_sub(price);
        }
    }

    /// None if nothing is known of this window yet.
    fn try_charge(
        &self,
        key: &Arc<str>,
        budget: &Budget,
        since: i64,
        price: u64,
    ) -> Option<Result<(), CallError>> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows
            .get_mut(key)
            .filter(|window| window.since == since)?;
        let calls_left = budget.calls.is_none_or(|most| window.calls < most);
        let money_left = budget
            .micro_usd
            .is_none_or(|most| window.micro_usd.saturating_add(price) <= most);
        if calls_left && money_left {
            window.calls += 1;
            window.micro_usd = window.micro_usd.saturating_add(price);
            return Some(Ok(()));
        }
        Some(Err(spent(key, budget, since)))
    }

    /// Another may have begun the same window meanwhile; the first one counts.
    fn begin(&self, key: &Arc<str>, window: Window) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let known = windows.entry(Arc::clone(key)).or_insert(window);
        if known.since != window.since {
            *known = window;
        }
    }
}

fn spent(key: &Arc<str>, budget: &Budget, since: i64) -> CallError {
    CallError::Limited {
        limit: Limit::KeyBudget {
            key: key.to_string(),
            budget: describe(budget),
        },
        retry_after: budget.per.map(|per| {
            let ends = since + i64::try_from(per.duration().as_millis()).unwrap_or(0);
            let left = ends - millis(SystemTime::now());
            Duration::from_millis(left.max(0).unsigned_abs())
        }),
    }
}

/// Windows are aligned, so that all know when one begins.
fn window_start(budget: &Budget, now: SystemTime) -> i64 {
    let Some(per) = budget.per else { return 0 };
    let length = i64::try_from(per.duration().as_millis()).unwrap_or(i64::MAX);
    let now = millis(now);
    now - now % length
}

fn describe(budget: &Budget) -> String {
    let calls = budget.calls.map(|calls| format!("{calls} calls"));
    #[allow(
        clippy::cast_precision_loss,
        reason = "it is shown, and budgets are small"
    )]
    let money = budget
        .micro_usd
        .map(|micro| format!("{} US dollars", micro as f64 / 1e6));
    let tokens = budget.tokens.map(|tokens| format!("{tokens} tokens"));
    let parts: Vec<String> = calls.into_iter().chain(tokens).chain(money).collect();
    let per = match budget.per {
        Some(per) => format!(" a {}", per.as_str()),
        None => String::new(),
    };
    format!("{}{per}", parts.join(" and "))
}

fn quota(rate: Rate) -> Quota {
    let Rate { count, per } = rate;
    let one = per.duration() / count.get();
    Quota::with_period(one)
        .unwrap_or_else(|| Quota::per_second(NonZeroU32::MAX))
        .allow_burst(count)
}
