//! Parts of `cargo xtask test`, and their execution in order.

use std::{fmt::Write, path::Path, time::Instant};

use crate::{
    instructions,
    options::Options,
    report::{Entry, Outcome, Report},
    run::{Cmd, Tally},
    tool::{Tool, Unavailable},
    words,
    workspace::{Package, SIMULATION, Workspace},
};

/// Level of a run, which selects its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Quick,
    Ci,
    Full,
}

impl Level {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Quick, "quick"), (Self::Ci, "ci"), (Self::Full, "full")];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
    }
}

/// Part of a run. It passes or fails as a whole.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    about: &'static str,
    levels: &'static [Level],
    /// Returns its steps in this workspace.
    steps: fn(&Workspace, &Options) -> Vec<Step>,
}

/// Step of a part.
#[derive(Debug)]
enum Step {
    Need(Tool),
    /// Installs a tool where that is possible. The tests skip its checks otherwise.
    Want(Tool),
    Run(Cmd),
    /// Fails if the output of the command contains the text.
    Refuse(Cmd, &'static str),
    CountInstructions,
    CountWords,
}

const ALL: &[Level] = &[Level::Quick, Level::Ci, Level::Full];
const THOROUGH: &[Level] = &[Level::Ci, Level::Full];
const LONG: &[Level] = &[Level::Full];

/// All parts: fast parts first, and parts that share compiled crates next to each
/// other. A new tool, language or environment (Kubernetes, attacks, comparisons
/// with peers, clients in other languages) gets a row here and a function below.
pub(crate) const PARTS: &[Part] = &[
    Part { name: "format", about: "rustfmt", levels: ALL, steps: format },
    Part { name: "lints", about: "clippy, warnings are errors", levels: ALL, steps: lints },
    Part { name: "docs", about: "rustdoc, warnings are errors", levels: THOROUGH, steps: docs },
    Part {
        name: "tests",
        about: "the product as it is shipped: unit, integration and doc tests",
        levels: ALL,
        steps: tests,
    },
    Part {
        name: "console",
        about: "the web console in chromium, which is installed where that is possible",
        levels: THOROUGH,
        steps: console,
    },
    Part {
        name: "shipped",
        about: "daemon, client and fences contain neither broken rules nor simulated clocks",
        levels: ALL,
        steps: shipped,
    },
    Part {
        name: "client-targets",
        about: "the client compiles for Windows and macOS",
        levels: THOROUGH,
        steps: client_targets,
    },
    Part {
        name: "dependencies",
        about: "licenses, bans and sources, if cargo-deny is installed",
        levels: THOROUGH,
        steps: dependencies,
    },
    Part {
        name: "simulation",
        about: "stored seeds, mutants by their stored seeds, whole daemons in virtual time",
        levels: THOROUGH,
        steps: simulation,
    },
    Part {
        name: "seeds",
        about: "random seeds for --seconds; 100,000 seeds in full",
        levels: THOROUGH,
        steps: seeds,
    },
    Part {
        name: "mutants",
        about: "every mutant is found by search",
        levels: LONG,
        steps: mutants,
    },
    Part {
        name: "chaos",
        about: "real processes under injected faults for 10 minutes (a minute is one of the tests)",
        levels: LONG,
        steps: chaos,
    },
    Part {
        name: "fuzz",
        about: "each fuzz target for a minute (for a second it is one of the tests)",
        levels: LONG,
        steps: fuzz,
    },
    Part {
        name: "instructions",
        about: "instructions per operation, compared with the stored counts",
        levels: THOROUGH,
        steps: |_, _| vec![Step::Need(Tool::Valgrind), Step::CountInstructions],
    },
    Part {
        name: "words",
        about: "counts of the patterns in .ci/words.txt; never fails",
        levels: ALL,
        steps: |_, _| vec![Step::CountWords],
    },
];

/// Profile of everything with the feature `simulation`.
const SIMULATION_PROFILE: [&str; 2] = ["--profile", "sim"];

/// Package that injects faults into real processes. It is a separate part.
const CHAOS: &str = "leasehold-chaos";

fn format(_: &Workspace, _: &Options) -> Vec<Step> {
    vec![
        Step::Need(Tool::Component("rustfmt", "fmt")),
        Step::Run(Cmd::cargo("fmt").args(["--all", "--check"])),
    ]
}

/// Variable that selects whether the tests in a browser are skipped or required.
const BROWSER_TESTS: &str = "BROWSER_TESTS";

/// One invocation for all packages: cargo unifies features per invocation.
fn tests(workspace: &Workspace, options: &Options) -> Vec<Step> {
    let mut test = Cmd::cargo("test").args(["--locked", "--no-fail-fast"]);
    test = test.args(select(workspace.product()));
    if options.level == Level::Quick {
        test = test.args(["--lib", "--bins"]);
        for target in ["embedded", "docs"] {
            if workspace.has_test(target) {
                test = test.args(["--test", target]);
            }
        }
    }
    // They are a separate part.
    vec![
        Step::Need(Tool::Sqlite),
        Step::Want(Tool::Promtool),
        Step::Run(test.env(BROWSER_TESTS, "skip")),
    ]
}

/// All packages are selected, so that nothing is compiled again.
fn console(workspace: &Workspace, _: &Options) -> Vec<Step> {
    let test = Cmd::cargo("test").arg("--locked").args(select(workspace.product()));
    let test = test.args(["--test", "console"]).env(BROWSER_TESTS, "require");
    vec![Step::Need(Tool::Chromium), Step::Run(test)]
}

/// Product and simulation have different features, so both are checked. The
/// second invocation also lints the product's code for simulations.
fn lints(workspace: &Workspace, options: &Options) -> Vec<Step> {
    let clippy = |packages: Vec<String>| {
        let clippy = Cmd::cargo("clippy").args(["--locked", "--all-targets"]).args(packages);
        Step::Run(clippy.args(["--", "-D", "warnings"]))
    };
    let mut steps = vec![
        Step::Need(Tool::Component("clippy", "clippy")),
        clippy(select(workspace.product()).collect()),
    ];
    if options.level != Level::Quick {
        steps.push(clippy(select(workspace.simulation()).collect()));
    }
    steps
}

fn docs(_: &Workspace, _: &Options) -> Vec<Step> {
    let doc = Cmd::cargo("doc").args(["--workspace", "--no-deps", "--locked"]);
    vec![Step::Run(doc.env("RUSTDOCFLAGS", "-D warnings"))]
}

/// The broken variants of the safety rules are compiled only with the feature
/// `simulation`, which no shipped package may enable in another one.
fn shipped(_: &Workspace, _: &Options) -> Vec<Step> {
    let refuse = |package| {
        let tree = Cmd::cargo("tree").args(["--locked", "--package", package]);
        let tree = tree.args(["--edges", "normal", "--prefix", "none", "--format", "{lib} {f}"]);
        Step::Refuse(tree, SIMULATION)
    };
    Vec::from(["leasehold", "leasehold-client", "leasehold-fence"].map(refuse))
}

/// Without the fences for Azure, whose TLS needs a C compiler for the target.
fn client_targets(_: &Workspace, _: &Options) -> Vec<Step> {
    let check = |package, features: &[&'static str], target| {
        let check = Cmd::cargo("check").args(["--locked", "--package", package]);
        Step::Run(check.args(features.iter().copied()).args(["--target", target]))
    };
    let mut steps = Vec::new();
    for target in ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"] {
        steps.extend([
            Step::Need(Tool::Target(target)),
            check("leasehold-client", &[], target),
            check("leasehold-fence", &["--features", "http"], target),
        ]);
    }
    steps
}

