//! Compiles the protocol without a system `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(
        ["leasehold/v1/session.proto", "leasehold/v1/lock.proto", "leasehold/v1/election.proto"],
        ["proto"],
    )?;
    tonic_prost_build::configure().build_server(false).bytes(".leasehold.v1").compile_fds(files)?;
    Ok(())
}
