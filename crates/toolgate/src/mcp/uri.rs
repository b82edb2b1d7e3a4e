//! Names under which items of several servers never clash.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use toolgate_core::name::ServerName;

const SCHEME: &str = "toolgate://";

/// A server's URI, or URI template, as clients of all servers know it.
pub(super) fn wrap(server: &ServerName, uri: &str) -> String {
    format!("{SCHEME}{server}/{uri}")
}

/// The server and the URI that it knows.
pub(super) fn unwrap(uri: &str) -> Option<(ServerName, &str)> {
    let (server, uri) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Some((ServerName::parse(server).ok()?, uri))
}

/// A server's prompt as clients of all servers know it; no server's name has a dot.
pub(super) fn prompt(server: &ServerName, name: &str) -> String {
    format!("{server}.{name}")
}

/// The server and the prompt's own name.
pub(super) fn prompt_of(name: &str) -> Option<(ServerName, &str)> {
    let (server, name) = name.split_once('.')?;
    Some((ServerName::parse(server).ok()?, name))
}

/// The place after which a list goes on.
pub(super) fn encode(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

pub(super) fn decode(cursor: &str) -> Result<String, ()> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| ())?;
    String::from_utf8(bytes).map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        let server = ServerName::parse("a_b").unwrap();
        for uri in ["file:///x/y", "test://template/{id}/data", "", "a/b"] {
            let wrapped = wrap(&server, uri);
            assert_eq!(unwrap(&wrapped), Some((server.clone(), uri)));
        }
        assert_eq!(unwrap("file:///x"), None);
        assert_eq!(unwrap("toolgate://no server/x"), None);
        assert_eq!(prompt_of("a_b.c.d"), Some((server, "c.d")));
        assert_eq!(decode(&encode("é/ü")), Ok("é/ü".to_owned()));
        assert_eq!(decode("!"), Err(()));
    }
}
