//! The web console in a real browser, with a real daemon and real clients.
//!
//! Without chromium, the tests are skipped with a warning; `cargo xtask test` installs
//! it. Screenshots are written to `target/console-screenshots`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, reason = "warnings and measured times")]

mod browser;

use std::time::Duration;

use browser::Browser;
use leasehold_client::{Client, Guard, Progress};
use leasehold_runtime::sleep;
use leasehold_test_support::{
    http_endpoint::{HttpDaemon, LONG},
    until,
};
use nix::sys::signal::Signal;

/// Name that would run a script, if it were parsed as HTML.
const HOSTILE: &str = "<img src=x onerror=\"document.title='broken'\">";

const DESKTOP: (u32, u32) = (1280, 860);
const PHONE: (u32, u32) = (390, 844);

struct Console {
    served: HttpDaemon,
    browser: Browser,
}

impl Console {
    fn start() -> Option<Self> {
        let browser = Browser::start()?;
        Some(Self { served: HttpDaemon::start(&["--console"]), browser })
    }

    fn url(&self, view: &str) -> String {
        format!("http://{}/#/{view}", self.served.http)
    }

    fn open(&mut self, view: &str) -> u64 {
        self.browser.open(&self.url(view))
    }

    async fn client(&self, name: &str) -> Client {
        let builder = Client::builder(&self.served.daemon.endpoint).client_name(name).ttl(LONG);
        builder.connect().await.unwrap()
    }
}

