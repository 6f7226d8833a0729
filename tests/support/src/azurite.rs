//! Azurite, the storage emulator, as a process that ends with the test.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use crate::npm;

/// Azurite's only account.
pub const ACCOUNT: &str = "devstoreaccount1";
/// Key of the account. Azurite's documentation publishes it; it is no secret.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Directory of the emulator's program and packages.
const DIRECTORY: &str = env!("CARGO_MANIFEST_DIR");
const REMEDY: &str = "install Node.js 20 or newer with npm (https://nodejs.org): \
                      the tests run against Azurite, Microsoft's storage emulator";

/// A running Azurite, in memory, on free ports of 127.0.0.1. The table and
/// queue services start on first use.
pub struct Azurite {
    child: Child,
    console: Mutex<Console>,
    port: u16,
    tables: OnceLock<u16>,
    queues: OnceLock<u16>,
}

/// Commands to the emulator and its replies, one line each.
struct Console {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Console {
    fn run(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        self.read_line()
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Azurite {
    /// Instance that the tests of a binary share. Each test uses its own
    /// container.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Azurite> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A separate instance, for a test that stops it.
    pub fn start() -> Self {
        npm::install(Path::new(DIRECTORY), REMEDY);
        let mut command = Command::new("node");
        command.arg(format!("{DIRECTORY}/azurite.js"));
        command.args(["--silent", "--disableTelemetry", "--inMemoryPersistence"]);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", "0"]);
        // With this variable set, Azurite connects to a database.
        command.env_remove("AZURITE_DB").current_dir(std::env::temp_dir());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = npm::spawn(&mut command, REMEDY);
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut console = Console { input: child.stdin.take().unwrap(), output };
        let port = console.read_line().parse().expect("a port number");
        let (tables, queues) = (OnceLock::new(), OnceLock::new());
        Self { child, console: Mutex::new(console), port, tables, queues }
    }

    /// Port of the table service.
    pub fn table_port(&self) -> u16 {
        *self.tables.get_or_init(|| self.run("table").parse().expect("a port number"))
    }

    /// Port of the queue service.
    pub fn queue_port(&self) -> u16 {
        *self.queues.get_or_init(|| self.run("queue").parse().expect("a port number"))
    }

    /// Starts a second table service, over HTTPS and with access tokens, and
    /// returns its port. It does not verify their signatures. It shares no data
    /// with the first table service.
    pub fn start_https_tables(&self, certificate: &Path, key: &Path) -> u16 {
        let reply = self.run(&format!("table {} {}", certificate.display(), key.display()));
        reply.parse().expect("a port number")
    }

    /// Connection string for tables through a port: that of the service or of a
    /// proxy.
    pub fn table_connection_string(port: u16) -> String {
        let url = blob_url(port);
        format!("AccountName={ACCOUNT};AccountKey={KEY};TableEndpoint={url};")
    }

    /// Connection string for queues through a port.
    pub fn queue_connection_string(port: u16) -> String {
        let url = blob_url(port);
        format!("AccountName={ACCOUNT};AccountKey={KEY};QueueEndpoint={url};")
    }

    /// Closes all connections and refuses new ones. Data is kept, and leases
    /// continue to expire.
    pub fn stop(&mut self) {
        assert_eq!(self.run("stop"), "stopped");
    }

    /// Accepts connections again after [`Self::stop`], on the same port.
    pub fn restart(&mut self) {
        assert_eq!(self.run("start"), "started");
    }

    fn run(&self, command: &str) -> String {
        self.console.lock().unwrap_or_else(PoisonError::into_inner).run(command)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// URL of the account's blob endpoint.
    pub fn blob_url(&self) -> String {
        blob_url(self.port)
    }

    pub fn connection_string(&self) -> String {
        self.connection_string_via(self.port)
    }

    /// Connection string through another port, that of a proxy.
    pub fn connection_string_via(&self, port: u16) -> String {
        let url = blob_url(port);
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url};"
        )
    }
}

/// URL of the account through a port.
pub fn blob_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/{ACCOUNT}")
}

impl Drop for Azurite {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
