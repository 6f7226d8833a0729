//! A resource that refuses a holder that has been overtaken: a directory where
//! the token is a part of what is written.
//!
//! Start a daemon, then:
//!
//! ```sh
//! cargo run -p leasehold-fence --example fenced_file
//! ```
//!
//! The first worker acquires the lock, loses it to an operator, and does not
//! notice: it is "paused". The second acquires it and writes. Then the first
//! wakes up and writes with its old token, and the file refuses.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use leasehold_client::{Client, Token};

/// A file that remembers the greatest token that it has seen.
///
/// Looking at the token and writing must be one step. A database does this
/// with `UPDATE … WHERE token <= $1`, a blob with If-Match; here, the exclusive
/// use of one process stands for it.
struct FencedFile {
    path: PathBuf,
}

impl FencedFile {
    fn new(directory: &Path) -> Self {
        Self { path: directory.join("orders") }
    }

    fn write(&mut self, token: Token, text: &str) -> io::Result<()> {
        let greatest = self.greatest_token()?;
        if token < greatest {
            return Err(io::Error::other(format!("token {token} is stale: {greatest} was seen")));
        }
        // Renaming replaces token and text together.
        let new = self.path.with_extension("new");
        fs::write(&new, format!("{token}\n{text}"))?;
        fs::rename(new, &self.path)
    }

    fn greatest_token(&self) -> io::Result<Token> {
        match fs::read_to_string(&self.path) {
            Ok(stored) => {
                let token = stored.lines().next().and_then(|line| line.parse().ok());
                token.ok_or_else(|| io::Error::other("the stored token can't be read"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Token::default()),
            Err(error) => Err(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = env::var("LEASEHOLD_ENDPOINT").unwrap_or("http://127.0.0.1:7420".to_owned());
    let directory = tempfile::tempdir()?;
    let mut file = FencedFile::new(directory.path());
    // Two sessions: clones of one client would share the lock.
    let first = Client::connect(endpoint).await?;
    let second = first.new_session();

    let paused = first.lock("orders").acquire().await?;
    file.write(paused.token(), "from the first worker")?;
    println!("the first worker wrote with token {}", paused.token());

    let broken =
        first.break_lock("orders").by("example").reason("the first worker is stuck").await?;
    println!("the lock was taken from it; free within {:?}", broken.free_within);

    // It has not let go, so the second waits until its deadline has passed.
    let guard = second.lock("orders").acquire().await?;
    file.write(guard.token(), "from the second worker")?;
    println!("the second worker wrote with token {}", guard.token());

    match file.write(paused.token(), "from the past") {
        Ok(()) => println!("the file took a stale token: this must not happen"),
        Err(error) => println!("the first worker wakes up, writes, and is refused: {error}"),
    }
    guard.release().await?;
    first.close().await;
    second.close().await;
    Ok(())
}