/// Advisories need a database from the network: run `cargo deny check` by hand.
fn dependencies(_: &Workspace, _: &Options) -> Vec<Step> {
    let deny = Cmd::cargo("deny").args(["--locked", "check", "licenses", "bans", "sources"]);
    vec![Step::Need(Tool::CargoDeny), Step::Run(deny)]
}

fn simulation(workspace: &Workspace, _: &Options) -> Vec<Step> {
    let test = || with_simulation("test").arg("--no-fail-fast");
    let mut steps = vec![Step::Run(test().args(select(workspace.simulation())))];
    for (package, target) in workspace.simulation_targets() {
        let test = test().args(["--package", &package.name, "--features", "simulation"]);
        steps.push(Step::Run(test.args(["--test", &target.name])));
    }
    steps
}

fn seeds(workspace: &Workspace, options: &Options) -> Vec<Step> {
    let arguments = match options.level {
        Level::Full => vec!["--seeds".to_owned(), "100000".to_owned()],
        _ => ["--seconds", &options.seconds.to_string(), "--seeds", "1000000"]
            .map(str::to_owned)
            .to_vec(),
    };
    simulator(workspace, arguments)
}

fn mutants(workspace: &Workspace, _: &Options) -> Vec<Step> {
    simulator(workspace, ["--mutant", "all", "--seeds", "20000"].map(str::to_owned).to_vec())
}

fn chaos(_: &Workspace, _: &Options) -> Vec<Step> {
    let daemon = Cmd::cargo("build").args(["--locked", "--release", "--package", "leasehold"]);
    let run = Cmd::cargo("run").args(["--locked", "--release", "--package", CHAOS]);
    vec![Step::Run(daemon), Step::Run(run.args(["--", "--minutes", "10", "--seed", "7"]))]
}

