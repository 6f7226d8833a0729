//! Relative links lead to files and anchors that exist.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use crate::markdown::{anchors, links, pages_in, read, repository};

/// Pages outside of `docs` and `clients`.
const PAGES: [&str; 5] =
    ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md"];

/// Anchors of the files that links can lead to; none for files other than pages.
type Files = BTreeMap<String, Vec<String>>;

/// Returns the path of a link's target, relative to the repository. `None` if it is
/// outside.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut path = PathBuf::new();
    let directory = Path::new(page).parent().unwrap();
    let target = if target.is_empty() { PathBuf::from(page) } else { directory.join(target) };
    for component in target.components() {
        match component {
            Component::ParentDir if !path.pop() => return None,
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
            Component::ParentDir | Component::CurDir => {}
        }
    }
    Some(path.to_str().unwrap().to_owned())
}

/// Returns the problem of a link, if there is one.
fn problem(page: &str, link: &str, find: &dyn Fn(&str) -> Option<Vec<String>>) -> Option<String> {
    if ["https:", "http:", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (target, anchor) = link.split_once('#').map_or((link, None), |(path, id)| (path, Some(id)));
    let Some(path) = resolve(page, target) else {
        return Some(format!("{link} leads out of the repository"));
    };
    match (find(&path), anchor) {
        (None, _) => Some(format!("{link}: {path} does not exist")),
        (Some(anchors), Some(anchor)) if !anchors.iter().any(|known| known == anchor) => {
            Some(format!("{link}: {path} has no heading or anchor {anchor:?}"))
        }
        _ => None,
    }
}

/// Finds a file or directory of the repository, with its anchors.
fn find(path: &str) -> Option<Vec<String>> {
    let file = repository().join(path);
    if !file.exists() {
        return None;
    }
    let is_page = file.is_file() && path.ends_with(".md");
    Some(if is_page { anchors(&read(path)).into_iter().collect() } else { Vec::new() })
}

#[test]
fn relative_links_have_targets() {
    let mut pages: Vec<String> = PAGES.map(str::to_owned).to_vec();
    pages.extend(pages_in("docs"));
    pages.extend(pages_in("clients"));
    let mut problems = Vec::new();
    for page in pages {
        if !repository().join(&page).exists() {
            problems.push(format!("{page} does not exist"));
            continue;
        }
        for (line, link) in links(&read(&page)) {
            let problem = problem(&page, &link, &find);
            problems.extend(problem.map(|problem| format!("{page}:{line}: {problem}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn broken_links_are_found() {
    let files: Files = [("docs/a.md", vec!["b"]), ("src/c.rs", vec![])]
        .into_iter()
        .map(|(path, anchors)| (path.to_owned(), anchors.into_iter().map(str::to_owned).collect()))
        .collect();
    let find = |path: &str| files.get(path).cloned();
    for good in ["a.md", "a.md#b", "#b", "../docs/./a.md", "../src/c.rs", "https://example.com/#x"]
    {
        assert_eq!(problem("docs/a.md", good, &find), None, "{good}");
    }
    for broken in ["d.md", "a.md#d", "#d", "../src/c.rs#L1", "src/c.rs", "../../a.md", "/docs/a.md"]
    {
        assert!(problem("docs/a.md", broken, &find).is_some(), "{broken}");
    }
}
