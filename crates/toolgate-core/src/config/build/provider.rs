//! Model providers, checked.

use std::time::Duration;

use indexmap::IndexMap;
use url::Url;

use super::entry::read_url;
use super::{Merge, Reader};
use crate::config::check::nearest;
use crate::config::document::escape;
use crate::config::file::{
    CustomProviderConfig, DialectNames, NetworkConfig, OneOrMany, PriceTable, ProviderKeyTable,
    ProviderTable, ProxyConfig, ProxyKind,
};
use crate::config::provider::{
    Auth, Network, PRESETS, Preset, Price, Provider, ProviderKey, Proxy,
};
use crate::config::{Dialect, Finding, Place, Severity, Tls, micro_usd};
use crate::secret::Secret;

const LONGEST_NAME: usize = 64;

impl Merge {
    pub(super) fn add_providers(
        &mut self,
        tables: IndexMap<String, ProviderTable>,
        reader: &mut Reader<'_>,
    ) {
        for (name, table) in tables {
            let pointer = format!("/providers/{}", escape(&name));
            let known = &mut self.config.models.providers;
            if table.enabled == Some(false) {
                known.retain(|provider| provider.name != name);
                continue;
            }
            if let Some(provider) = provider(&name, table, &pointer, reader) {
                known.retain(|known| known.name != name);
                known.push(provider);
            }
        }
    }

    pub(super) fn add_aliases(
        &mut self,
        aliases: IndexMap<String, OneOrMany>,
        default_provider: Option<String>,
        reader: &Reader<'_>,
    ) {
        for (alias, targets) in aliases {
            let pointer = format!("/model_aliases/{}", escape(&alias));
            let place = reader.document.place(&pointer);
            let targets = targets.into_vec();
            self.model_names
                .extend(targets.iter().map(|target| (target.clone(), place.clone())));
            self.config.models.aliases.insert(alias, targets);
        }
        if default_provider.is_some() {
            let place = reader.document.place("/default_provider");
            self.default_provider = Some(place);
            self.config.models.default_provider = default_provider;
        }
    }

    pub(super) fn add_prices(&mut self, prices: IndexMap<String, PriceTable>) {
        let prices = prices
            .into_iter()
            .map(|(model, table)| (model, price(table)));
        self.config.models.prices.extend(prices);
    }

    /// What names a provider that does not exist.
    pub(super) fn unknown_providers(&self) -> Vec<Finding> {
        let providers = &self.config.models.providers;
        // With none configured, those whose keys are in the environment exist.
        let names: Vec<&str> = match providers.is_empty() {
            true => PRESETS.iter().map(|preset| preset.name).collect(),
            false => providers
                .iter()
                .map(|provider| provider.name.as_str())
                .collect(),
        };
        let finding = |name: &str, place: &Place| {
            let hint = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("define it as `[providers.{name}]`"),
            };
            Finding {
                severity: Severity::Error,
                place: place.clone(),
                message: format!("no provider is called `{name}`; {hint}"),
            }
        };
        let mut findings = Vec::new();
        for (target, place) in &self.model_names {
            let provider = target.split_once('/').map(|(provider, _)| provider);
            if let Some(provider) = provider.filter(|name| !names.contains(name)) {
                findings.push(finding(provider, place));
            }
        }
        if let (Some(name), Some(place)) =
            (&self.config.models.default_provider, &self.default_provider)
            && !names.contains(&name.as_str())
        {
            findings.push(finding(name, place));
        }
        findings
    }
}

