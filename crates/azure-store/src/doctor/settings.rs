//! Effects of the account's own settings on locks and their tokens.

use azure_core::http::headers::{HeaderName, Headers};

use super::{limited, probe::Probe};
use crate::{account::Account, calls::fault::Fault};
use leasehold_store::finding::{Finding, Report};

const BROUGHT_BACK: &str = "Don't restore a lock's old blob: its old token comes with it, and a \
    daemon that saw a higher one freezes the lock and answers DATA_LOSS. If that happened and no \
    client uses the lock, delete the blob: new tokens then start at the storage clock";

/// Reports the settings that the credential may read.
pub(super) async fn inspect(account: &Account, probe: &Probe, report: &mut Report) {
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

/// Number of days for which deleted blobs are kept; none if they are not.
async fn kept_for(account: &Account) -> Result<Option<i32>, Fault> {
    let properties = limited(account.service().get_properties(None)).await?.into_model()?;
    let policy = properties.delete_retention_policy;
    let policy = policy.filter(|policy| policy.enabled == Some(true));
    Ok(policy.map(|policy| policy.days.unwrap_or_default()))
}

fn soft_delete(kept_for: Result<Option<i32>, Fault>, probe: &Probe) -> Finding {
    const CHECK: &str = "soft delete";
    match kept_for {
        Ok(None) => Finding::ok(CHECK, "off: a deleted blob can't be restored"),
        Ok(Some(days)) => {
            Finding::note(CHECK, format!("on: a deleted blob can be restored for {days} days"))
                .fix(BROUGHT_BACK)
        }
        // A version that stays is another reason why a deletion is not final.
        Err(_) if probe.soft_delete == Some(true) && !probe.versioning => {
            Finding::note(CHECK, "on: a deleted blob can be restored").fix(BROUGHT_BACK)
        }
        Err(_) if probe.soft_delete == Some(false) => {
            Finding::ok(CHECK, "off: a deleted blob can't be restored")
        }
        Err(fault) => unseen(CHECK, &fault),
    }
}

fn versioning(on: bool) -> Finding {
    const CHECK: &str = "versioning";
    if !on {
        return Finding::ok(CHECK, "off: no earlier versions of blobs are kept");
    }
    Finding::warning(CHECK, "on: every hold of a lock leaves an earlier version of its blob").fix(
        format!(
            "Use an account without versioning, or let a lifecycle rule delete earlier versions. \
         {BROUGHT_BACK}"
        ),
    )
}

fn replication(sku: Option<&str>) -> Finding {
    const CHECK: &str = "geo-replication";
    match sku {
        // Includes the variants with read access (RAGRS, RAGZRS).
        Some(sku) if sku.contains("GRS") || sku.contains("GZRS") => Finding::note(
            CHECK,
            format!("on ({sku}): a failover to the second region loses the last writes"),
        )
        .fix(
            "Stop all daemons before a failover and start them after it. A daemon that is not \
             restarted may read a token lower than it saw before: it freezes that lock and \
             answers DATA_LOSS. The tokens of all other locks continue from the storage clock. \
             Leases may be lost as well: while one lasts, only its token distinguishes an old \
             holder from a new one",
        ),
        Some(sku) => Finding::ok(CHECK, format!("off ({sku})")),
        None => Finding::note(CHECK, "the account does not report it"),
    }
}

fn hierarchy(enabled: Option<&str>) -> Option<Finding> {
    let text = "on: a lock can't be acquired if its name extends another lock's name after a \
                slash, such as a/b and a";
    let finding = Finding::warning("hierarchical namespace", text);
    (enabled == Some("true"))
        .then(|| finding.fix("Use names without slashes, or an account without this setting"))
}

/// Returns the finding for an unreadable setting. This is no failure, because the store
/// does not need the setting.
fn unseen(check: &'static str, fault: &Fault) -> Finding {
    let why = match fault {
        Fault::Refused { code, .. } => format!("not permitted to read it ({code})"),
        fault => format!("could not be read: {}", fault.what()),
    };
    Finding::note(check, why)
        .fix("Read it in the Azure portal, or use an identity with that permission")
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
    fn unreadable_setting_is_no_failure() {
        let refused = Fault::Unknown { why: "no answer".to_owned() };
        assert_eq!(unseen("soft delete", &refused).status, CheckStatus::Note);
        assert_eq!(replication(None).status, CheckStatus::Note);
        assert_eq!(hierarchy(None), None);
        assert_eq!(hierarchy(Some("false")), None);
        assert_eq!(hierarchy(Some("true")).unwrap().status, CheckStatus::Warning);
    }
}
