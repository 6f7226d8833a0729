//! Lock names, namespaces and holders.

use leasehold_fuzz::Fuzz;
use leasehold_types::{
    Holder, LockName, Namespace,
    holder::MAX_HOLDER_BYTES,
    name::{InvalidName, MAX_NAME_BYTES},
};

/// Checks an error: it names the field, is short and has no control characters.
fn outcome(invalid: &InvalidName) -> String {
    let text = invalid.to_string();
    assert!(!invalid.field.is_empty() && text.len() < 1000, "{text}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
    text
}

fn is_clean(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

#[test]
fn accepted_names_are_valid_fuzzed() {
    Fuzz::new("name").max_bytes(600).run(|input| {
        let text = String::from_utf8_lossy(input);
        let (namespace, name) = text.split_once('\n').unwrap_or(("", &text));
        if let Ok(namespace) = Namespace::parse(namespace) {
            let label = namespace.as_str();
            assert!((1..=63).contains(&label.len()), "{label}");
            assert!(!label.starts_with('-') && !label.ends_with('-'), "{label}");
            assert!(label.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-')), "{label}");
        }
        match LockName::parse(namespace, name) {
            Ok(lock) => {
                assert!((1..=MAX_NAME_BYTES).contains(&name.len()) && is_clean(name), "{name:?}");
                assert_eq!(lock.name(), name);
                let expected = if namespace.is_empty() { "default" } else { namespace };
                assert_eq!(lock.namespace(), expected);
                assert_eq!(LockName::parse(lock.namespace(), lock.name()).as_ref(), Ok(&lock));
                assert!(is_clean(&lock.to_string()), "{lock}");
                format!("{} {}", namespace.is_empty(), name.contains('/'))
            }
            Err(invalid) => outcome(&invalid),
        }
    });
}

#[test]
fn accepted_holders_are_valid_fuzzed() {
    Fuzz::new("holder").max_bytes(2 * MAX_HOLDER_BYTES).run(|input| {
        let text = String::from_utf8_lossy(input);
        let mut lines = text.split('\n');
        let mut next = || lines.next().unwrap_or_default();
        let (client, host, pid, pod) = (next(), next(), next().parse().unwrap_or(0), next());
        let labels: Vec<(String, String)> = lines
            .map(|line| line.split_once('=').unwrap_or((line, "")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        match Holder::try_new(client, host, pid, pod, labels) {
            Ok(holder) => {
                let labels: Vec<_> = holder.labels().collect();
                let labels: Vec<&str> = labels.iter().flat_map(|(k, v)| [*k, *v]).collect();
                let texts = [vec![holder.client(), holder.host(), holder.pod()], labels].concat();
                assert!(texts.iter().map(|text| text.len()).sum::<usize>() <= MAX_HOLDER_BYTES);
                assert!(texts.iter().all(|text| is_clean(text)) && is_clean(&holder.to_string()));
                format!("{} {} {}", pid > 0, pod.is_empty(), texts.len().min(9))
            }
            Err(invalid) => outcome(&invalid),
        }
    });
}
