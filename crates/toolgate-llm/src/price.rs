//! Token prices: those in the configuration first, then list prices of well-known models.

use toolgate_core::config::ModelSettings;
use toolgate_core::config::provider::ModelPrice;
use toolgate_core::pattern::Glob;

use crate::event::TokenUsage;

/// Prices by model.
#[derive(Debug)]
pub struct Prices(Vec<(Glob, ModelPrice)>);

/// List prices in US dollars per million tokens: input, output, cached input. They change over
/// time; `prices` in the configuration takes precedence.
#[rustfmt::skip]
const LIST_PRICES: &[(&str, f64, f64, f64)] = &[
    ("gpt-5-nano*", 0.05, 0.4, 0.005), ("gpt-5-mini*", 0.25, 2.0, 0.025), ("gpt-5*", 1.25, 10.0, 0.125),
    ("gpt-4.1-nano*", 0.1, 0.4, 0.025), ("gpt-4.1-mini*", 0.4, 1.6, 0.1), ("gpt-4.1*", 2.0, 8.0, 0.5),
    ("gpt-4o-mini*", 0.15, 0.6, 0.075), ("gpt-4o*", 2.5, 10.0, 1.25),
    ("o4-mini*", 1.1, 4.4, 0.275), ("o3-mini*", 1.1, 4.4, 0.55), ("o3*", 2.0, 8.0, 0.5),
    ("claude-opus-4-5*", 5.0, 25.0, 0.5), ("claude-opus-4*", 15.0, 75.0, 1.5),
    ("claude-sonnet-4*", 3.0, 15.0, 0.3), ("claude-haiku-4*", 1.0, 5.0, 0.1),
    ("claude-3-7-sonnet*", 3.0, 15.0, 0.3), ("claude-3-5-sonnet*", 3.0, 15.0, 0.3), ("claude-3-5-haiku*", 0.8, 4.0, 0.08),
    ("gemini-2.5-flash-lite*", 0.1, 0.4, 0.01), ("gemini-2.5-flash*", 0.3, 2.5, 0.03), ("gemini-2.5-pro*", 1.25, 10.0, 0.125),
    ("deepseek-*", 0.28, 0.42, 0.028), ("grok-4-fast*", 0.2, 0.5, 0.05), ("grok-4*", 3.0, 15.0, 0.75),
    ("mistral-large*", 2.0, 6.0, 2.0), ("mistral-small*", 0.1, 0.3, 0.1),
];

impl Prices {
    pub fn new(models: &ModelSettings) -> Self {
        // Exact names before patterns, longer names before shorter ones.
        let mut configured: Vec<(&String, &ModelPrice)> = models.prices.iter().collect();
        configured.sort_by_key(|(name, _)| (name.contains('*'), std::cmp::Reverse(name.len())));
        let configured = configured
            .into_iter()
            .map(|(name, price)| (Glob::new(name), *price));
        let list = LIST_PRICES.iter().map(|(name, input, output, cached)| {
            let micro = toolgate_core::config::micro_usd;
            let price = ModelPrice {
                input: micro(*input),
                output: micro(*output),
                cached_input: micro(*cached),
                cache_write: micro(*input * 1.25),
            };
            (Glob::new(name), price)
        });
        Self(configured.chain(list).collect())
    }

    /// Returns whether the price of a model is known.
    pub fn has_price(&self, provider: &str, model: &str) -> bool {
        self.find(provider, model).is_some()
    }

    fn find(&self, provider: &str, model: &str) -> Option<&ModelPrice> {
        let qualified = format!("{provider}/{model}");
        // Some providers prefix the name with the vendor, as in `anthropic/claude-sonnet-4`.
        let short = model.rsplit('/').next().unwrap_or(model);
        let names = [qualified.as_str(), model, short];
        let mut prices = self.0.iter();
        let found = prices.find(|(glob, _)| names.iter().any(|name| glob.matches(name)));
        found.map(|(_, price)| price)
    }

    /// Returns the cost of a request in millionths of a dollar, or `None` if the price is unknown.
    pub fn cost(&self, provider: &str, model: &str, usage: &TokenUsage) -> Option<u64> {
        let price = self.find(provider, model)?;
        let uncached = usage
            .input
            .saturating_sub(usage.cached + usage.cache_written);
        let parts = [
            (uncached, price.input),
            (usage.cached, price.cached_input),
            (usage.cache_written, price.cache_write),
            (usage.output, price.output),
        ];
        let sum: u128 = parts
            .iter()
            .map(|(tokens, price)| u128::from(*tokens) * u128::from(*price))
            .sum();
        u64::try_from(sum.div_ceil(1_000_000)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_price_wins() {
        let mut models = ModelSettings::default();
        let price = |input| ModelPrice {
            input,
            output: 0,
            cached_input: 1,
            cache_write: 0,
        };
        for (name, input) in [("gpt-*", 3_000_000), ("azure/gpt-5", 7_000_000)] {
            models.prices.insert(name.to_owned(), price(input));
        }
        let prices = Prices::new(&models);
        let usage = TokenUsage {
            input: 1_000_000,
            ..TokenUsage::default()
        };
        assert_eq!(prices.cost("azure", "gpt-5", &usage), Some(7_000_000));
        assert_eq!(prices.cost("openai", "gpt-5", &usage), Some(3_000_000));
        assert_eq!(
            prices.cost("x", "anthropic/claude-sonnet-4-5", &usage),
            Some(3_000_000)
        );
        assert_eq!(prices.cost("x", "unknown-model", &usage), None);
        let one = TokenUsage {
            output: 1,
            ..TokenUsage::default()
        };
        assert_eq!(prices.cost("o", "gpt-4o", &one), Some(0), "output is free");
        assert_eq!(
            prices.cost("x", "claude-sonnet-4", &one),
            Some(15),
            "rounded up"
        );
    }
}
