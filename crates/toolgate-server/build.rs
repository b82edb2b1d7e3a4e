//! Rebuilds the binary when the web page changes: the files in `web/dist` are embedded in it.

use std::io::{self, Write as _};

const PAGE: &str = "../../web/dist";

fn main() -> io::Result<()> {
    // Cargo treats a missing path as always changed. If the folder cannot be created, the only cost is
    // a rebuild each time.
    let _ = std::fs::create_dir_all(PAGE);
    writeln!(io::stdout(), "cargo::rerun-if-changed={PAGE}")
}
