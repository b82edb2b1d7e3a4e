//! Pages of lists, and the cursors that lead from one to the next.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::value::RawValue;
use toolgate_mcp::jsonrpc::{INVALID_PARAMS, Object, RpcError, RpcResult};

use super::to_raw;

/// Maximum number of items on a page of a list.
const PAGE_SIZE: usize = 1000;

/// Encodes one page of a list, starting after the cursor. `items` must be sorted by key.
pub(super) fn encode_page<'a>(
    member: &str,
    items: impl Iterator<Item = (String, &'a RawValue)>,
    cursor: Option<&str>,
) -> RpcResult {
    let after = cursor.map(decode_cursor).transpose()?;
    let mut items = items.skip_while(|(key, _)| after.as_ref().is_some_and(|after| key <= after));
    let mut list = String::from("[");
    let mut last = None;
    for (key, definition) in items.by_ref().take(PAGE_SIZE) {
        if last.is_some() {
            list.push(',');
        }
        list.push_str(definition.get());
        last = Some(key);
    }
    list.push(']');
    let page = Object::new().raw(member, &list);
    Ok(to_raw(&match (items.next(), last) {
        (Some(_), Some(last)) => page.text("nextCursor", &encode_cursor(&last)),
        _ => page,
    }))
}

/// Encodes the key after which the next page starts.
fn encode_cursor(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

fn decode_cursor(cursor: &str) -> Result<String, RpcError> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| RpcError::new(INVALID_PARAMS, "unknown cursor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip() {
        assert_eq!(decode_cursor(&encode_cursor("é/ü")).unwrap(), "é/ü");
        assert_eq!(decode_cursor("!").unwrap_err().code, INVALID_PARAMS);
    }

    #[test]
    fn pages_follow_one_another_without_gaps() {
        let item = RawValue::from_string("0".to_owned()).unwrap();
        let page = |cursor: Option<&str>| {
            let items = (0..PAGE_SIZE + 1).map(|n| (format!("{n:05}"), &*item));
            let page = encode_page("items", items, cursor).unwrap();
            serde_json::from_str::<serde_json::Value>(page.get()).unwrap()
        };
        let first = page(None);
        assert_eq!(first["items"].as_array().unwrap().len(), PAGE_SIZE);
        let second = page(first["nextCursor"].as_str());
        assert_eq!(second["items"].as_array().unwrap().len(), 1);
        assert!(second.get("nextCursor").is_none());
    }
}
