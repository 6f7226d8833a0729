//! Fences in SQLite.

use std::{path::Path, thread};

use leasehold_fence::sql::{CREATE, Dialect, raise, update};
use rusqlite::{Connection, TransactionBehavior};

use super::{LAST_WRITES, WRITES_BEFORE_NEXT, assert_tokens_increase};

fn open(path: &Path) -> Connection {
    let mut connection = Connection::open(path).unwrap();
    // The built-in handler sleeps for so long that other writers always win.
    let wait = |_| {
        thread::yield_now();
        true
    };
    connection.busy_handler(Some(wait)).unwrap();
    connection
}

#[test]
fn lower_token_does_not_raise_fence() {
    let database = Connection::open_in_memory().unwrap();
    database.execute(CREATE, ()).unwrap();
    database.execute(CREATE, ()).unwrap();
    let raise = raise(Dialect::Sqlite);
    let raised: Vec<_> = [("a", 5), ("a", 5), ("a", 4), ("b", 1), ("a", 6), ("a", 5)]
        .into_iter()
        .map(|fence| database.execute(&raise, fence).unwrap())
        .collect();
    assert_eq!(raised, [1, 1, 0, 1, 1, 0]);
}

#[test]
fn row_refuses_token_lower_than_stored() {
    let database = Connection::open_in_memory().unwrap();
    database.execute("CREATE TABLE stock (id TEXT, amount BIGINT, fence BIGINT)", ()).unwrap();
    database.execute("INSERT INTO stock VALUES ('nuts', 7, 0), ('figs', 7, 0)", ()).unwrap();
    let update = update(Dialect::Sqlite, "stock", "amount = ?1", "id = ?2 OR id = 'x'", 3);
    let changed: Vec<_> = [(6, "nuts", 2), (5, "nuts", 1), (4, "figs", 1), (3, "nuts", 2)]
        .into_iter()
        .map(|change| database.execute(&update, change).unwrap())
        .collect();
    assert_eq!(changed, [1, 0, 1, 1]);
    let read = "SELECT amount, fence FROM stock ORDER BY id";
    let mut rows = database.prepare(read).unwrap();
    let rows = rows.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(rows.map(Result::unwrap).collect::<Vec<(i64, i64)>>(), [(4, 1), (3, 2)]);
}

#[test]
fn lower_token_is_not_written_after_higher_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("database");
    let setup = open(&path);
    setup.execute(CREATE, ()).unwrap();
    setup.execute("CREATE TABLE journal (number INTEGER PRIMARY KEY, token BIGINT)", ()).unwrap();
    let count = |database: &Connection, token: i64| -> i64 {
        let count = "SELECT count(*) FROM journal WHERE token = ?1";
        database.query_row(count, [token], |row| row.get(0)).unwrap()
    };
    let writer = |token: i64| {
        let mut database = open(&path);
        while token > 1 && count(&database, token - 1) < WRITES_BEFORE_NEXT {
            thread::yield_now();
        }
        let mut written = 0;
        while token < 8 || written < LAST_WRITES {
            let behavior = TransactionBehavior::Immediate;
            let transaction = database.transaction_with_behavior(behavior).unwrap();
            if transaction.execute(&raise(Dialect::Sqlite), ("default/x", token)).unwrap() == 0 {
                break;
            }
            transaction.execute("INSERT INTO journal (token) VALUES (?1)", [token]).unwrap();
            transaction.commit().unwrap();
            written += 1;
            thread::yield_now();
        }
        written
    };
    let written = thread::scope(|scope| {
        let writers: Vec<_> =
            (0..16).map(|number| scope.spawn(move || writer(number / 2 + 1))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let mut tokens = setup.prepare("SELECT token FROM journal ORDER BY number").unwrap();
    let tokens = tokens.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap);
    assert_tokens_increase(&tokens.collect::<Vec<i64>>(), written);
}
