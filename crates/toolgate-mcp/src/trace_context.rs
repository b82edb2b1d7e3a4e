//! W3C trace context of a request, carried in headers and in `_meta`.
//!
//! It is only forwarded; nothing here interprets it.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use toolgate_core::json::Members;

use crate::jsonrpc::Object;

/// Maximum length of each part; longer values are dropped.
const MAX_PART_BYTES: usize = 8192;

/// Header names of the parts, parsed at compile time.
const HEADERS: [HeaderName; 3] = [
    HeaderName::from_static(TraceContext::NAMES[0]),
    HeaderName::from_static(TraceContext::NAMES[1]),
    HeaderName::from_static(TraceContext::NAMES[2]),
];

/// The trace that a request belongs to, with its vendor state and baggage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub baggage: Option<String>,
}

impl TraceContext {
    /// Names of the parts, both in headers and in `_meta`.
    pub const NAMES: [&'static str; 3] = ["traceparent", "tracestate", "baggage"];

    /// Reads the trace context from headers; repeated headers are joined.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        Self::new(HEADERS.map(|name| {
            let mut values = headers.get_all(name).iter();
            let mut joined = Cow::Borrowed(values.next()?.to_str().ok()?);
            for more in values.filter_map(|value| value.to_str().ok()) {
                joined.to_mut().push(',');
                joined.to_mut().push_str(more);
            }
            Some(joined.into_owned())
        }))
    }

    /// Reads the trace context from a request's `_meta`.
    pub fn from_meta(meta: &Members<'_>) -> Self {
        Self::new(Self::NAMES.map(|name| serde_json::from_str(meta.get(name)?.get()).ok()))
    }

    pub fn is_empty(&self) -> bool {
        self.parts().next().is_none()
    }

    /// Inserts the parts into headers, replacing existing values.
    pub fn insert_into_headers(&self, headers: &mut HeaderMap) {
        for (name, text) in self.parts() {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    /// Appends the parts to a `_meta` object.
    #[must_use]
    pub fn append_to_meta(&self, meta: Object) -> Object {
        self.parts()
            .fold(meta, |meta, (name, text)| meta.text(name, text))
    }

    fn new(parts: [Option<String>; 3]) -> Self {
        let fits = |part: Option<String>| part.filter(|text| text.len() <= MAX_PART_BYTES);
        let [traceparent, tracestate, baggage] = parts.map(fits);
        Self {
            traceparent,
            tracestate,
            baggage,
        }
    }

    fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let parts = [&self.traceparent, &self.tracestate, &self.baggage];
        let pairs = Self::NAMES.into_iter().zip(parts);
        pairs.filter_map(|(name, part)| Some((name, part.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_round_trips_through_meta_and_headers() {
        let meta = r#"{"traceparent":"00-1","baggage":"a=1","tracestate":7}"#;
        let context = TraceContext::from_meta(&Members::parse(meta).unwrap());
        assert_eq!(context.traceparent.as_deref(), Some("00-1"));
        assert_eq!((&context.tracestate, context.is_empty()), (&None, false));
        let mut headers = HeaderMap::new();
        headers.append("baggage", HeaderValue::from_static("other"));
        context.insert_into_headers(&mut headers);
        assert_eq!(TraceContext::from_headers(&headers), context);
        let meta = context.append_to_meta(Object::new().raw("x", "1"));
        assert_eq!(
            meta.to_string(),
            r#"{"x":1,"traceparent":"00-1","baggage":"a=1"}"#
        );
    }

    #[test]
    fn invalid_and_oversized_parts_are_dropped() {
        let mut headers = HeaderMap::new();
        assert!(TraceContext::from_headers(&headers).is_empty());
        headers.append("tracestate", HeaderValue::from_static("a=1"));
        headers.append("tracestate", HeaderValue::from_static("b=2"));
        headers.insert("baggage", HeaderValue::from_str(&"x".repeat(9000)).unwrap());
        let context = TraceContext::from_headers(&headers);
        assert_eq!(context.tracestate.as_deref(), Some("a=1,b=2"));
        assert_eq!(context.baggage, None);
        let mut out = HeaderMap::new();
        let broken = TraceContext {
            traceparent: Some("a\nb".to_owned()),
            ..context
        };
        broken.insert_into_headers(&mut out);
        assert_eq!(out.len(), 1);
    }
}
