//! Packages of this workspace, from `cargo metadata`, so that new crates are
//! checked without a change here.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::run::Cmd;

/// Feature that puts simulated clocks, networks and broken safety rules into
/// the product's crates.
pub(crate) const SIMULATION: &str = "simulation";

/// Package of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// True if it is built with the product's feature `simulation`.
    pub(crate) is_simulation: bool,
    pub(crate) features: Vec<String>,
    pub(crate) targets: Vec<Target>,
}

/// Target of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// True if it is only built with the feature `simulation`.
    pub(crate) needs_simulation: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Library,
    Binary,
    Test,
    Other,
}

#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target_directory: PathBuf,
    packages: Vec<Package>,
}

impl Workspace {
    /// Reads the workspace from `cargo metadata`.
    pub(crate) fn load() -> Result<Self, String> {
        // The binary may be started in any directory of the workspace.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let text = Cmd::cargo("metadata")
            .args(["--format-version", "1", "--no-deps", "--locked"])
            .output(root)?;
        let metadata =
            serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
        Self::from_metadata(&metadata).ok_or("cargo metadata has an unexpected form".to_owned())
    }

    fn from_metadata(metadata: &Value) -> Option<Self> {
        let list = metadata["packages"].as_array()?;
        let simulation = simulation_packages(list);
        let packages = list
            .iter()
            .map(|package| {
                let name = package["name"].as_str()?.to_owned();
                let features = package["features"].as_object()?.keys().cloned().collect();
                let targets = package["targets"].as_array()?;
                let targets = targets.iter().map(target).collect::<Option<_>>()?;
                let is_simulation = simulation.contains(name.as_str());
                Some(Package { name, is_simulation, features, targets })
            })
            .collect::<Option<_>>()?;
        let directory = |key: &str| Some(PathBuf::from(metadata[key].as_str()?));
        Some(Self {
            root: directory("workspace_root")?,
            target_directory: directory("target_directory")?,
            packages,
        })
    }

    /// Packages that are built as they are shipped.
    pub(crate) fn product(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| !package.is_simulation)
    }

    /// Packages that are built with the feature `simulation`.
    pub(crate) fn simulation(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.is_simulation)
    }

    /// Targets of product packages that need the feature `simulation`.
    pub(crate) fn simulation_targets(&self) -> impl Iterator<Item = (&Package, &Target)> {
        self.product().flat_map(|package| {
            let targets = package.targets.iter().filter(|target| target.needs_simulation);
            targets.map(move |target| (package, target))
        })
    }

    /// Returns true if a product package has an integration test of this name.
    pub(crate) fn has_test(&self, name: &str) -> bool {
        let has = |target: &Target| target.kind == Kind::Test && target.name == name;
        self.product().any(|package| package.targets.iter().any(has))
    }
}

fn target(target: &Value) -> Option<Target> {
    let kinds = target["kind"].as_array()?;
    let is = |kind: &str| kinds.iter().any(|found| found == kind);
    let kind = match () {
        () if is("test") => Kind::Test,
        () if is("bin") => Kind::Binary,
        () if is("lib") || is("proc-macro") => Kind::Library,
        () => Kind::Other,
    };
    let required = target["required-features"].as_array();
    let needs_simulation =
        required.is_some_and(|features| features.iter().any(|feature| feature == SIMULATION));
    Some(Target { name: target["name"].as_str()?.to_owned(), kind, needs_simulation })
}

/// Names of the packages that depend on a package with the feature `simulation`,
/// or on such a package, or that set `package.metadata.leasehold.layer` to
/// `"simulation"`.
fn simulation_packages(packages: &[Value]) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for package in packages {
            let Some(name) = package["name"].as_str() else { continue };
            let depends = package["dependencies"].as_array().is_some_and(|dependencies| {
                dependencies.iter().any(|dependency| {
                    let is_local = dependency["path"].is_string();
                    let on = dependency["name"].as_str().unwrap_or_default();
                    let features = dependency["features"].as_array();
                    let with_feature =
                        features.is_some_and(|all| all.iter().any(|feature| feature == SIMULATION));
                    is_local && (with_feature || found.contains(on))
                })
            });
            if depends || package["metadata"]["leasehold"]["layer"] == SIMULATION {
                found.insert(name);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    fn dependency(name: &str, features: &[&str]) -> Value {
        json!({"name": name, "path": format!("/w/{name}"), "features": features})
    }

    /// Returns a workspace with each kind of package that the parts distinguish.
    pub(crate) fn example() -> Workspace {
        let lib = |name: &str| json!({"name": name, "kind": ["lib"]});
        let metadata = json!({
            "workspace_root": "/w",
            "target_directory": "/w/target",
            "packages": [
                {
                    "name": "leasehold",
                    "features": {"simulation": []},
                    "dependencies": [],
                    "targets": [
                        lib("leasehold"),
                        {"name": "leasehold", "kind": ["bin"]},
                        {"name": "embedded", "kind": ["test"]},
                        {"name": "answers", "kind": ["test"], "required-features": ["simulation"]},
                    ],
                },
                {
                    "name": "walks",
                    "features": {},
                    "dependencies": [dependency("worlds", &[])],
                    "targets": [lib("walks")],
                },
                {
                    "name": "worlds",
                    "features": {},
                    "dependencies": [dependency("leasehold", &["simulation"])],
                    "targets": [lib("worlds"), {"name": "leasehold-sim", "kind": ["bin"]}],
                },
                {
                    "name": "labelled",
                    "features": {},
                    "dependencies": [],
                    "metadata": {"leasehold": {"layer": "simulation"}},
                    "targets": [lib("labelled")],
                },
            ],
        });
        Workspace::from_metadata(&metadata).unwrap()
    }

    fn names<'a>(packages: impl Iterator<Item = &'a Package>) -> Vec<&'a str> {
        packages.map(|package| package.name.as_str()).collect()
    }

    #[test]
    fn simulation_is_found_through_dependencies() {
        let workspace = example();
        assert_eq!(names(workspace.product()), ["leasehold"]);
        assert_eq!(names(workspace.simulation()), ["walks", "worlds", "labelled"]);
    }

    #[test]
    fn targets_are_found_by_name_and_kind() {
        let workspace = example();
        assert!(workspace.has_test("embedded") && !workspace.has_test("leasehold"));
        let targets: Vec<_> = workspace.simulation_targets().map(|(_, it)| &*it.name).collect();
        assert_eq!(targets, ["answers"]);
    }

    #[test]
    fn this_workspace_has_both_kinds() {
        let workspace = Workspace::load().unwrap();
        assert!(names(workspace.product()).contains(&"leasehold"));
        assert!(names(workspace.simulation()).contains(&"leasehold-simulator"));
    }
}