/// Starts an acquire, and returns when it waits.
async fn queue(client: &Client, name: &str) -> tokio::task::JoinHandle<Guard> {
    let client = client.clone();
    let name = name.to_owned();
    let (queued, waits) = tokio::sync::oneshot::channel();
    let mut queued = Some(queued);
    let waiting = tokio::spawn(async move {
        let report = move |_: Progress| _ = queued.take().map(|queued| queued.send(()));
        client.lock(name).on_progress(report).acquire().await.unwrap()
    });
    waits.await.unwrap();
    waiting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_appear_without_a_reload() {
    let Some(mut console) = Console::start() else { return };
    let (first, second) = (console.client("first").await, console.client("second").await);
    console.open("");
    console.browser.until_text("No lock is held");
    console.browser.evaluate("window.isOriginalPage = true");

    let guard = first.lock("orders").acquire().await.unwrap();
    let acquired =
        console.browser.until("document.querySelector('td.holder .strong')?.innerText === 'first'");
    let waiting = queue(&second, "orders").await;
    let queued = console.browser.until("document.querySelector('td.waiting')?.innerText === '1'");

    console.browser.click("a.name");
    console.browser.until_text("The waiters wait for the holder");
    console.browser.until("document.querySelectorAll('ol.waiters li').length === 1");
    let token = guard.token();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(guard.token() > token);
    let handed_off = console.browser.until(
        "document.querySelector('.facts')?.innerText.includes('second') \
         && document.querySelectorAll('rect.hold').length === 2",
    );

    let broken = console.served.daemon.run(&["break", "orders", "--reason", "test"]);
    assert!(broken.status.success());
    guard.lost().await;
    let lost = console.browser.until(
        "[...document.querySelectorAll('.events .pill')].some((pill) => pill.innerText === 'Lost')",
    );
    drop(guard);
    console.browser.until_text("The lock is free");
    console.browser.until("document.querySelector('.mark') !== null");

    assert_eq!(console.browser.evaluate("window.isOriginalPage"), true);
    eprintln!(
        "time until a change appears: acquired {acquired} ms, queued {queued} ms, handed off \
         {handed_off} ms, lost {lost} ms"
    );
    console.browser.check_problems();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_shown_as_text() {
    let Some(mut console) = Console::start() else { return };
    let client = console.client(HOSTILE).await;
    let _guard = client.lock(HOSTILE).acquire().await.unwrap();
    let leadership = client.election("leader").campaign(HOSTILE).await.unwrap();
    console.open("");
    let text = serde_json::json!(HOSTILE).to_string();
    let in_row = format!("document.querySelector('a.name')?.innerText === {text}");
    console.browser.until(&in_row);
    console.browser.until(&format!(
        "document.querySelector('code.value:not([hidden])')?.innerText === {text}"
    ));
    console.browser.click("a.name");
    console.browser.until(&format!("document.querySelector('h1')?.innerText === {text}"));
    console.browser.until_text("The lock is held");
    assert_eq!(
        console.browser.evaluate("document.querySelector('main img')"),
        serde_json::Value::Null
    );
    let command = console.browser.evaluate("document.querySelector('.danger code').innerText");
    let command = command.as_str().unwrap();
    assert!(command.starts_with("leasehold break '<img src=x"), "{command}");
    console.browser.click(".danger button");
    let copied = console.browser.evaluate("navigator.clipboard.readText()");
    assert_eq!(copied, command);
    leadership.resign().await.unwrap();
    console.browser.check_problems();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_are_accessible_in_both_schemes() {
    let Some(mut console) = Console::start() else { return };
    for (scheme, size, suffix) in [("light", DESKTOP, "desktop"), ("dark", PHONE, "phone")] {
        console.browser.open_as(&console.url(""), scheme, size);
        console.browser.until_text("No lock is held");
        console.browser.check_view("empty");
        console.browser.screenshot(&format!("empty-{scheme}-{suffix}"));
    }
    let _busy = console.busy().await;
    for (name, view, text) in [
        ("locks", "", "billing/invoices"),
        ("lock", "lock/default/billing%2Finvoices", "Break the lock"),
        ("election", "lock/default/scheduler", "Ask the leader to step down"),
        ("silent", "lock/default/cache%2Fwarmup", "Holder not connected"),
        ("free", "lock/default/unused", "The lock is free"),
        ("daemon", "daemon", "Granted"),
    ] {
        for scheme in ["light", "dark"] {
            for (size, suffix) in [(DESKTOP, "desktop"), (PHONE, "phone")] {
                console.browser.open_as(&console.url(view), scheme, size);
                console.browser.until_text(text);
                if name == "daemon" {
                    console.browser.until("document.querySelectorAll('.chart .line').length === 3");
                }
                console.browser.check_view(&format!("{name}, {scheme}, {suffix}"));
                console.browser.screenshot(&format!("{name}-{scheme}-{suffix}"));
            }
        }
    }
    console.browser.check_problems();
}

impl Console {
    /// Creates locks with a history: handoffs, a gap, losses, waiters, an election.
    async fn busy(&self) -> Vec<Box<dyn Send>> {
        let mut kept: Vec<Box<dyn Send>> = Vec::new();
        let workers = [
            self.client("billing 2.4").await,
            self.client("reporter").await,
            self.client("migrate 1.0").await,
        ];
        for round in 0..9 {
            let guard = workers[round % 3].lock("billing/invoices").acquire().await.unwrap();
            let next = queue(&workers[(round + 1) % 3], "billing/invoices").await;
            sleep(Duration::from_millis(300 + 90 * round as u64)).await;
            if round % 4 == 2 {
                let run =
                    self.served.daemon.run(&["break", "billing/invoices", "--reason", "stuck"]);
                assert!(run.status.success());
                guard.lost().await;
            }
            drop(guard);
            next.await.unwrap().release().await.unwrap();
            if round % 3 == 1 {
                sleep(Duration::from_millis(400)).await;
            }
        }
        let holder = self.client("billing 2.4").await;
        kept.push(Box::new(holder.lock("billing/invoices").acquire().await.unwrap()));
        for worker in &workers {
            kept.push(Box::new(queue(worker, "billing/invoices").await));
        }
        for name in
            ["billing/ledger", "deploy/production", "etl/orders/eu", "etl/orders/us", HOSTILE]
        {
            kept.push(Box::new(workers[name.len() % 3].lock(name).acquire().await.unwrap()));
        }
        let leader = holder.election("scheduler").campaign("http://10.0.0.7:8080").await.unwrap();
        kept.push(Box::new(leader));
        // A stopped holder sends no keep-alives. Its stream is closed with its process.
        let arguments =
            ["lock", "cache/warmup", "--ttl", "60s", "--", "sh", "-c", "echo held; sleep 60"];
        let mut killed = self.served.daemon.begin(&arguments);
        assert_eq!(killed.line(), "held");
        killed.signal(Signal::SIGKILL);
        kept.push(Box::new(killed));
        kept
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyboard_reaches_everything() {
    let Some(mut console) = Console::start() else { return };
    let client = console.client("worker").await;
    let _guards =
        [client.lock("a/1").acquire().await.unwrap(), client.lock("a/2").acquire().await.unwrap()];
    console.open("");
    console.browser.until_text("a/2");
    let focused = |browser: &mut Browser| {
        let text = "document.activeElement.id || document.activeElement.innerText";
        browser.evaluate(text).as_str().unwrap().to_owned()
    };
    let mut order = Vec::new();
    for _ in 0..9 {
        console.browser.press(&["Tab"]);
        order.push(focused(&mut console.browser));
    }
    let expected = [
        "Skip to content",
        "Leasehold",
        "Locks",
        "Daemon",
        "prefix",
        "namespace",
        "filter-all",
        "a/1",
        "a/2",
    ];
    assert_eq!(order, expected);
    console.browser.press(&["ArrowUp"]);
    assert_eq!(focused(&mut console.browser), "a/1");
    console.browser.press(&["ArrowDown", "Enter"]);
    console.browser.until("document.querySelector('h1')?.innerText === 'a/2'");
    console.browser.press(&["Tab", "Enter"]);
    console.browser.until("document.querySelector('#prefix') !== null");
    console.browser.press(&["Tab"]);
    assert_eq!(focused(&mut console.browser), "prefix");
    console.browser.write("a/2");
    console.browser.until("document.querySelectorAll('tbody tr').length === 1");
    assert_eq!(focused(&mut console.browser), "prefix", "the search keeps the focus");
    console.browser.press(&["Tab", "Tab", "ArrowRight"]);
    console.browser.until_text("No lock begins with");
    assert_eq!(focused(&mut console.browser), "filter-elections");
    console.browser.check_problems();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_paged() {
    let Some(mut console) = Console::start() else { return };
    let client = console.client("batch").await;
    let mut guards = Vec::new();
    for hundred in 0..100 {
        let acquires = (0..100).map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                client.lock(format!("jobs/{hundred:02}{number:02}")).acquire().await.unwrap()
            })
        });
        for acquire in acquires.collect::<Vec<_>>() {
            guards.push(acquire.await.unwrap());
        }
    }
    let first = console.open("");
    console.browser.until("document.querySelectorAll('tbody tr').length === 100");
    console.browser.until_text("1–100 of 10,000 locks");
    eprintln!("time until the first view with 10,000 held locks: {first} ms");
    console.browser.check_view("10,000 locks");
    console.browser.screenshot("locks-10000");
    console.browser.evaluate(
        "[...document.querySelectorAll('button')].find((one) => one.innerText === 'Next page').click()",
    );
    console.browser.until_text("101–200 of 10,000 locks");
    console.browser.until("document.querySelector('a.name')?.innerText === 'jobs/0100'");
    console.browser.evaluate("document.querySelector('#prefix').focus()");
    console.browser.write("jobs/99");
    console.browser.until_text("100 locks");
    console.browser.until("document.querySelector('a.name')?.innerText === 'jobs/9900'");
    drop(guards);
    client.close().await;
    console.browser.until_text("No lock begins with");
    console.browser.check_problems();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_survives_a_restart_of_the_daemon() {
    let Some(mut console) = Console::start() else { return };
    console.open("");
    console.browser.until_text("No lock is held");
    let address = console.served.http.clone();
    _ = console.served.daemon.stop();
    console.browser.until("!document.querySelector('#notice').hidden");
    let arguments = ["--console", "--http-listen", &address];
    console.served = HttpDaemon::of(console.served.daemon.restart(&arguments));
    console.browser.until("document.querySelector('#notice').hidden");
    let client = console.client("worker").await;
    let guard = until(async || client.lock("after").try_acquire().await.ok().flatten()).await;
    console.browser.until_text("after");
    drop(guard);
}
