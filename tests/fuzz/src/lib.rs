//! Fuzzes decoders with malformed input.
//!
//! Each target is a test next to its decoder, and runs with `cargo test`: first
//! on every file of `tests/corpus/<target>/`, then on mutated copies until its
//! time has elapsed. The target returns a short description of the outcome. An
//! input with a new description is added to the pool of inputs to mutate. In
//! this way, inputs reach further and further into a decoder.
//!
//! | variable | meaning |
//! |---|---|
//! | `FUZZ_SECONDS` | duration of each target; default 1, 0 for the corpus alone |
//! | `FUZZ_SEED` | seed of a run; random by default, and printed with a failure |
//! | `FUZZ_KEEP` | directory for inputs with a new kind of outcome |
//!
//! A target fails if it panics, if a task that it started panics, or if it does
//! not return. A failing input is written to a file that is named in the
//! output. Add it to the target's corpus, so that every run tries it from then
//! on.
//!
//! The loop is our own because it must run on stable Rust within `cargo test`.
//! libFuzzer and AFL need an instrumented build. Without one, bolero draws
//! random bytes and does not mutate the corpus; random bytes are hardly ever a
//! nested message or a configuration. proptest keeps seeds instead of inputs,
//! and their meaning changes with each change of a strategy. The description of
//! the outcome replaces coverage, and is closer to what matters: a new kind of
//! answer instead of a new branch.
#![allow(clippy::panic, clippy::print_stderr, reason = "tests fail by panicking")]

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

/// Fuzz target: one decoder, or several related ones.
pub struct Fuzz {
    target: &'static str,
    words: &'static [&'static str],
    seeds: Vec<Vec<u8>>,
    max_bytes: usize,
    nested: bool,
}

impl Fuzz {
    /// Creates a target; its name is also that of its corpus.
    #[must_use]
    pub const fn new(target: &'static str) -> Self {
        Self { target, words: &[], seeds: Vec::new(), max_bytes: 4096, nested: false }
    }

    /// Sets words to insert into inputs.
    #[must_use]
    pub const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Adds initial inputs to those of the corpus.
    #[must_use]
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Sets the maximum length of a generated input, in bytes.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Declares that inputs are protobuf: most mutations keep the lengths of
    /// enclosing messages correct.
    #[must_use]
    pub const fn nested(mut self) -> Self {
        self.nested = true;
        self
    }

    /// Runs the target until its time has elapsed. The target panics on a
    /// failure; otherwise it returns a short description of the outcome.
    pub fn run<T: AsRef<str>>(self, mut target: impl FnMut(&[u8]) -> T) {
        let seed = seed();
        let watchdog = Watchdog::start(self.target, seed);
        let mut pool = Pool::default();
        let mut executed = 0_u64;
        let mut slowest = Duration::ZERO;
        let mut execute = |input: &[u8], pool: &mut Pool| {
            watchdog.begin(input);
            executed += 1;
            let begin = now();
            let outcome = target(input);
            slowest = slowest.max(now() - begin);
            watchdog.end();
            pool.learn(input, outcome.as_ref())
        };
        let kept = corpus::read(self.target);
        assert!(!kept.is_empty(), "no corpus for {}", self.target);
        for input in kept.iter().chain(&self.seeds) {
            execute(input, &mut pool);
        }
        let mut rng = Rng::new(seed);
        let end = now() + duration();
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
        Err(_) => random_seed(),
    }
}

#[allow(clippy::disallowed_methods, reason = "each run should try different inputs")]
fn random_seed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64)
}

fn duration() -> Duration {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(Ok(1.0), |text| text.parse());
    let duration = seconds.ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    duration.unwrap_or_else(|| panic!("FUZZ_SECONDS must be a number of seconds"))
}

#[allow(clippy::disallowed_methods, reason = "the run is limited in real time")]
fn now() -> Instant {
    Instant::now()
}
