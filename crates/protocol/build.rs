//! Compiles the protocol without a system `protoc`, and stores its description for
//! gRPC reflection.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files([
        "leasehold/v1/session.proto",
        "leasehold/v1/lock.proto",
        "leasehold/v1/election.proto",
        "leasehold/v1/diagnostics.proto",
    ])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("leasehold.v1.bin"), compiler.encode_file_descriptor_set())?;
    let client = out.join("client");
    fs::create_dir_all(&client)?;
    // Rare fields of frequent messages are boxed, so that the messages are small.
    // Byte fields of clients share the received buffer instead of copying it.
    tonic_prost_build::configure()
        .build_server(false)
        .bytes(".leasehold.v1")
        .boxed(".leasehold.v1.Acquire.trace_context")
        .out_dir(&client)
        .compile_fds(compiler.file_descriptor_set())?;
    let server = out.join("server");
    fs::create_dir_all(&server)?;
    tonic_prost_build::configure()
        .build_client(false)
        .codec_path("crate::codec::SmallBuffers")
        .extern_path(".leasehold.v1", "crate::v1")
        .out_dir(&server)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
