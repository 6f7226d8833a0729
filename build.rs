//! Compiles the protocol without a system `protoc`, and keeps its description
//! for gRPC reflection.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files([
        "leasehold/v1/session.proto",
        "leasehold/v1/lock.proto",
        "leasehold/v1/election.proto",
    ])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("leasehold.v1.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .codec_path("crate::rpc::codec::SmallBuffers")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
