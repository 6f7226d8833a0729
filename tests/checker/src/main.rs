//! `leasehold-check FILE…`: checks recorded histories.

use std::{
    env,
    fs::File,
    io::{self, BufReader, Write},
    path::Path,
    process::ExitCode,
};

use leasehold_checker::{History, ReadError, Stats, check, read};

const HELP: &str = "\
Checks recorded histories of Leasehold against its guarantees.

Usage: leasehold-check [--quiet] FILE...

  FILE       a history in JSON lines, or - for standard input. The first line
             holds the bounds, each other line one entry, ordered by time:
               {\"takeover\":20000000000,\"skew\":0}
               {\"at\":0,\"event\":\"acquire\",\"op\":1,\"client\":0,\"daemon\":0,\"lock\":0}
               {\"at\":5000000,\"event\":\"granted\",\"op\":1,\"token\":1024}
             Times are in nanoseconds. A bound that is zero or missing is not
             checked.
  --quiet    print violations only, not the figures of each history
  --help     print this

What is checked:
  I1  a token belongs to one client, nobody else uses it, and what a fenced
      resource accepts never falls
  I2  who asks after a grant was returned gets a greater token
  I3  never two holders at once
  I4  never valid again after lost, released or run out
  I5  a token is granted only after it was stored, by the daemon that grants it
  I6  client's deadline <= daemon's deadline <= storage's expiry, and no lease
      ends before those who count on it have stopped
  I7  the stored token never falls
  L1  a dead holder's lock is granted in time
  L2  a released lock is granted in time
  L3  who was queued first is served first
  L4  no lease without anybody who wants it
  L5  who waits is answered in time after any disturbance, and then nobody is
      refused for want of service
  Linearizable  the grants of a lock are those of one mutex
  Malformed     the history contradicts itself: the recorder is wrong
L1 to L5 are expected only while nothing is disturbed.

Exit code: 0 if nothing was found, 1 if something was, 2 if a file can't be read.
";

fn main() -> ExitCode {
    let mut quiet = false;
    let mut files = Vec::new();
    let mut out = io::stdout().lock();
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--help" | "-h" => return written(out.write_all(HELP.as_bytes()), ExitCode::SUCCESS),
            "--quiet" | "-q" => quiet = true,
            "-" => files.push(argument),
            option if option.starts_with('-') => {
                return fail(&format!("there is no option {option}; --help lists them"));
            }
            _ => files.push(argument),
        }
    }
    if files.is_empty() {
        return fail("name the history to check, or - for standard input; --help says more");
    }
    let mut found = false;
    for file in files {
        let history = match open(&file) {
            Ok(history) => history,
            Err(error) => return fail(&format!("{file}: {error}")),
        };
        match tell(&mut out, &file, &history, quiet) {
            Ok(violated) => found |= violated,
            Err(error) => return written(Err(error), ExitCode::from(2)),
        }
    }
    if found { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn open(file: &str) -> Result<History, ReadError> {
    match file {
        "-" => read(io::stdin().lock()),
        _ => read(BufReader::new(File::open(Path::new(file))?)),
    }
}

/// Whether there were violations.
fn tell(out: &mut impl Write, file: &str, history: &History, quiet: bool) -> io::Result<bool> {
    if !quiet {
        writeln!(out, "{}", Stats::of(history))?;
    }
    let violations = check(history);
    for violation in &violations {
        writeln!(out, "{violation}\n")?;
    }
    match violations.len() {
        0 if quiet => {}
        0 => writeln!(out, "{file}: no violation")?,
        count => writeln!(out, "{file}: {count} violation(s)")?,
    }
    Ok(!violations.is_empty())
}

fn written(result: io::Result<()>, code: ExitCode) -> ExitCode {
    match result {
        // Whoever read the output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => code,
        Err(error) => fail(&format!("the output can't be written: {error}")),
        Ok(()) => code,
    }
}

fn fail(why: &str) -> ExitCode {
    // There is nobody left to tell if this can't be written.
    _ = writeln!(io::stderr(), "leasehold-check: {why}");
    ExitCode::from(2)
}
