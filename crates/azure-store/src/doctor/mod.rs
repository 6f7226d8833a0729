//! Checks that the account is usable, at the start of a daemon and for `leasehold
//! doctor`.
//!
//! The checks make the same calls as the store, so that a check that passes is proof. A
//! failure that makes the remaining checks useless ends them.

mod clock;
mod probe;
mod protection;
mod settings;

use std::time::Duration;

use azure_core::{
    error::ErrorKind,
    http::{Response, XmlFormat, headers::Headers},
    time::OffsetDateTime,
};
use azure_storage_blob::models::{BlobContainerClientListBlobsOptions, ListBlobsResponse};
use futures_core::Stream;

use self::{clock::ClockSkew, probe::Probe};
use crate::{
    Settings,
    account::Account,
    calls::fault::{Fault, Refusal},
};
use leasehold_runtime::sleep;
use leasehold_store::finding::{Finding, Report};
use leasehold_time::{Entropy, clock::wall};

/// Timeout of each call.
const LIMIT: Duration = Duration::from_secs(10);

/// Checks the necessary conditions: the account, the credential, the container and the
/// permissions. Creates the container if it does not exist.
pub async fn check(account: &Account, settings: &Settings, entropy: &mut Entropy) -> Report {
    essentials(account, settings, entropy).await.0
}

/// Makes the same checks, and those of optional settings.
pub async fn diagnose(account: &Account, settings: &Settings, entropy: &mut Entropy) -> Report {
    let mut report = Report::default();
    let (place, by) = (account.display(), account.credential_name());
    report.add(Finding::note("store", format!("{place}, by {by}")));
    let (found, probe) = essentials(account, settings, entropy).await;
    report.extend(found);
    if let Some(probe) = probe {
        settings::inspect(account, &probe, &mut report).await;
        report.add(protection::inspect(account, settings).await);
    }
    report
}

/// Makes the necessary checks. Also returns the probe if optional checks make sense.
async fn essentials(
    account: &Account,
    settings: &Settings,
    entropy: &mut Entropy,
) -> (Report, Option<Probe>) {
    let mut report = Report::default();
    if let Err(error) = account.sign_in().await {
        report.add(failed("credential", &error.into()));
        return (report, None);
    }
    let (reached, difference) = reach(account).await;
    if judge(account, &reached, difference, &mut report).is_err() {
        return (report, None);
    }
    match reached {
        Ok(()) => report.add(Finding::ok("container", format!("{} exists", settings.container))),
        Err(Fault::NoContainer) => report.add(create(account, settings).await),
        // Listing is not permitted: the probe finds out what else is refused.
        Err(_) => {}
    }
    if report.has_failed() {
        return (report, None);
    }
    let probe = Probe::of(account, settings, entropy).await;
    report.add(probe.finding(!settings.gc_after.is_zero()));
    let worth_it = !report.has_failed();
    (report, worth_it.then_some(probe))
}

/// Makes a call that every credential for the container allows. Also returns the clock
/// offset that follows from the answer.
async fn reach(account: &Account) -> (Result<(), Fault>, Option<ClockSkew>) {
    let now = || OffsetDateTime::from(wall());
    let sent = now();
    let answer = tokio::select! {
        answer = first_page(account, None) => answer,
        () = sleep(LIMIT) => return (Err(late()), None),
    };
    let difference = |headers: &Headers| Some(ClockSkew::of(sent, clock::date(headers)?, now()));
    match answer {
        Ok(page) => (Ok(()), page.and_then(|page| difference(page.headers()))),
        Err(error) => {
            let found = match error.kind() {
                ErrorKind::HttpResponse { raw_response: Some(response), .. } => {
                    difference(response.headers())
                }
                _ => None,
            };
            (Err(error.into()), found)
        }
    }
}

