//! To which trace a request belongs, as the W3C writes it: in headers, and in `_meta`.
//!
//! It is passed on, never understood here.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use toolgate_core::json::Members;

use crate::jsonrpc::Object;

/// What a header may carry; more is nobody's trace.
const LONGEST: usize = 8192;

/// Its parts as headers, whose names need not be read again for every request.
const HEADERS: [HeaderName; 3] = [
    HeaderName::from_static(TraceContext::NAMES[0]),
    HeaderName::from_static(TraceContext::NAMES[1]),
    HeaderName::from_static(TraceContext::NAMES[2]),
];

/// The trace that a request belongs to, with what else is said along with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub baggage: Option<String>,
}

impl TraceContext {
    /// The names of its parts, in headers as in `_meta`.
    pub const NAMES: [&'static str; 3] = ["traceparent", "tracestate", "baggage"];

    pub fn of_headers(headers: &HeaderMap) -> Self {
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

    /// What a request's `_meta` says.
    pub(crate) fn of_meta(meta: &Members<'_>) -> Self {
        Self::new(Self::NAMES.map(|name| serde_json::from_str(meta.get(name)?.get()).ok()))
    }

    pub fn is_empty(&self) -> bool {
        self.parts().next().is_none()
    }

    /// Puts it into the headers of a request, in the place of what stood there.
    pub fn onto_headers(&self, headers: &mut HeaderMap) {
        for (name, text) in self.parts() {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    /// The same `_meta`, with it.
    #[must_use]
    pub fn onto_meta(&self, meta: Object) -> Object {
        self.parts()
            .fold(meta, |meta, (name, text)| meta.text(name, text))
    }

    fn new(parts: [Option<String>; 3]) -> Self {
        let fits = |part: Option<String>| part.filter(|text| text.len() <= LONGEST);
        let [traceparent, tracestate, baggage] = parts.map(fits);
        Self {
            traceparent,
            tracestate,
            baggage,
        }
    }

    fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let parts = [&self.traceparent, &self.tracestate, &self.baggage];
        let named = Self::NAMES.into_iter().zip(parts);
        named.filter_map(|(name, part)| Some((name, part.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_way_through_meta_and_headers() {
        let meta = r#"{"traceparent":"00-1","baggage":"a=1","tracestate":7}"#;
        let context = TraceContext::of_meta(&Members::of(meta).unwrap());
        assert_eq!(context.traceparent.as_deref(), Some("00-1"));
        assert_eq!((&context.tracestate, context.is_empty()), (&None, false));
        let mut headers = HeaderMap::new();
        headers.append("baggage", HeaderValue::from_static("other"));
        context.onto_headers(&mut headers);
        assert_eq!(TraceContext::of_headers(&headers), context);
        let meta = context.onto_meta(Object::new().raw("x", "1"));
        assert_eq!(
            meta.to_string(),
            r#"{"x":1,"traceparent":"00-1","baggage":"a=1"}"#
        );
    }

    #[test]
    fn what_is_no_text_or_too_long_is_left_out() {
        let mut headers = HeaderMap::new();
        assert!(TraceContext::of_headers(&headers).is_empty());
        headers.append("tracestate", HeaderValue::from_static("a=1"));
        headers.append("tracestate", HeaderValue::from_static("b=2"));
        headers.insert("baggage", HeaderValue::from_str(&"x".repeat(9000)).unwrap());
        let context = TraceContext::of_headers(&headers);
        assert_eq!(context.tracestate.as_deref(), Some("a=1,b=2"));
        assert_eq!(context.baggage, None);
        let mut out = HeaderMap::new();
        let broken = TraceContext {
            traceparent: Some("a\nb".to_owned()),
            ..context
        };
        broken.onto_headers(&mut out);
        assert_eq!(out.len(), 1);
    }
}
