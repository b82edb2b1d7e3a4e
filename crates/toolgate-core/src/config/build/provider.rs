//! Builds and checks model providers.

use std::time::Duration;

use indexmap::IndexMap;
use url::Url;

use super::entry::parse_url;
use super::{ConfigBuilder, FileContext};
use crate::config::document::escape_step;
use crate::config::file::{
    CustomProviderConfig, DialectNames, NetworkConfig, OneOrMany, PriceTable, ProviderKeyTable,
    ProviderTable, ProxyConfig, ProxyKind,
};
use crate::config::provider::{
    ModelPrice, PRESETS, Preset, ProviderAuth, ProviderConfig, ProviderKey, ProviderNetwork, Proxy,
    RequestSettings,
};
use crate::config::{ConfigFinding, ConfigLocation, Dialect, Severity, Tls, micro_usd};
use crate::header;
use crate::nearest::find_nearest;
use crate::secret::Secret;

const MAX_NAME_LEN: usize = 64;

impl ConfigBuilder {
    pub(super) fn add_providers(
        &mut self,
        tables: IndexMap<String, ProviderTable>,
        context: &mut FileContext<'_>,
    ) {
        for (name, table) in tables {
            let pointer = format!("/providers/{}", escape_step(&name));
            let existing = &mut self.config.models.providers;
            if table.enabled == Some(false) {
                existing.retain(|provider| provider.name != name);
                continue;
            }
            if let Some(provider) = build_provider(&name, table, &pointer, context) {
                check_key_variables(&provider.keys, &pointer, context);
                existing.retain(|other| other.name != name);
                existing.push(provider);
            }
        }
    }

    pub(super) fn add_aliases(
        &mut self,
        aliases: IndexMap<String, OneOrMany>,
        default_provider: Option<String>,
        context: &FileContext<'_>,
    ) {
        for (alias, targets) in aliases {
            let pointer = format!("/model_aliases/{}", escape_step(&alias));
            let location = context.document.location(&pointer);
            let targets = targets.into_vec();
            self.model_names.extend(
                targets
                    .iter()
                    .map(|target| (target.clone(), location.clone())),
            );
            self.config.models.aliases.insert(alias, targets);
        }
        if default_provider.is_some() {
            let location = context.document.location("/default_provider");
            self.default_provider = Some(location);
            self.config.models.default_provider = default_provider;
        }
    }

    pub(super) fn add_prices(&mut self, prices: IndexMap<String, PriceTable>) {
        let prices = prices
            .into_iter()
            .map(|(model, table)| (model, build_price(table)));
        self.config.models.prices.extend(prices);
    }

    /// Reports aliases and defaults that name an undefined provider.
    pub(super) fn check_provider_names(&self) -> Vec<ConfigFinding> {
        let providers = &self.config.models.providers;
        // If none is configured, the presets whose keys are in the environment are used.
        let names: Vec<&str> = if providers.is_empty() {
            PRESETS.iter().map(|preset| preset.name).collect()
        } else {
            providers
                .iter()
                .map(|provider| provider.name.as_str())
                .collect()
        };
        let finding = |name: &str, location: &ConfigLocation| {
            let hint = match find_nearest(name, names.iter().copied()) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => format!("define it as `[providers.{name}]`"),
            };
            ConfigFinding {
                severity: Severity::Error,
                location: location.clone(),
                message: format!("no provider named `{name}`; {hint}"),
            }
        };
        let mut findings = Vec::new();
        for (target, location) in &self.model_names {
            let provider = target.split_once('/').map(|(provider, _)| provider);
            if let Some(provider) = provider.filter(|name| !names.contains(name)) {
                findings.push(finding(provider, location));
            }
        }
        if let (Some(name), Some(location)) =
            (&self.config.models.default_provider, &self.default_provider)
            && !names.contains(&name.as_str())
        {
            findings.push(finding(name, location));
        }
        findings
    }
}

