//! The S3 server of the tests as a program of its own, for scripts and for trying things by hand: prints the variables
//! that lead a client to it, and runs until its standard input ends.

use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    let server = peat_testkit::s3::S3Server::start()?;
    let mut out = std::io::stdout();
    for (name, value) in server.vars() {
        writeln!(out, "export {name}={value}")?;
    }
    writeln!(out, "export PEAT_TEST_STORE={}", server.url())?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
