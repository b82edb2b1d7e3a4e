//! Names that stay unique across servers: qualified URIs, qualified prompt names and list cursors.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use toolgate_core::name::ServerName;

const SCHEME: &str = "toolgate://";

/// Qualifies a server's URI or URI template with the server's name.
pub(super) fn qualify_uri(server: &ServerName, uri: &str) -> String {
    format!("{SCHEME}{server}/{uri}")
}

/// Splits a qualified URI into the server and its raw URI.
pub(super) fn split_uri(uri: &str) -> Option<(ServerName, &str)> {
    let (server, uri) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Some((ServerName::parse(server).ok()?, uri))
}

/// Qualifies a prompt with its server's name. Server names contain no dots.
pub(super) fn qualify_prompt(server: &ServerName, name: &str) -> String {
    format!("{server}.{name}")
}

/// Splits a qualified prompt name into the server and the raw name.
pub(super) fn split_prompt(name: &str) -> Option<(ServerName, &str)> {
    let (server, name) = name.split_once('.')?;
    Some((ServerName::parse(server).ok()?, name))
}

/// Encodes the key after which the next page of a list starts.
pub(super) fn encode_cursor(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

pub(super) fn decode_cursor(cursor: &str) -> Result<String, ()> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| ())?;
    String::from_utf8(bytes).map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_and_cursors_round_trip() {
        let server = ServerName::parse("a_b").unwrap();
        for uri in ["file:///x/y", "test://template/{id}/data", "", "a/b"] {
            let wrapped = qualify_uri(&server, uri);
            assert_eq!(split_uri(&wrapped), Some((server.clone(), uri)));
        }
        assert_eq!(split_uri("file:///x"), None);
        assert_eq!(split_uri("toolgate://no server/x"), None);
        assert_eq!(split_prompt("a_b.c.d"), Some((server, "c.d")));
        assert_eq!(decode_cursor(&encode_cursor("é/ü")), Ok("é/ü".to_owned()));
        assert_eq!(decode_cursor("!"), Err(()));
    }
}
