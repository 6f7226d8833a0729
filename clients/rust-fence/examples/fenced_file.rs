//! A file that refuses a stale holder, because it stores the highest token together with
//! its content.
//!
//! Start a daemon, then:
//!
//! ```sh
//! cargo run -p leasehold-fence --example fenced_file
//! ```
//!
//! The first worker acquires the lock and is "paused": an operator breaks the lock, and
//! the worker does not notice. The second worker acquires the lock and writes. Then the
//! first worker resumes and writes with its old token, and the file refuses the write.

#![allow(clippy::print_stdout, reason = "an example prints its progress")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use leasehold_client::{Client, Token};

/// A file with the highest token seen.
///
/// The comparison of the token and the write must be one step. A database does this
/// with `UPDATE … WHERE token <= $1`, a blob with `If-Match`. Here, only one process
/// uses the file.
struct FencedFile {
    path: PathBuf,
}

impl FencedFile {
    fn new(directory: &Path) -> Self {
        Self { path: directory.join("orders") }
    }

    fn write(&mut self, token: Token, text: &str) -> io::Result<()> {
        let highest = self.highest_token()?;
        if token < highest {
            return Err(io::Error::other(format!("token {token} is stale: {highest} was seen")));
        }
        // The rename replaces token and text in one step.
        let new = self.path.with_extension("new");
        fs::write(&new, format!("{token}\n{text}"))?;
        fs::rename(new, &self.path)
    }

    fn highest_token(&self) -> io::Result<Token> {
        match fs::read_to_string(&self.path) {
            Ok(stored) => {
                let token = stored.lines().next().and_then(|line| line.parse().ok());
                token.ok_or_else(|| io::Error::other("the stored token is invalid"))
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
    // Each worker has a session of its own, as two programs would.
    let first = Client::connect(endpoint).await?;
    let second = first.new_session();

    let paused = first.lock("orders").acquire().await?;
    file.write(paused.token(), "from the first worker")?;
    println!("the first worker wrote with token {}", paused.token());

    let broken =
        first.break_lock("orders").by("example").reason("the first worker is stuck").await?;
    println!("an operator broke the lock; it is free within {:?}", broken.free_within);

    // The first worker does not release the lock, so the second one waits for its
    // deadline.
    let guard = second.lock("orders").acquire().await?;
    file.write(guard.token(), "from the second worker")?;
    println!("the second worker wrote with token {}", guard.token());

    match file.write(paused.token(), "late, from the first worker") {
        Ok(()) => println!("BUG: the file accepted a stale token"),
        Err(error) => println!("the first worker resumes, writes, and is refused: {error}"),
    }
    guard.release().await?;
    first.close().await;
    second.close().await;
    Ok(())
}