/// Fuzz targets are tests with `fuzz` in their names.
fn fuzz(workspace: &Workspace, _: &Options) -> Vec<Step> {
    let long = |test: Cmd| Step::Run(test.arg("fuzz").env("FUZZ_SECONDS", "60"));
    let packages = workspace.product().filter(|package| package.name != CHAOS);
    let product = Cmd::cargo("test").args(["--locked", "--no-fail-fast", "--lib", "--tests"]);
    let mut steps = vec![long(product.args(select(packages)))];
    for (package, target) in workspace.simulation_targets() {
        let test = with_simulation("test").args(["--package", &package.name]);
        steps.push(long(test.args(["--features", "simulation", "--test", &target.name])));
    }
    steps
}

/// Runs the simulator as the tests have built it. `cargo run` would select other
/// packages, hence other features, and build all dependencies again.
fn simulator(workspace: &Workspace, arguments: Vec<String>) -> Vec<Step> {
    let build = with_simulation("test").arg("--no-run").args(select(workspace.simulation()));
    let program = workspace.target_directory.join("sim").join("leasehold-sim");
    let run = Cmd::new(program.to_string_lossy()).args(arguments).env("RUST_LIB_BACKTRACE", "0");
    vec![Step::Run(build), Step::Run(run)]
}

/// Errors of the storage client would carry backtraces, which take most of the
/// time.
fn with_simulation(subcommand: &str) -> Cmd {
    Cmd::cargo(subcommand).arg("--locked").args(SIMULATION_PROFILE).env("RUST_LIB_BACKTRACE", "0")
}

fn select<'a>(packages: impl Iterator<Item = &'a Package>) -> impl Iterator<Item = String> {
    packages.flat_map(|package| ["--package".to_owned(), package.name.clone()])
}

/// Returns a table of the parts and their levels.
pub(crate) fn table() -> String {
    let mut text = String::new();
    for part in PARTS {
        let levels = Level::ALL.iter().filter(|(level, _)| part.levels.contains(level));
        let levels: Vec<&str> = levels.map(|(_, name)| *name).collect();
        _ = writeln!(text, "{:<16}{:<16}{}", part.name, levels.join(" "), part.about);
    }
    text
}

/// Runs the selected parts. Returns true if all of them passed.
#[allow(clippy::disallowed_methods, reason = "nothing but minutes depends on it")]
pub(crate) fn run(options: &Options, workspace: &Workspace) -> Result<bool, String> {
    let mut report = Report::default();
    for part in PARTS.iter().filter(|part| options.selects(part.name, part.levels)) {
        println!("\n=== {}: {}", part.name, part.about);
        let start = Instant::now();
        let (outcome, tally) = execute(&(part.steps)(workspace, options), &workspace.root, || {
            instructions::run(false, workspace)
        });
        if let Outcome::Failed(why) = &outcome {
            println!("=== {} FAILED: {why}", part.name);
        }
        report.0.push(Entry { name: part.name, outcome, took: start.elapsed(), tally });
    }
    println!("\n{report}");
    Ok(report.has_passed())
}