fn provider(
    name: &str,
    table: ProviderTable,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Option<Provider> {
    let valid = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(valid) {
        let message =
            format!("a provider's name has 1 to {LONGEST_NAME} letters, digits, `_`, `-` and `.`");
        reader.error(pointer, message);
        return None;
    }
    let ProviderTable {
        preset,
        base_url,
        api_key,
        keys,
        dialect,
        models,
        headers,
        timeout,
        max_retries,
        proxy,
        tls,
        ignore_fields,
        flat_schemas,
        enabled: _,
        network_config,
        proxy_config,
        custom_provider_config,
    } = table;
    let known = known(
        name,
        preset,
        custom_provider_config.as_ref(),
        pointer,
        reader,
    )?;
    let older = network_config.unwrap_or_default();
    let base_url = address(base_url, &older, known, pointer, reader)?;
    let keys = provider_keys(api_key, keys, known, custom_provider_config.as_ref());
    let dialects = match dialect {
        Some(DialectNames::One(dialect)) => vec![dialect],
        Some(DialectNames::Several(dialects)) if !dialects.is_empty() => dialects,
        _ => known.map_or(vec![Dialect::Chat], |preset| preset.dialects.to_vec()),
    };
    let auth = match (known, dialects.as_slice()) {
        (Some(preset), _) => preset.auth,
        (None, [Dialect::Messages]) => Auth::XApiKey,
        (None, _) => Auth::Bearer,
    };
    let proxy = match (proxy, proxy_config) {
        (Some(url), _) => Proxy::Url { url, user: None },
        (None, Some(config)) => older_proxy(config, pointer, reader)?,
        (None, None) => Proxy::Environment,
    };
    let seconds = older
        .default_request_timeout_in_seconds
        .map(Duration::from_secs);
    let standard = Network::default();
    Some(Provider {
        name: name.to_owned(),
        base_url,
        auth,
        dialects,
        keys,
        models,
        network: Network {
            headers: older.extra_headers.into_iter().chain(headers).collect(),
            timeout: timeout
                .map(|span| span.0)
                .or(seconds)
                .unwrap_or(standard.timeout),
            max_retries: max_retries
                .or(older.max_retries)
                .unwrap_or(standard.max_retries),
            proxy,
            tls: Tls {
                insecure_skip_verify: tls.insecure_skip_verify || older.insecure_skip_verify,
                ca_cert_pem: tls.ca_cert_pem.or(older.ca_cert_pem),
            },
        },
        ignore_fields,
        flat_schemas: flat_schemas.unwrap_or(known.is_some_and(Preset::flat_schemas)),
    })
}

/// The preset that a provider is like; the outer none is a mistake.
fn known(
    name: &str,
    preset: Option<String>,
    custom: Option<&CustomProviderConfig>,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Option<Option<&'static Preset>> {
    let (said, at) = match (preset, custom) {
        (Some(preset), _) => (preset, "preset"),
        (None, Some(custom)) => (
            custom.base_provider_type.clone(),
            "custom_provider_config/base_provider_type",
        ),
        (None, None) => return Some(Preset::named(name)),
    };
    if let Some(preset) = Preset::named(&said) {
        return Some(Some(preset));
    }
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    let message = format!("`{said}` is no preset; there are {}", names.join(", "));
    reader.error(&format!("{pointer}/{at}"), message);
    None
}

fn address(
    base_url: Option<String>,
    older: &NetworkConfig,
    known: Option<&'static Preset>,
    pointer: &str,
    reader: &mut Reader<'_>,
) -> Option<Url> {
    if let Some(url) = base_url {
        let pointer = format!("{pointer}/base_url");
        let read = read_url(&pointer, &url, reader)?;
        if read.query().is_some() || read.fragment().is_some() {
            reader.error(
                &pointer,
                "may have no query; give it as `headers`, or leave it out",
            );
            return None;
        }
        return Some(read);
    }
    if let Some(url) = &older.base_url {
        let with_version = format!("{}/v1", url.trim_end_matches('/'));
        return read_url(
            &format!("{pointer}/network_config/base_url"),
            &with_version,
            reader,
        );
    }
    let preset = known
        .map(|preset| preset.base_url)
        .filter(|url| !url.is_empty());
    if preset.is_none() {
        let message = match known {
            Some(_) => {
                "needs a `base_url`, such as \"https://RESOURCE.openai.azure.com/openai/v1\""
            }
            None => {
                "is no preset's name, so it needs a `base_url`, such as \"https://models.example.com/v1\""
            }
        };
        reader.error(pointer, message);
    }
    Url::parse(preset?).ok()
}

fn provider_keys(
    api_key: Option<Secret>,
    keys: Vec<ProviderKeyTable>,
    known: Option<&'static Preset>,
    custom: Option<&CustomProviderConfig>,
) -> Vec<ProviderKey> {
    let key = |name: &str, value| ProviderKey {
        name: name.to_owned(),
        value,
        models: None,
        weight: 1.0,
    };
    let mut read: Vec<ProviderKey> = api_key
        .map(|value| key("api_key", value))
        .into_iter()
        .collect();
    for (index, table) in keys.into_iter().enumerate() {
        if table.enabled == Some(false) {
            continue;
        }
        let all = table.models.is_empty() || table.models.iter().any(|model| model == "*");
        read.push(ProviderKey {
            name: table.name.unwrap_or_else(|| format!("key {}", index + 1)),
            value: table.value,
            models: (!all).then_some(table.models),
            weight: table.weight.unwrap_or(1.0).max(0.0),
        });
    }
    let keyless = custom.is_some_and(|custom| custom.is_key_less);
    let variable = known
        .map(|preset| preset.variable)
        .filter(|name| !name.is_empty());
    if let Some(variable) = variable.filter(|_| read.is_empty() && !keyless) {
        read.push(key(variable, Secret::Env(variable.to_owned())));
    }
    read
}

fn older_proxy(config: ProxyConfig, pointer: &str, reader: &mut Reader<'_>) -> Option<Proxy> {
    let ProxyConfig {
        kind,
        url,
        username,
        password,
    } = config;
    match (kind, url) {
        (ProxyKind::None, _) => Some(Proxy::None),
        (ProxyKind::Environment, _) => Some(Proxy::Environment),
        (ProxyKind::Http | ProxyKind::Socks5, Some(url)) => Some(Proxy::Url {
            url,
            user: username.zip(password),
        }),
        (ProxyKind::Http | ProxyKind::Socks5, None) => {
            reader.error(
                &format!("{pointer}/proxy_config"),
                "needs the proxy's `url`",
            );
            None
        }
    }
}

fn price(table: PriceTable) -> Price {
    Price {
        input: micro_usd(table.input),
        output: micro_usd(table.output),
        cached_input: micro_usd(table.cached_input.unwrap_or(table.input)),
        cache_write: micro_usd(table.cache_write.unwrap_or(table.input)),
    }
}
