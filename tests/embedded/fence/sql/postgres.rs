//! Fences in PostgreSQL. Each test starts a server on a Unix socket and uses `psql`. If
//! PostgreSQL is not installed, the tests print a message and pass, unless
//! `LEASEHOLD_TEST_POSTGRES` is set.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

use leasehold_fence::sql::{CREATE, Dialect, raise, update};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid, User, chown},
};
use tempfile::TempDir;

use super::{LAST_WRITES, WRITES_BEFORE_NEXT, assert_tokens_increase};

/// Directory of the programs of PostgreSQL.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let debian = debian.map(|version| version.unwrap().path().join("bin"));
    let found = env::split_paths(&path).chain(debian).find(|dir| dir.join("initdb").is_file());
    if found.is_none() {
        assert!(env::var_os("LEASEHOLD_TEST_POSTGRES").is_none(), "PostgreSQL is not installed");
        eprintln!("PostgreSQL is not installed: nothing was tested");
    }
    // The program in PATH may be a link. The other programs are in the directory of its
    // target.
    let found = fs::canonicalize(found?.join("initdb")).unwrap();
    found.parent().map(Path::to_owned)
}

/// Server that stops at the end of the test.
struct Server {
    child: Child,
    directory: TempDir,
    programs: PathBuf,
}

impl Server {
    fn start() -> Option<Self> {
        let programs = programs()?;
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        // PostgreSQL refuses to run as root.
        let user =
            Uid::effective().is_root().then(|| User::from_name("postgres").unwrap().unwrap());
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.current_dir(directory.path()).env("LC_ALL", "C");
            if let Some(user) = &user {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            command
        };
        if let Some(user) = &user {
            chown(directory.path(), Some(user.uid), Some(user.gid)).unwrap();
        }
        let output = command("initdb")
            .args(["--auth=trust", "--username=leasehold", "--no-sync", "--pgdata"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(directory.path());
        server.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let child = server.stderr(Stdio::null()).spawn().unwrap();
        let server = Self { child, directory, programs };
        while !server.psql().args(["-c", "SELECT 1"]).output().unwrap().status.success() {
            thread::yield_now();
        }
        let created = server.psql().args(["-q", "-c", &format!("{CREATE}; {CREATE};")]).output();
        assert!(created.unwrap().status.success());
        Some(server)
    }

    fn psql(&self) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-A", "-t", "-U", "leasehold", "-d", "postgres", "-h"]);
        command.arg(self.directory.path());
        command
    }

    fn session(&self) -> Session {
        let mut command = self.psql();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut session = Session { child, input, output };
        session.run(&format!("PREPARE raise(text, bigint) AS {};", raise(Dialect::Postgres)));
        session
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT stops all processes of the server immediately.
        _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGQUIT);
        _ = self.child.wait();
    }
}

struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn send(&mut self, statement: &str) {
        writeln!(self.input, "{statement}\n\\echo END").unwrap();
    }

    /// Returns the output of the statement: rows, or a tag such as "UPDATE 1".
    fn response(&mut self) -> String {
        let mut response = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "psql exited: {response}");
            if line == "END\n" {
                return response.trim_end().to_owned();
            }
            response += &line;
        }
    }

    fn run(&mut self, statement: &str) -> String {
        self.send(statement);
        self.response()
    }

    /// Raises the fence. Returns false if the token was refused.
    fn raise(&mut self, lock: &str, token: i64) -> bool {
        match self.run(&format!("EXECUTE raise('{lock}', {token});")).as_str() {
            "INSERT 0 1" => true,
            "INSERT 0 0" => false,
            other => panic!("{other}"),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn statements_compare_tokens() {
    let Some(server) = Server::start() else { return };
    let mut session = server.session();
    let raised: Vec<_> = [("a", 5), ("a", 5), ("a", 4), ("b", 1), ("a", 6), ("a", 5)]
        .into_iter()
        .map(|(lock, token)| session.raise(lock, token))
        .collect();
    assert_eq!(raised, [true, true, false, true, true, false]);

    session.run("CREATE TABLE stock (id TEXT, amount BIGINT, fence BIGINT);");
    session.run("INSERT INTO stock VALUES ('nuts', 7, 0), ('figs', 7, 0);");
    let update = update(Dialect::Postgres, "stock", "amount = $1", "id = $2 OR id = 'x'", 3);
    session.run(&format!("PREPARE change(bigint, text, bigint) AS {update};"));
    let changed: Vec<_> = [(6, "nuts", 2), (5, "nuts", 1), (4, "figs", 1), (3, "nuts", 2)]
        .into_iter()
        .map(|(amount, id, token)| {
            session.run(&format!("EXECUTE change({amount}, '{id}', {token});"))
        })
        .collect();
    assert_eq!(changed, ["UPDATE 1", "UPDATE 0", "UPDATE 1", "UPDATE 1"]);
    assert_eq!(session.run("SELECT amount, fence FROM stock ORDER BY id;"), "4|1\n3|2");
}

/// A new holder waits for the transaction of the previous holder. After that, the previous
/// holder is refused.
#[test]
fn higher_token_waits_for_pending_transaction() {
    let Some(server) = Server::start() else { return };
    let (mut old, mut new) = (server.session(), server.session());
    old.run("BEGIN;");
    assert!(old.raise("a", 1));
    new.send("EXECUTE raise('a', 2);");
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock';";
    let mut observer = server.session();
    while observer.run(waits) != "1" {
        thread::yield_now();
    }
    old.run("COMMIT;");
    assert_eq!(new.response(), "INSERT 0 1");
    assert!(!old.raise("a", 1));
}

#[test]
fn lower_token_is_not_written_after_higher_token() {
    let Some(server) = Server::start() else { return };
    server.session().run("CREATE TABLE journal (number BIGSERIAL, token BIGINT);");
    let writer = |token: i64| {
        let mut session = server.session();
        let before = format!("SELECT count(*) FROM journal WHERE token = {};", token - 1);
        while token > 1 && session.run(&before).parse::<i64>().unwrap() < WRITES_BEFORE_NEXT {
            thread::yield_now();
        }
        let mut written = 0;
        while token < 8 || written < LAST_WRITES {
            session.run("BEGIN;");
            if !session.raise("default/x", token) {
                break;
            }
            session.run(&format!("INSERT INTO journal (token) VALUES ({token});"));
            assert_eq!(session.run("COMMIT;"), "COMMIT");
            written += 1;
        }
        written
    };
    let written = thread::scope(|scope| {
        let writers: Vec<_> =
            (0..16).map(|number| scope.spawn(move || writer(number / 2 + 1))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let tokens = server.session().run("SELECT token FROM journal ORDER BY number;");
    let tokens: Vec<i64> = tokens.lines().map(|token| token.parse().unwrap()).collect();
    assert_tokens_increase(&tokens, written);
}
