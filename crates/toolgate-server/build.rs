//! Has the binary built anew when the page was: what is embedded stands in `web/dist`.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let page = Path::new("../../web/dist");
    // A path that is not there counts as changed, with every build.
    std::fs::create_dir_all(page)?;
    let mut output = io::stdout();
    io::Write::write_fmt(
        &mut output,
        format_args!("cargo::rerun-if-changed={}\n", page.display()),
    )
}