fn build_provider(
    name: &str,
    table: ProviderTable,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<ProviderConfig> {
    if !is_valid_name(name) {
        let message = format!(
            "a provider name must have 1 to {MAX_NAME_LEN} letters, digits, `_`, `-` or `.`"
        );
        context.error(pointer, message);
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
        allowed_extra_headers,
        timeout,
        max_retries,
        proxy,
        tls,
        ignore_fields,
        flat_schemas,
        max_tokens_field,
        enabled: _,
        network_config,
        proxy_config,
        custom_provider_config,
    } = table;
    let custom = custom_provider_config.as_ref();
    let preset = match find_preset(name, preset, custom, pointer, context) {
        PresetLookup::Found(preset) => Some(preset),
        PresetLookup::NoPreset => None,
        PresetLookup::Invalid => return None,
    };
    let bifrost = network_config.unwrap_or_default();
    let base_url = resolve_base_url(base_url, &bifrost, preset, pointer, context)?;
    let keys = build_keys(api_key, keys, preset, custom);
    let dialects = resolve_dialects(dialect, preset);
    let requests = preset.map(Preset::requests).unwrap_or_default();
    let proxy = match (proxy, proxy_config) {
        (Some(url), _) => Proxy::Url { url, user: None },
        (None, Some(config)) => build_bifrost_proxy(config, pointer, context)?,
        (None, None) => Proxy::Environment,
    };
    let headers: IndexMap<String, Secret> =
        bifrost.extra_headers.into_iter().chain(headers).collect();
    let allowed_extra_headers =
        check_extra_headers(allowed_extra_headers, &headers, pointer, context);
    let seconds = bifrost.default_request_timeout_in_seconds;
    let timeout = timeout.map(|span| span.0);
    let defaults = ProviderNetwork::default();
    Some(ProviderConfig {
        name: name.to_owned(),
        preset,
        base_url,
        auth: provider_auth(preset, &dialects),
        dialects,
        keys,
        models,
        network: ProviderNetwork {
            headers,
            allowed_extra_headers,
            timeout: timeout
                .or(seconds.map(Duration::from_secs))
                .unwrap_or(defaults.timeout),
            max_retries: max_retries
                .or(bifrost.max_retries)
                .unwrap_or(defaults.max_retries),
            proxy,
            tls: Tls {
                insecure_skip_verify: tls.insecure_skip_verify || bifrost.insecure_skip_verify,
                ca_cert_pem: tls.ca_cert_pem.or(bifrost.ca_cert_pem),
            },
        },
        requests: RequestSettings {
            ignore_fields,
            flat_schemas: flat_schemas.unwrap_or(requests.flat_schemas),
            max_tokens_field: max_tokens_field.unwrap_or(requests.max_tokens_field),
        },
    })
}

/// Returns the supported dialects: those that are named, else those of the preset.
fn resolve_dialects(names: Option<DialectNames>, preset: Option<&Preset>) -> Vec<Dialect> {
    match names {
        Some(DialectNames::One(dialect)) => vec![dialect],
        Some(DialectNames::Several(dialects)) if !dialects.is_empty() => dialects,
        _ => preset.map_or(vec![Dialect::Chat], |preset| preset.dialects.to_vec()),
    }
}

/// Returns the header in which a provider expects its key.
fn provider_auth(preset: Option<&Preset>, dialects: &[Dialect]) -> ProviderAuth {
    match (preset, dialects) {
        (Some(preset), _) => preset.auth,
        (None, [Dialect::Messages]) => ProviderAuth::XApiKey,
        (None, _) => ProviderAuth::Bearer,
    }
}

/// Checks the names of headers that callers may set, and returns them in lower case.
fn check_extra_headers(
    names: Vec<String>,
    configured: &IndexMap<String, Secret>,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Vec<String> {
    let mut allowed = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let pointer = format!("{pointer}/allowed_extra_headers/{index}");
        let lower = name.to_ascii_lowercase();
        if name.contains('*') || !header::is_valid_name(&name) {
            let message = format!("`{name}` is not the name of a header; list each one by name");
            context.error(&pointer, message);
        } else if header::is_reserved_for_providers(&lower) {
            let message = format!(
                "callers can never set `{name}`: it is a credential, selects an account or belongs to the connection; set it in `headers` if the provider needs it"
            );
            context.error(&pointer, message);
        } else if configured.keys().any(|set| set.eq_ignore_ascii_case(&name)) {
            let message =
                format!("`{name}` is always sent as set in `headers`; remove one of them");
            context.error(&pointer, message);
        } else {
            allowed.push(lower);
        }
    }
    allowed
}

fn is_valid_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME_LEN && name.chars().all(is_valid)
}

/// Checks the variables of all keys: without a key of its own, a provider uses the variable of its preset.
fn check_key_variables(keys: &[ProviderKey], pointer: &str, context: &mut FileContext<'_>) {
    for key in keys {
        if let Secret::Env(name) = &key.value {
            context.check_variable_use(pointer, name);
        }
    }
}

