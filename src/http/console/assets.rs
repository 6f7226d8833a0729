//! Static files of the console, embedded in the program, and the headers of all its
//! answers.

use axum::{
    http::{
        HeaderValue,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
};

const HTML: &str = "text/html; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Headers that restrict what a browser does with an answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         object-src 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("x-frame-options"), "DENY"),
];

/// Names, types and contents of the files below `/console/`.
const FILES: &[(&str, &str, &str)] = &[
    ("style.css", CSS, include_str!("static/style.css")),
    ("icon.svg", SVG, include_str!("static/icon.svg")),
    ("empty.svg", SVG, include_str!("static/empty.svg")),
    ("app.js", JAVASCRIPT, include_str!("static/app.js")),
    ("advice.js", JAVASCRIPT, include_str!("static/advice.js")),
    ("charts.js", JAVASCRIPT, include_str!("static/charts.js")),
    ("daemon.js", JAVASCRIPT, include_str!("static/daemon.js")),
    ("dom.js", JAVASCRIPT, include_str!("static/dom.js")),
    ("format.js", JAVASCRIPT, include_str!("static/format.js")),
    ("lock.js", JAVASCRIPT, include_str!("static/lock.js")),
    ("locks.js", JAVASCRIPT, include_str!("static/locks.js")),
    ("parts.js", JAVASCRIPT, include_str!("static/parts.js")),
    ("timeline.js", JAVASCRIPT, include_str!("static/timeline.js")),
];

/// Returns the page.
pub(super) fn page() -> Response {
    file(HTML, include_str!("static/index.html"))
}

/// Returns the file with this name.
pub(super) fn find(name: &str) -> Option<Response> {
    let (_, kind, content) = FILES.iter().find(|(known, ..)| *known == name)?;
    Some(file(kind, content))
}

fn file(kind: &'static str, content: &'static str) -> Response {
    // The files of another version must not be used with this one.
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], content).into_response()
}

/// Adds the restricting headers.
pub(super) fn restrict(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_in_the_directory_is_embedded() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/console/static");
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "index.html")
            .collect();
        names.sort_unstable();
        let mut embedded: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        embedded.sort_unstable();
        assert_eq!(names, embedded);
    }

    #[test]
    fn files_refer_only_to_embedded_files() {
        let page = include_str!("static/index.html");
        let contents = FILES.iter().map(|(_, _, content)| *content).chain([page]);
        for content in contents {
            for (at, _) in content.match_indices("/console/") {
                let name = &content[at + "/console/".len()..];
                let end = name.find(['"', '`', '?', ')']).unwrap_or(name.len());
                let name = &name[..end];
                let is_known = FILES.iter().any(|(known, ..)| *known == name);
                assert!(is_known || name.starts_with("api/"), "{name}");
            }
            let urls = content.matches("://").count();
            let namespaces = content.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(urls, namespaces, "no address of another host");
        }
    }
}
