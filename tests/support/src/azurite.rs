//! The storage emulator, as a process that dies with the test.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    time::SystemTime,
};

/// The one account that it has.
pub const ACCOUNT: &str = "devstoreaccount1";
/// The key of that account. It is in Azurite's documentation: no secret.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Directory of the emulator's program and packages.
const DIRECTORY: &str = env!("CARGO_MANIFEST_DIR");
const REMEDY: &str = "install Node.js 20 or newer with npm (https://nodejs.org): \
                      the tests run against Azurite, Microsoft's storage emulator";

/// A running Azurite, in memory, on free ports of 127.0.0.1: its blob service,
/// and the others from when they are first asked for.
pub struct Azurite {
    child: Child,
    talk: Mutex<Talk>,
    port: u16,
    tables: OnceLock<u16>,
    queues: OnceLock<u16>,
}

/// It is told something by a line, and answers by another.
struct Talk {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talk {
    fn tell(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").unwrap();
        self.hear()
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Azurite {
    /// The one that the tests of a binary share. Let each use a container of
    /// its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Azurite> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// One of its own, for a test that stops it.
    pub fn start() -> Self {
        install();
        let mut command = Command::new("node");
        command.arg(format!("{DIRECTORY}/azurite.js"));
        command.args(["--silent", "--disableTelemetry", "--inMemoryPersistence"]);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", "0"]);
        // It would want a database.
        command.env_remove("AZURITE_DB").current_dir(std::env::temp_dir());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = begin(&mut command);
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut talk = Talk { input: child.stdin.take().unwrap(), output };
        let port = talk.hear().parse().expect("it says where it listens");
        let (tables, queues) = (OnceLock::new(), OnceLock::new());
        Self { child, talk: Mutex::new(talk), port, tables, queues }
    }

    /// The port of the table service.
    pub fn table_port(&self) -> u16 {
        *self.tables.get_or_init(|| self.tell("table").parse().expect("it says where it listens"))
    }

    /// The port of the queue service.
    pub fn queue_port(&self) -> u16 {
        *self.queues.get_or_init(|| self.tell("queue").parse().expect("it says where it listens"))
    }

    /// Another table service, by https and with tokens. None of them is checked
    /// for who gave it. It stores nothing that the other knows.
    pub fn tables_with_tokens(&self, certificate: &Path, key: &Path) -> u16 {
        let told = self.tell(&format!("table {} {}", certificate.display(), key.display()));
        told.parse().expect("it says where it listens")
    }

    /// The account, for its tables, through a port: the service's own, or that
    /// of a proxy.
    pub fn tables_via(port: u16) -> String {
        let url = blob_url(port);
        format!("AccountName={ACCOUNT};AccountKey={KEY};TableEndpoint={url};")
    }

    /// The account, for its queues, through a port.
    pub fn queues_via(port: u16) -> String {
        let url = blob_url(port);
        format!("AccountName={ACCOUNT};AccountKey={KEY};QueueEndpoint={url};")
    }

    /// Ends all connections and refuses others from now on. What is stored
    /// stays, and leases run out meanwhile.
    pub fn stop(&mut self) {
        assert_eq!(self.tell("stop"), "stopped");
    }

    /// Ends what [`Self::stop`] began, on the same port.
    pub fn restart(&mut self) {
        assert_eq!(self.tell("start"), "started");
    }

    fn tell(&self, what: &str) -> String {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner).tell(what)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The account's address for blobs.
    pub fn blob_url(&self) -> String {
        blob_url(self.port)
    }

    pub fn connection_string(&self) -> String {
        self.connection_string_via(self.port)
    }

    /// The same through another port, where a proxy listens.
    pub fn connection_string_via(&self, port: u16) -> String {
        let url = blob_url(port);
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url};"
        )
    }
}

/// The account's address for blobs through a port.
pub fn blob_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/{ACCOUNT}")
}

impl Drop for Azurite {
    fn drop(&mut self) {
        // Nothing that it holds outlives it anyway.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sees to it that the packages of the lock file are there.
fn install() {
    let wanted = Path::new(DIRECTORY).join("package-lock.json");
    // Others may want to install at the same time, in this process or another.
    let one_at_a_time = File::open(&wanted).unwrap();
    one_at_a_time.lock().unwrap();
    // npm writes this one last.
    let installed = Path::new(DIRECTORY).join("node_modules/.package-lock.json");
    if changed(&installed).is_some_and(|installed| Some(installed) >= changed(&wanted)) {
        return;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--engine-strict"]);
    npm.current_dir(DIRECTORY).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = begin(&mut npm).wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "`npm ci` in tests/support/ failed; {REMEDY}, and let npm reach its registry\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|file| file.modified()).ok()
}

fn begin(command: &mut Command) -> Child {
    command.spawn().unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("{:?} is not there: {REMEDY}", command.get_program()),
        _ => panic!("{:?} can't be started: {error}; {REMEDY}", command.get_program()),
    })
}
