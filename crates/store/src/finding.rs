//! Findings of the doctor about a store, human-readable and machine-readable.

/// Result of a check, in order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckStatus {
    /// The check passed.
    Ok,
    /// A fact that the operator should know.
    Note,
    /// The store is usable, but the configuration should be improved.
    Warning,
    /// The store is not usable.
    Failed,
}

impl CheckStatus {
    /// Machine-readable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// Finding of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Result of the check.
    pub status: CheckStatus,
    /// Human-readable description.
    pub text: String,
    /// The fix: whole sentences, without the last full stop.
    pub fix: Option<String>,
}

/// Findings of all checks, in the order of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(Vec<Finding>);

impl Report {
    /// Returns the findings.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }

    /// Returns true if the store is not usable.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.iter().any(|finding| finding.status == CheckStatus::Failed)
    }

    /// Returns the failures and their fixes as one message; `None` if no check
    /// failed.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failed = self.0.iter().filter(|finding| finding.status == CheckStatus::Failed);
        let messages: Vec<String> = failed.map(Finding::message).collect();
        (!messages.is_empty()).then(|| messages.join(". "))
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    /// Adds findings, in order.
    pub fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.0.extend(findings);
    }
}

impl IntoIterator for Report {
    type Item = Finding;
    type IntoIter = std::vec::IntoIter<Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Finding {
    /// Creates a finding without a fix.
    pub fn new(check: &'static str, status: CheckStatus, text: impl Into<String>) -> Self {
        Self { check, status, text: text.into(), fix: None }
    }

    /// Reports that a check passed.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckStatus::Ok, text)
    }

    /// Reports a fact that the operator should know.
    pub fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckStatus::Note, text)
    }

    /// Reports that the store is usable, but the configuration should be improved.
    pub fn warning(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckStatus::Warning, text)
    }

    /// Reports that the store is not usable.
    pub fn failed(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckStatus::Failed, text)
    }

    /// Adds the fix.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Returns the finding and its fix as one message.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.fix {
            Some(fix) => format!("{}: {}. {fix}", self.check, self.text),
            None => format!("{}: {}", self.check, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_contains_only_failed_checks() {
        let mut report = Report::default();
        report.add(Finding::ok("account", "responds"));
        report.add(Finding::warning("clock", "7s ahead").fix("Synchronize it"));
        assert!(!report.has_failed());
        assert_eq!(report.failure(), None);
        report.add(Finding::failed("container", "does not exist").fix("Create it"));
        assert_eq!(report.failure().unwrap(), "container: does not exist. Create it");
        assert_eq!(report.findings().len(), 3);
    }
}
