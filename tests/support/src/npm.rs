//! Node.js programs of the tests, and their packages.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::Path,
    process::{Child, Command, Stdio},
    time::SystemTime,
};

/// Installs the packages of a directory's lock file unless they are up to date. The
/// remedy completes messages of failures.
pub fn install(directory: &Path, remedy: &str) {
    let wanted = directory.join("package-lock.json");
    // Another test or process may install at the same time.
    let install_lock = File::open(&wanted).unwrap();
    install_lock.lock().unwrap();
    // npm writes this file last.
    let installed = directory.join("node_modules/.package-lock.json");
    if modified(&installed).is_some_and(|installed| Some(installed) >= modified(&wanted)) {
        return;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--engine-strict"]);
    npm.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn(&mut npm, remedy).wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "`npm ci` in {} failed; {remedy}, and give npm access to its registry\n{}{}",
        directory.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// Starts a program that must be installed.
pub fn spawn(command: &mut Command, remedy: &str) -> Child {
    command.spawn().unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("{:?} not found: {remedy}", command.get_program()),
        _ => panic!("failed to start {:?}: {error}; {remedy}", command.get_program()),
    })
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|file| file.modified()).ok()
}