/// Runs the steps of a part. A failed command does not stop the next one, but a
/// missing tool does.
fn execute(
    steps: &[Step],
    directory: &Path,
    count_instructions: impl Fn() -> Result<bool, String>,
) -> (Outcome, Tally) {
    let mut tally = Tally::default();
    let mut failed = None;
    for step in steps {
        let why = match step {
            Step::Need(tool) => match tool.ensure() {
                Ok(()) => continue,
                Err(Unavailable::Optional(why)) => {
                    return (Outcome::Skipped(why), Tally::ONE_SKIPPED);
                }
                Err(Unavailable::Missing(why)) => {
                    tally += Tally::ONE_FAILED;
                    return (Outcome::Failed(why), tally);
                }
            },
            Step::Want(tool) => {
                if let Err(Unavailable::Optional(why) | Unavailable::Missing(why)) = tool.ensure() {
                    println!("warning: {why}");
                }
                continue;
            }
            Step::Run(command) => match command.run(directory) {
                Ok(found) => {
                    tally += found;
                    continue;
                }
                Err(failure) => {
                    tally += failure.tally;
                    // It failed for another reason than a test.
                    if failure.tally.failed == 0 {
                        tally += Tally::ONE_FAILED;
                    }
                    failure.why
                }
            },
            Step::Refuse(command, text) => match command.output(directory) {
                Ok(output) if !output.contains(text) => {
                    tally += Tally::ONE_PASSED;
                    continue;
                }
                Ok(_) => {
                    tally += Tally::ONE_FAILED;
                    format!("the output of `{command}` contains {text}")
                }
                Err(why) => {
                    tally += Tally::ONE_FAILED;
                    why
                }
            },
            Step::CountWords => {
                words::run(directory);
                continue;
            }
            Step::CountInstructions => match count_instructions() {
                Ok(true) => continue,
                Ok(false) => {
                    tally += Tally::ONE_FAILED;
                    "an operation needs more instructions".to_owned()
                }
                Err(why) => {
                    tally += Tally::ONE_FAILED;
                    why
                }
            },
        };
        failed.get_or_insert(why);
    }
    match failed {
        Some(why) => (Outcome::Failed(why), tally),
        None if tally == Tally::default() => (Outcome::Passed, Tally::ONE_PASSED),
        None => (Outcome::Passed, tally),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::example;

    fn options(level: Level) -> Options {
        Options { level, only: vec![], skip: vec![], seconds: 9 }
    }

    fn commands(name: &str, level: Level) -> Vec<String> {
        let part = PARTS.iter().find(|part| part.name == name).unwrap();
        let steps = (part.steps)(&example(), &options(level));
        let command = |step: &Step| match step {
            Step::Run(command) => Some(command.to_string()),
            _ => None,
        };
        steps.iter().filter_map(command).collect()
    }

    #[test]
    fn product_is_tested_without_simulation() {
        let skip = "BROWSER_TESTS=skip cargo test --locked --no-fail-fast";
        assert_eq!(commands("tests", Level::Ci), [format!("{skip} --package leasehold")]);
        assert_eq!(
            commands("tests", Level::Quick),
            [format!("{skip} --package leasehold --lib --bins --test embedded")]
        );
    }

    #[test]
    fn simulation_is_tested_in_sim_profile() {
        let prefix = "RUST_LIB_BACKTRACE=0 cargo test --locked --profile sim";
        assert_eq!(
            commands("simulation", Level::Ci),
            [
                format!(
                    "{prefix} --no-fail-fast --package walks --package worlds --package labelled"
                ),
                format!(
                    "{prefix} --no-fail-fast --package leasehold --features simulation --test answers"
                ),
            ]
        );
    }

    #[test]
    fn long_runs_belong_to_full() {
        let build = "RUST_LIB_BACKTRACE=0 cargo test --locked --profile sim --no-run \
                     --package walks --package worlds --package labelled";
        let simulator = "RUST_LIB_BACKTRACE=0 /w/target/sim/leasehold-sim";
        assert_eq!(
            commands("seeds", Level::Ci),
            [build.to_owned(), format!("{simulator} --seconds 9 --seeds 1000000")]
        );
        assert_eq!(
            commands("seeds", Level::Full),
            [build.to_owned(), format!("{simulator} --seeds 100000")]
        );
        let long = ["mutants", "chaos", "fuzz"];
        for part in PARTS {
            let is_long = !options(Level::Ci).selects(part.name, part.levels);
            assert_eq!(is_long, long.contains(&part.name), "{}", part.name);
            assert!(options(Level::Full).selects(part.name, part.levels), "{}", part.name);
        }
    }

    fn sh(script: &str) -> Step {
        Step::Run(Cmd::new("sh").args(["-c", script]))
    }

    fn executed(steps: &[Step]) -> (Outcome, Tally) {
        execute(steps, Path::new("."), || Ok(false))
    }

    #[test]
    fn failed_step_does_not_stop_next_step() {
        let (outcome, tally) =
            executed(&[sh("exit 3"), sh("echo 'test result: ok. 5 passed; 0 failed'")]);
        assert!(matches!(outcome, Outcome::Failed(why) if why.contains("exit 3")));
        assert_eq!(tally, Tally { passed: 5, failed: 1, skipped: 0 });
    }

    #[test]
    fn refused_output_fails() {
        let refuse = |text| Step::Refuse(Cmd::new("echo").arg("a \"b\""), text);
        assert_eq!(executed(&[refuse("c")]), (Outcome::Passed, Tally::ONE_PASSED));
        let (outcome, tally) = executed(&[refuse("\"b\""), sh("true")]);
        assert!(matches!(outcome, Outcome::Failed(why) if why.contains("contains")));
        assert_eq!(tally, Tally::ONE_FAILED);
    }

    #[test]
    fn part_without_tests_counts_as_one() {
        assert_eq!(executed(&[sh("true")]), (Outcome::Passed, Tally::ONE_PASSED));
        let (outcome, tally) = executed(&[Step::CountInstructions]);
        assert!(matches!(outcome, Outcome::Failed(_)));
        assert_eq!(tally, Tally::ONE_FAILED);
    }

    #[test]
    fn table_lists_every_part() {
        let table = table();
        assert_eq!(table.lines().count(), PARTS.len());
        assert!(table.contains("format          quick ci full   rustfmt"), "{table}");
        assert!(table.contains("mutants         full            every"), "{table}");
    }
}