/// Result of looking up the preset of a provider.
enum PresetLookup {
    Found(&'static Preset),
    /// The provider does not use a preset.
    NoPreset,
    /// The provider names an unknown preset, which has been reported.
    Invalid,
}

/// Finds the preset that supplies a provider's defaults.
fn find_preset(
    name: &str,
    preset: Option<String>,
    custom: Option<&CustomProviderConfig>,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> PresetLookup {
    let (preset_name, at) = match (preset, custom) {
        (Some(preset), _) => (preset, "preset"),
        (None, Some(custom)) => (
            custom.base_provider_type.clone(),
            "custom_provider_config/base_provider_type",
        ),
        (None, None) => {
            return Preset::find(name).map_or(PresetLookup::NoPreset, PresetLookup::Found);
        }
    };
    if let Some(preset) = Preset::find(&preset_name) {
        return PresetLookup::Found(preset);
    }
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    let message = format!(
        "`{preset_name}` is not a preset; presets are {}",
        names.join(", ")
    );
    context.error(&format!("{pointer}/{at}"), message);
    PresetLookup::Invalid
}

fn resolve_base_url(
    base_url: Option<String>,
    bifrost: &NetworkConfig,
    preset: Option<&'static Preset>,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<Url> {
    if let Some(url) = base_url {
        let pointer = format!("{pointer}/base_url");
        let url = parse_url(&pointer, &url, context)?;
        if url.query().is_some() || url.fragment().is_some() {
            context.error(
                &pointer,
                "the URL must not have a query or fragment; use `headers` for extra parameters, or remove it",
            );
            return None;
        }
        return Some(url);
    }
    if let Some(url) = &bifrost.base_url {
        let with_version = format!("{}/v1", url.trim_end_matches('/'));
        return parse_url(
            &format!("{pointer}/network_config/base_url"),
            &with_version,
            context,
        );
    }
    let preset_url = preset
        .map(|preset| preset.base_url)
        .filter(|url| !url.is_empty());
    if preset_url.is_none() {
        let message = match preset {
            Some(_) => "needs a `base_url` such as \"https://RESOURCE.openai.azure.com/openai/v1\"",
            None => {
                "is not a preset, so it needs a `base_url` such as \"https://models.example.com/v1\""
            }
        };
        context.error(pointer, message);
    }
    parse_url(pointer, preset_url?, context)
}

fn build_keys(
    api_key: Option<Secret>,
    keys: Vec<ProviderKeyTable>,
    preset: Option<&'static Preset>,
    custom: Option<&CustomProviderConfig>,
) -> Vec<ProviderKey> {
    let key = |name: &str, value| ProviderKey {
        name: name.to_owned(),
        value,
        models: None,
        weight: 1.0,
    };
    let mut built: Vec<ProviderKey> = api_key
        .map(|value| key("api_key", value))
        .into_iter()
        .collect();
    for (index, table) in keys.into_iter().enumerate() {
        if table.enabled == Some(false) {
            continue;
        }
        let all = table.models.is_empty() || table.models.iter().any(|model| model == "*");
        built.push(ProviderKey {
            name: table.name.unwrap_or_else(|| format!("key {}", index + 1)),
            value: table.value,
            models: (!all).then_some(table.models),
            weight: table.weight.unwrap_or(1.0).max(0.0),
        });
    }
    let keyless = custom.is_some_and(|custom| custom.is_key_less);
    let variable = preset
        .map(|preset| preset.key_variable)
        .filter(|name| !name.is_empty());
    if let Some(variable) = variable.filter(|_| built.is_empty() && !keyless) {
        built.push(key(variable, Secret::Env(variable.to_owned())));
    }
    built
}

fn build_bifrost_proxy(
    config: ProxyConfig,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<Proxy> {
    let ProxyConfig {
        kind,
        url,
        username,
        password,
    } = config;
    // A user without a password is common for tokens; a password alone cannot be sent.
    let user = match (username, password) {
        (Some(name), password) => {
            let password = password.unwrap_or_else(|| Secret::Literal(String::new()));
            Some((name, password))
        }
        (None, Some(_)) => {
            context.warn(
                &format!("{pointer}/proxy_config/password"),
                "`password` has no effect without `username`",
            );
            None
        }
        (None, None) => None,
    };
    match (kind, url) {
        (ProxyKind::None, _) => Some(Proxy::None),
        (ProxyKind::Environment, _) => Some(Proxy::Environment),
        (ProxyKind::Http | ProxyKind::Socks5, Some(url)) => Some(Proxy::Url { url, user }),
        (ProxyKind::Http | ProxyKind::Socks5, None) => {
            context.error(
                &format!("{pointer}/proxy_config"),
                "needs the `url` of the proxy",
            );
            None
        }
    }
}

fn build_price(table: PriceTable) -> ModelPrice {
    ModelPrice {
        input: micro_usd(table.input),
        output: micro_usd(table.output),
        cached_input: micro_usd(table.cached_input.unwrap_or(table.input)),
        cache_write: micro_usd(table.cache_write.unwrap_or(table.input)),
    }
}
