//! Feeds decoders with what nobody would send on purpose.
//!
//! Each target is a test next to the decoder that it is about, and runs with
//! `cargo test`: first on every file of `tests/corpus/<target>/`, then on
//! changed copies of them until its time is over. An input after which the
//! target says something new joins those that are changed further. So inputs
//! that get further into a decoder lead to others that get further still.
//!
//! | variable | meaning |
//! |---|---|
//! | `FUZZ_SECONDS` | how long each target runs; 1 if not set, 0 for the corpus alone |
//! | `FUZZ_SEED` | repeats a run; drawn anew if not set, and told with a failure |
//! | `FUZZ_KEEP` | a directory that gets the inputs that led to something new |
//!
//! A target fails if it panics, if a task panics that it started, or if it does
//! not come back. An input that fails is written to a file and named in the output. Put it
//! into the target's corpus: then it is tried in each run from there on.
//!
//! Why a loop of our own: it must run on stable Rust within `cargo test`.
//! libFuzzer and AFL need a build of their own with instrumentation. Without
//! it, bolero draws bytes at random and does not change the corpus; of such
//! bytes hardly any are a nested message or a configuration. proptest keeps
//! seeds, not inputs, and they stand for something else after each change of a
//! strategy. What a target says about an input takes the place of coverage,
//! and knows more about what matters: a new kind of answer, not a new branch.
#![allow(clippy::panic, clippy::print_stderr, reason = "it is for tests, which fail by panicking")]

mod corpus;
mod mutate;
mod pool;
mod rng;
mod watchdog;
pub mod wire;

use std::time::{Duration, Instant, SystemTime};

use pool::Pool;
use rng::Rng;
use watchdog::Watchdog;

/// One decoder, or several that belong together.
pub struct Fuzz {
    target: &'static str,
    words: &'static [&'static str],
    seeds: Vec<Vec<u8>>,
    longest: usize,
    nested: bool,
}

impl Fuzz {
    /// A target, which is also the name of its corpus.
    #[must_use]
    pub const fn new(target: &'static str) -> Self {
        Self { target, words: &[], seeds: Vec::new(), longest: 4096, nested: false }
    }

    /// What is worth putting into inputs.
    #[must_use]
    pub const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Inputs to begin with, beside those of the corpus.
    #[must_use]
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// The longest input that is made up, in bytes.
    #[must_use]
    pub const fn longest(mut self, bytes: usize) -> Self {
        self.longest = bytes;
        self
    }

    /// Inputs are protobuf: most changes keep the lengths of what surrounds
    /// them right.
    #[must_use]
    pub const fn nested(mut self) -> Self {
        self.nested = true;
        self
    }

    /// Runs the target until its time is over. It panics if something is wrong;
    /// else it says in a few words what became of the input.
    pub fn run<T: AsRef<str>>(self, mut target: impl FnMut(&[u8]) -> T) {
        let seed = seed();
        let watchdog = Watchdog::start(self.target, seed);
        let mut pool = Pool::default();
        let mut executed = 0_u64;
        let mut slowest = Duration::ZERO;
        let mut execute = |input: &[u8], pool: &mut Pool| {
            watchdog.begins(input);
            executed += 1;
            let begin = now();
            let said = target(input);
            slowest = slowest.max(now() - begin);
            watchdog.ends();
            pool.learn(input, said.as_ref())
        };
        let kept = corpus::read(self.target);
        assert!(!kept.is_empty(), "there is no corpus for {}", self.target);
        for input in kept.iter().chain(&self.seeds) {
            execute(input, &mut pool);
        }
        let mut rng = Rng::new(seed);
        let end = now() + length();
        while now() < end {
            for _ in 0..16 {
                let mut input = pool.pick(&mut rng).to_vec();
                mutate::change(&mut input, &pool, &self, &mut rng);
                if execute(&input, &mut pool) {
                    corpus::keep(self.target, &input);
                }
            }
        }
        eprintln!(
            "fuzz {}: {executed} executions ({} kept inputs), {} kinds of outcome, \
             the slowest took {slowest:.1?}, seed {seed}",
            self.target,
            kept.len(),
            pool.kinds(),
        );
    }
}

fn seed() -> u64 {
    match std::env::var("FUZZ_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("FUZZ_SEED must be a number")),
        Err(_) => drawn(),
    }
}

#[allow(clippy::disallowed_methods, reason = "another run is to try other inputs")]
fn drawn() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64)
}

fn length() -> Duration {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(Ok(1.0), |text| text.parse());
    let length = seconds.ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    length.unwrap_or_else(|| panic!("FUZZ_SECONDS must be a number of seconds"))
}

#[allow(clippy::disallowed_methods, reason = "the length of the run is real time")]
fn now() -> Instant {
    Instant::now()
}
