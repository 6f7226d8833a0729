//! What the account's own settings mean for locks and their tokens.

use azure_core::http::headers::{HeaderName, Headers};

use super::{limited, probe::Probe};
use crate::{account::Account, calls::fault::Fault};
use leasehold_store::finding::{Finding, Report};

const BROUGHT_BACK: &str = "Don't bring a lock's old blob back: its old token comes with it, and \
    a daemon that saw a greater one freezes the lock and answers DATA_LOSS. If it happened and \
    nobody uses the lock, delete the blob: tokens then go on from the service's clock";

/// Looks at what the credential may see.
pub(super) async fn look(account: &Account, probe: &Probe, report: &mut Report) {
    report.add(soft_delete(kept_for(account).await, probe));
    report.add(versioning(probe.versioning));
    match limited(account.container().get_account_info(None)).await {
        Ok(info) => {
            report.add(replication(header(info.headers(), "x-ms-sku-name")));
            report.extend(hierarchy(header(info.headers(), "x-ms-is-hns-enabled")));
        }
        Err(fault) => report.add(unseen("geo-replication", &fault)),
    }
}

/// For how many days deleted blobs are kept; none if they are not.
async fn kept_for(account: &Account) -> Result<Option<i32>, Fault> {
    let properties = limited(account.service().get_properties(None)).await?.into_model()?;
    let policy = properties.delete_retention_policy;
    let policy = policy.filter(|policy| policy.enabled == Some(true));
    Ok(policy.map(|policy| policy.days.unwrap_or_default()))
}

fn soft_delete(kept_for: Result<Option<i32>, Fault>, probe: &Probe) -> Finding {
    const CHECK: &str = "soft delete";
    match kept_for {
        Ok(None) => Finding::ok(CHECK, "off: a deleted blob can't be brought back"),
        Ok(Some(days)) => {
            Finding::note(CHECK, format!("on: a deleted blob can be brought back for {days} days"))
                .fix(BROUGHT_BACK)
        }
        // A version that stays is another reason not to delete for good.
        Err(_) if probe.soft_delete == Some(true) && !probe.versioning => {
            Finding::note(CHECK, "on: a deleted blob can be brought back").fix(BROUGHT_BACK)
        }
        Err(_) if probe.soft_delete == Some(false) => {
            Finding::ok(CHECK, "off: a deleted blob can't be brought back")
        }
        Err(fault) => unseen(CHECK, &fault),
    }
}

fn versioning(on: bool) -> Finding {
    const CHECK: &str = "versioning";
    if !on {
        return Finding::ok(CHECK, "off: no earlier versions of blobs are kept");
    }
    Finding::warning(
        CHECK,
        "on: each time that a daemon takes a lock's lease, an earlier version of its blob stays",
    )
    .fix(format!(
        "Use an account without versioning, or let a lifecycle rule delete earlier versions. \
         {BROUGHT_BACK}"
    ))
}

fn replication(sku: Option<&str>) -> Finding {
    const CHECK: &str = "geo-replication";
    match sku {
        // Also with read access (RAGRS, RAGZRS).
        Some(sku) if sku.contains("GRS") || sku.contains("GZRS") => Finding::note(
            CHECK,
            format!("on ({sku}): after a fail-over to the second region, the last writes are lost"),
        )
        .fix(
            "Stop all daemons before a fail-over and start them after it. One that goes on may \
             meet a token lower than it saw: it freezes that lock and answers DATA_LOSS. CallOptions all \
             others tokens go on from the service's clock. Leases may be lost as well: for as \
             long as one lasts, only its token tells an old holder from the new one",
        ),
        Some(sku) => Finding::ok(CHECK, format!("off ({sku})")),
        None => Finding::note(CHECK, "the account does not say"),
    }
}

fn hierarchy(enabled: Option<&str>) -> Option<Finding> {
    let text = "on: a lock whose name goes on after a slash where another's ends, such as a/b and \
                a, can't be taken";
    let finding = Finding::warning("hierarchical namespace", text);
    (enabled == Some("true"))
        .then(|| finding.fix("Use names without slashes, or an account without this setting"))
}

/// Not to be allowed to look is no failure: the store does not need it.
fn unseen(check: &'static str, fault: &Fault) -> Finding {
    let why = match fault {
        Fault::Refused { code, .. } => format!("not allowed to see ({code})"),
        fault => format!("could not be seen: {}", fault.what()),
    };
    Finding::note(check, why).fix("Look it up in the Azure portal, or use an identity that may")
}

fn header<'a>(headers: &'a Headers, name: &'static str) -> Option<&'a str> {
    headers.get_optional_str(&HeaderName::from_static(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_store::finding::CheckStatus;

    #[test]
    fn replication_to_another_region_is_noted() {
        for sku in ["Standard_GRS", "Standard_RAGRS", "Standard_GZRS", "Standard_RAGZRS"] {
            assert_eq!(replication(Some(sku)).status, CheckStatus::Note, "{sku}");
        }
        for sku in ["Standard_LRS", "Standard_ZRS", "Premium_LRS", "Premium_ZRS"] {
            assert_eq!(replication(Some(sku)).status, CheckStatus::Ok, "{sku}");
        }
    }

    #[test]
    fn what_may_not_be_seen_is_no_failure() {
        let refused = Fault::Unclear { why: "no answer".to_owned() };
        assert_eq!(unseen("soft delete", &refused).status, CheckStatus::Note);
        assert_eq!(replication(None).status, CheckStatus::Note);
        assert_eq!(hierarchy(None), None);
        assert_eq!(hierarchy(Some("false")), None);
        assert_eq!(hierarchy(Some("true")).unwrap().status, CheckStatus::Warning);
    }
}
