//! Configuration of servers, as the TOML that users write.

use crate::zoo_path;

/// Returns `[mcp_servers.NAME]` for a stdio zoo with these flags. Further keys can be appended.
///
/// # Panics
/// If the zoo was not built, see [`zoo_path`].
#[must_use]
pub fn stdio_zoo(name: &str, flags: &[&str]) -> String {
    let path = zoo_path();
    format!(
        "[mcp_servers.{name}]\ncommand = {path:?}\nargs = {:?}\n",
        [&["stdio"], flags].concat()
    )
}

/// Returns `[mcp_servers.NAME]` for a server at a URL. Further keys can be appended.
#[must_use]
pub fn http_server(name: &str, url: &str) -> String {
    format!("[mcp_servers.{name}]\nurl = {url:?}\n")
}
