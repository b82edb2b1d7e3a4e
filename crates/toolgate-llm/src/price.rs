//! What tokens cost: the configuration's prices, then list prices of well-known models.

use toolgate_core::config::Models;
use toolgate_core::config::provider::Price;
use toolgate_core::pattern::Glob;

use crate::event::Usage;

/// Prices by model.
#[derive(Debug)]
pub struct Prices(Vec<(Glob, Price)>);

/// List prices in US dollars for a million tokens: input, output, input from a cache. They change;
/// `prices` in the configuration goes before them.
#[rustfmt::skip]
const LIST: &[(&str, f64, f64, f64)] = &[
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
    pub fn new(models: &Models) -> Self {
        // An exact name before a pattern, a longer one before a shorter one.
        let mut own: Vec<(&String, &Price)> = models.prices.iter().collect();
        own.sort_by_key(|(name, _)| (name.contains('*'), std::cmp::Reverse(name.len())));
        let own = own
            .into_iter()
            .map(|(name, price)| (Glob::new(name), *price));
        let list = LIST.iter().map(|(name, input, output, cached)| {
            let micro = toolgate_core::config::micro_usd;
            let price = Price {
                input: micro(*input),
                output: micro(*output),
                cached_input: micro(*cached),
                cache_write: micro(*input * 1.25),
            };
            (Glob::new(name), price)
        });
        Self(own.chain(list).collect())
    }

    /// Whether it is known what a model costs.
    pub fn knows(&self, provider: &str, model: &str) -> bool {
        self.of(provider, model).is_some()
    }

    fn of(&self, provider: &str, model: &str) -> Option<&Price> {
        let whole = format!("{provider}/{model}");
        // Some providers put the maker before the name.
        let short = model.rsplit('/').next().unwrap_or(model);
        let names = [whole.as_str(), model, short];
        let mut known = self.0.iter();
        let found = known.find(|(glob, _)| names.iter().any(|name| glob.matches(name)));
        found.map(|(_, price)| price)
    }

    /// What a request cost, in millionths of a dollar; none if nobody knows.
    pub fn cost(&self, provider: &str, model: &str, usage: &Usage) -> Option<u64> {
        let price = self.of(provider, model)?;
        let plain = usage
            .input
            .saturating_sub(usage.cached + usage.cache_written);
        let parts = [
            (plain, price.input),
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
    fn the_most_exact_price_counts() {
        let mut models = Models::default();
        let price = |input| Price {
            input,
            output: 0,
            cached_input: 1,
            cache_write: 0,
        };
        for (name, input) in [("gpt-*", 3_000_000), ("azure/gpt-5", 7_000_000)] {
            models.prices.insert(name.to_owned(), price(input));
        }
        let prices = Prices::new(&models);
        let usage = Usage {
            input: 1_000_000,
            ..Usage::default()
        };
        assert_eq!(prices.cost("azure", "gpt-5", &usage), Some(7_000_000));
        assert_eq!(prices.cost("openai", "gpt-5", &usage), Some(3_000_000));
        assert_eq!(
            prices.cost("x", "anthropic/claude-sonnet-4-5", &usage),
            Some(3_000_000)
        );
        assert_eq!(prices.cost("x", "unheard-of", &usage), None);
        let one = Usage {
            output: 1,
            ..Usage::default()
        };
        assert_eq!(
            prices.cost("o", "gpt-4o", &one),
            Some(0),
            "nothing for its output"
        );
        assert_eq!(
            prices.cost("x", "claude-sonnet-4", &one),
            Some(15),
            "rounded up"
        );
    }
}
