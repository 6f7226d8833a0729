//! Whether the account can be used: what a daemon tries before it starts, and
//! what `leasehold doctor` explains.
//!
//! It is tried with calls such as the store makes, so that what was found to
//! work does. What makes the rest pointless ends it.

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

/// The time limit of each call.
const LIMIT: Duration = Duration::from_secs(10);

/// Checks what the store can't do without: the account, the credential, the
/// container, which is created if it is not there, and permissions.
pub async fn check(account: &Account, settings: &Settings, entropy: &mut Entropy) -> Report {
    essentials(account, settings, entropy).await.0
}

/// Checks that and whatever else is worth knowing.
pub async fn diagnose(account: &Account, settings: &Settings, entropy: &mut Entropy) -> Report {
    let mut report = Report::default();
    let (place, by) = (account.display(), account.credential_name());
    report.add(Finding::note("store", format!("{place}, by {by}")));
    let (found, probe) = essentials(account, settings, entropy).await;
    report.extend(found);
    if let Some(probe) = probe {
        settings::look(account, &probe, &mut report).await;
        report.add(protection::look(account, settings).await);
    }
    report
}

/// Also gives the probe, if it is worth going on.
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
        Ok(()) => report.add(Finding::ok("container", format!("{} is there", settings.container))),
        Err(Fault::NoContainer) => report.add(create(account, settings).await),
        // Not allowed to list: the probe finds out what else is not.
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

/// One call that every credential for the container allows, and what its
/// answer tells of the service's clock.
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

/// A listing of one blob at most.
async fn first_page(
    account: &Account,
    prefix: Option<String>,
) -> azure_core::Result<Option<Response<ListBlobsResponse, XmlFormat>>> {
    let options =
        BlobContainerClientListBlobsOptions { prefix, maxresults: Some(1), ..Default::default() };
    let mut pages = account.container().list_blobs(Some(options))?.into_pages();
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut pages).poll_next(cx)).await.transpose()
}

/// There is no use in going on.
struct Abort;

/// What the first call says about account, clock and credential.
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
            let fix = "Nothing else could be tried. Try again later";
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
        // Reason enough for whatever was refused.
        return Err(Abort);
    }
    if let Err(fault @ Fault::Refused { refusal: Refusal::Caller, .. }) = reached {
        report.add(failed("credential", fault));
        return Err(Abort);
    }
    report.add(Finding::ok("credential", format!("{} is accepted", account.credential_name())));
    Ok(())
}

const NOT_BLOB_SERVICE: &str = "what answers is no blob service, or has no account of that name";

const CHECK_ADDRESS: &str =
    "Check the account's name and address in azure_account_url or in the connection string";

/// Creates the container, which is not there.
async fn create(account: &Account, settings: &Settings) -> Finding {
    const CHECK: &str = "container";
    let name = &settings.container;
    match limited(account.container().create(None)).await {
        Ok(_) => Finding::note(CHECK, format!("{name} was not there; it is now")),
        Err(Fault::Changed) => {
            Finding::ok(CHECK, format!("{name} was not there; somebody has just created it"))
        }
        Err(Fault::NoContainer) => Finding::failed(CHECK, format!("{name} is being deleted")).fix(
            "Amendment again in a minute: the service takes its time to delete. Or choose another \
                 with azure_container",
        ),
        Err(Fault::Refused { code, .. }) => Finding::failed(
            CHECK,
            format!("{name} is not there, and may not be created with this credential ({code})"),
        )
        .fix(format!(
            "Create it, for example with `az storage container create --name {name} \
             --account-name ACCOUNT --auth-mode login`. Or allow it: by the role Storage Blob \
             Data Contributor on the account, or by an account SAS with the resource type c"
        )),
        Err(fault) => failed(CHECK, &fault),
    }
}

/// A call within its time limit.
async fn limited<T>(call: impl Future<Output = azure_core::Result<T>>) -> Result<T, Fault> {
    tokio::select! {
        answer = call => answer.map_err(Fault::from),
        () = sleep(LIMIT) => Err(late()),
    }
}

fn late() -> Fault {
    let limit = humantime::format_duration(LIMIT);
    Fault::Unclear { why: format!("the storage account did not answer within {limit}") }
}

fn failed(check: &'static str, fault: &Fault) -> Finding {
    let fix = fault.fix().unwrap_or(match fault {
        Fault::NoToken { .. } => {
            "Set up one of these credentials, or choose another by azure_credential"
        }
        _ => "Check the address, and whether a firewall or a proxy is in between. Then try again",
    });
    Finding::failed(check, fault.what()).fix(fix)
}
