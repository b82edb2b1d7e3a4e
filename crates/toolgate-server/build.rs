//! Has the binary built anew when the page was: what is embedded stands in `web/dist`.

use std::io::{self, Write as _};

const PAGE: &str = "../../web/dist";

fn main() -> io::Result<()> {
    // A path that is not there counts as changed with every build. Where none can be made, it is no
    // worse than that.
    let _ = std::fs::create_dir_all(PAGE);
    writeln!(io::stdout(), "cargo::rerun-if-changed={PAGE}")
}
