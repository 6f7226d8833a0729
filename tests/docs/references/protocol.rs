//! `docs/reference/protocol.md`, from the comments of the `.proto` files.

use std::fmt::Write;

use protox::prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
    ServiceDescriptor,
};

use super::{cell, compare, head};

const PAGE: &str = "docs/reference/protocol.md";

/// Files of the protocol, in the order of the page.
const FILES: [&str; 4] = ["session", "lock", "election", "diagnostics"];

const READER: &str = "\
For authors of clients in languages without a client library.

Every client uses this protocol, package `leasehold.v1`, over gRPC. The files are in
[proto/leasehold/v1](../../proto/leasehold/v1). A client that holds locks works as follows:

1. Call [SessionService.Attach](#sessionserviceattach) and send [`open`](#open). Remember the time of
   each sending; an `open` is keep-alive number 0.
2. After [`opened`](#opened), send a [`keep_alive`](#keepalive) every `keep_alive_interval_ms`, with
   increasing numbers.
3. Send an [`acquire`](#acquire) per lock. [`granted`](#granted) has the token, a handle, and a
   validity. The grant's deadline is the time at which you sent the keep-alive that the message
   names, plus `valid_for_ms`.
4. Each [`kept_alive`](#keptalive) extends the deadlines in the same way. If none arrives, stop the
   protected work before the deadline.
5. Pass the token with each write to the protected resource.
6. Send a [`release`](#release) with the handle when the work is done, and after [`lost`](#lost) when
   the work has stopped.
7. If the stream ends, the table of [SessionService.Attach](#sessionserviceattach) has the next step.
   [`resume`](#resume) continues the session with its grants on a new stream.

Measure times with a clock that does not stop while the machine sleeps, for example
`CLOCK_BOOTTIME` on Linux. Calls for inspection and operators need no session.
";

/// Comment of the element at a path of a file.
///
/// # Panics
/// If it has none.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let info = file.file_descriptor_proto().source_code_info.as_ref().unwrap();
    let location = info.location.iter().find(|location| location.path == path);
    let text = location.and_then(|location| location.leading_comments.as_deref());
    let text = unindented(text.unwrap_or_default());
    assert!(!text.is_empty(), "{}: the element at {path:?} has no comment", file.name());
    text
}

/// Comment before the `syntax` line of a file.
fn file_comment(file: &FileDescriptor) -> String {
    /// Number of the field `syntax` in `FileDescriptorProto`.
    const SYNTAX: i32 = 12;
    comment(file, &[SYNTAX])
}

/// Removes the space between `//` and the text of each line.
fn unindented(comment: &str) -> String {
    let lines = comment.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn type_of(field: &FieldDescriptor) -> String {
    let name = |kind: Kind| match kind {
        Kind::Message(message) => linked(message.name()),
        Kind::Enum(kind) => linked(kind.name()),
        kind => format!("`{kind:?}`"),
    };
    if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        return format!("map of {} to {}", name(key.kind()), name(value.kind()));
    }
    let kind = name(field.kind());
    match field.containing_oneof() {
        _ if field.is_list() => format!("repeated {kind}"),
        Some(oneof) if oneof.is_synthetic() => format!("optional {kind}"),
        Some(oneof) => format!("{kind}, one of `{}`", oneof.name()),
        None => kind,
    }
}

fn linked(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

fn service(page: &mut String, service: &ServiceDescriptor) {
    let file = service.parent_file();
    let name = service.name();
    _ = write!(page, "\n### {name}\n\n{}\n", comment(&file, service.path()));
    for method in service.methods() {
        let stream = |is_stream| if is_stream { "stream of " } else { "" };
        _ = write!(
            page,
            "\n#### {name}.{}\n\nRequest: {}{}. Response: {}{}.\n\n{}\n",
            method.name(),
            stream(method.is_client_streaming()),
            linked(method.input().name()),
            stream(method.is_server_streaming()),
            linked(method.output().name()),
            comment(&file, method.path()),
        );
    }
}

fn message(page: &mut String, message: &MessageDescriptor) {
    let file = message.parent_file();
    _ = write!(page, "\n### {}\n\n{}\n", message.name(), comment(&file, message.path()));
    if message.fields().len() > 0 {
        page.push_str("\n| Field | Number | Type | Description |\n|---|---|---|---|\n");
    }
    for field in message.fields() {
        let text = comment(&file, field.path());
        let (name, number) = (field.name(), field.number());
        _ = writeln!(page, "| `{name}` | {number} | {} | {} |", type_of(&field), cell(&text));
    }
    for child in message.child_messages().filter(|child| !child.is_map_entry()) {
        self::message(page, &child);
    }
    message.child_enums().for_each(|child| enumeration(page, &child));
}

fn enumeration(page: &mut String, kind: &EnumDescriptor) {
    let file = kind.parent_file();
    _ = write!(page, "\n### {}\n\n{}\n", kind.name(), comment(&file, kind.path()));
    page.push_str("\n| Value | Number | Description |\n|---|---|---|\n");
    for value in kind.values() {
        let text = comment(&file, value.path());
        _ = writeln!(page, "| `{}` | {} | {} |", value.name(), value.number(), cell(&text));
    }
}

/// Compiles the files, with their comments.
fn compiled() -> DescriptorPool {
    let proto = crate::markdown::repository().join("proto");
    let mut compiler = protox::Compiler::new([proto]).unwrap();
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(FILES.map(|name| format!("leasehold/v1/{name}.proto"))).unwrap();
    compiler.descriptor_pool()
}

fn page() -> String {
    let mut page = head("Protocol", READER, "the comments in proto/leasehold/v1");
    let pool = compiled();
    for name in FILES {
        let file = pool.get_file_by_name(&format!("leasehold/v1/{name}.proto")).unwrap();
        _ = write!(page, "\n## {name}.proto\n\n{}\n", file_comment(&file));
        file.services().for_each(|it| service(&mut page, &it));
        file.messages().for_each(|it| message(&mut page, &it));
        file.enums().for_each(|it| enumeration(&mut page, &it));
    }
    page
}

#[test]
fn protocol_page_is_up_to_date() {
    compare(PAGE, &page());
}

#[test]
fn comments_are_unindented() {
    assert_eq!(unindented(" A\n  - b\n\n c \n"), "A\n - b\n\nc");
}