/// Lists at most one blob.
async fn first_page(
    account: &Account,
    prefix: Option<String>,
) -> azure_core::Result<Option<Response<ListBlobsResponse, XmlFormat>>> {
    let options =
        BlobContainerClientListBlobsOptions { prefix, maxresults: Some(1), ..Default::default() };
    let mut pages = account.container().list_blobs(Some(options))?.into_pages();
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut pages).poll_next(cx)).await.transpose()
}

/// End of the checks: the remaining ones would be useless.
struct Abort;

/// Reports the findings of the first call about account, clock and credential.
fn judge(
    account: &Account,
    reached: &Result<(), Fault>,
    difference: Option<ClockSkew>,
    report: &mut Report,
) -> Result<(), Abort> {
    let clock = difference.map(ClockSkew::finding);
    match reached {
        Err(Fault::Refused { refusal: Refusal::Caller | Refusal::Permission, .. })
        | Err(Fault::NoContainer)
        | Ok(()) => report.add(Finding::ok("account", "answers")),
        Err(fault @ Fault::Busy { .. }) => {
            let fix = "The other checks were skipped. Try again later";
            report.add(Finding::warning("account", fault.what()).fix(fix));
            return Err(Abort);
        }
        Err(Fault::NoBlob) => {
            report.add(Finding::failed("account", NOT_BLOB_SERVICE).fix(CHECK_ADDRESS));
            return Err(Abort);
        }
        Err(fault) => {
            report.add(failed("account", fault));
            return Err(Abort);
        }
    }
    report.extend(clock);
    if report.has_failed() {
        // The clock may be the cause of any refusal.
        return Err(Abort);
    }
    if let Err(fault @ Fault::Refused { refusal: Refusal::Caller, .. }) = reached {
        report.add(failed("credential", fault));
        return Err(Abort);
    }
    report.add(Finding::ok("credential", format!("{} is accepted", account.credential_name())));
    Ok(())
}

const NOT_BLOB_SERVICE: &str =
    "the address is not that of a blob service, or the service has no account of that name";

const CHECK_ADDRESS: &str =
    "Check the account's name and address in azure_account_url or in the connection string";

/// Creates the missing container.
async fn create(account: &Account, settings: &Settings) -> Finding {
    const CHECK: &str = "container";
    let name = &settings.container;
    match limited(account.container().create(None)).await {
        Ok(_) => Finding::note(CHECK, format!("{name} did not exist; created it")),
        Err(Fault::Changed) => {
            Finding::ok(CHECK, format!("{name} did not exist; another process has just created it"))
        }
        Err(Fault::NoContainer) => Finding::failed(CHECK, format!("{name} is being deleted")).fix(
            "Try again in a minute, when the service has completed the deletion. Or choose \
                 another container with azure_container",
        ),
        Err(Fault::Refused { code, .. }) => Finding::failed(
            CHECK,
            format!("{name} does not exist, and this credential may not create it ({code})"),
        )
        .fix(format!(
            "Create it, for example with `az storage container create --name {name} \
             --account-name ACCOUNT --auth-mode login`. Or allow it: by the role Storage Blob \
             Data Contributor on the account, or by an account SAS with the resource type c"
        )),
        Err(fault) => failed(CHECK, &fault),
    }
}

/// Makes a call with a timeout.
async fn limited<T>(call: impl Future<Output = azure_core::Result<T>>) -> Result<T, Fault> {
    tokio::select! {
        answer = call => answer.map_err(Fault::from),
        () = sleep(LIMIT) => Err(late()),
    }
}

fn late() -> Fault {
    let limit = humantime::format_duration(LIMIT);
    Fault::Unknown { why: format!("the storage account did not answer within {limit}") }
}

fn failed(check: &'static str, fault: &Fault) -> Finding {
    let fix = fault.fix().unwrap_or(match fault {
        Fault::NoToken { .. } => {
            "Set up one of these credentials, or choose another with azure_credential"
        }
        _ => "Check the address, and whether a firewall or a proxy is in between. Then try again",
    });
    Finding::failed(check, fault.what()).fix(fix)
}
