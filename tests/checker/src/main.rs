//! Command `leasehold-check FILE…`: checks recorded histories.

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
             contains the bounds, each other line one entry, ordered by time:
               {\"takeover\":20000000000,\"skew\":0}
               {\"at\":0,\"event\":\"acquire\",\"op\":1,\"client\":0,\"daemon\":0,\"lock\":0}
               {\"at\":5000000,\"event\":\"granted\",\"op\":1,\"token\":1024}
             Times are in nanoseconds. A bound that is zero or missing disables
             its check.
  --quiet    print violations only, not the statistics of each history
  --help     print this help

Checks:
  I1  a token belongs to one acquire, no other client uses it, and the tokens
      that a fenced resource accepts never decrease
  I2  an acquire invoked after a grant was returned gets a higher token
  I3  a lock never has two holders at once
  I4  a grant is never valid again after its loss, release or expiry, and a
      client that waits for the loss is notified by the deadline
  I5  a token is granted only after it was stored, by the daemon that grants it
  I6  client's deadline <= daemon's deadline <= storage's expiry, and no lease
      ends before the clients and the daemon that rely on it have stopped
  I7  the stored token never decreases
  L1  a dead holder's lock is granted in time
  L2  a released lock is granted in time
  L3  the acquire that was queued first is granted first
  L4  a lease without a holder or a waiter ends in time
  L5  after any fault, a waiting acquire is answered in time, and then no
      acquire is refused because of a fault of the service
  L6  a grant survives the end of its stream
  E1  an observed value belongs to the leader whose token it carries
  E2  the states of one observer stream do not go back
  E3  an acknowledged proclaim is visible
  E4  a former leader is not reported after a newer one
  Linearizable  the grants of a lock are those of one mutex
  Malformed     the history contradicts itself: an error of the recorder
L1 to L5 apply only while no fault is active.

Exit code: 0 without a violation, 1 with a violation, 2 if a file can't be read.
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
                return fail(&format!("unknown option {option}; --help lists the options"));
            }
            _ => files.push(argument),
        }
    }
    if files.is_empty() {
        return fail("missing FILE: pass a history, or - for standard input; see --help");
    }
    let mut found = false;
    for file in files {
        let history = match open(&file) {
            Ok(history) => history,
            Err(error) => return fail(&format!("{file}: {error}")),
        };
        match print_results(&mut out, &file, &history, quiet) {
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

/// Prints the statistics and the violations of a history. Returns true if there are
/// violations.
fn print_results(
    out: &mut impl Write,
    file: &str,
    history: &History,
    quiet: bool,
) -> io::Result<bool> {
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
        // The reader of the output closed the pipe, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => code,
        Err(error) => fail(&format!("can't write the output: {error}")),
        Ok(()) => code,
    }
}

fn fail(why: &str) -> ExitCode {
    // If standard error can't be written either, the exit code still reports the failure.
    _ = writeln!(io::stderr(), "leasehold-check: {why}");
    ExitCode::from(2)
}
