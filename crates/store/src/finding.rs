//! What an examination of a store found, for people and programs.

/// How something was found to be, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// It works, but not as well as it could.
    Warning,
    /// The store can't be used like this.
    Failed,
}

impl Verdict {
    /// As programs are told.
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

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it was found to be.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// What to do about it: whole sentences, without the last full stop.
    pub remedy: Option<String>,
}

/// All that was looked at, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(Vec<Finding>);

impl Report {
    /// The findings.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }

    /// Whether the store can't be used.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.iter().any(|finding| finding.verdict == Verdict::Failed)
    }

    /// What failed, and what to do about it, in one message.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failed = self.0.iter().filter(|finding| finding.verdict == Verdict::Failed);
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
    /// Creates a finding without a remedy.
    pub fn new(check: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { check, verdict, text: text.into(), remedy: None }
    }

    /// Reports that a check passed.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, text)
    }

    /// Reports something worth knowing.
    pub fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Note, text)
    }

    /// Reports something that works, but not as well as it could.
    pub fn warning(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, text)
    }

    /// Reports that the store is not usable as it is.
    pub fn failed(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Failed, text)
    }

    /// Adds the remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// What was found and what to do, in one.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}: {}. {remedy}", self.check, self.text),
            None => format!("{}: {}", self.check, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_failed_is_a_failure() {
        let mut report = Report::default();
        report.add(Finding::ok("account", "answers"));
        report.add(Finding::warning("clock", "7s ahead").remedy("Set it right"));
        assert!(!report.has_failed());
        assert_eq!(report.failure(), None);
        report.add(Finding::failed("container", "is not there").remedy("Create it"));
        assert_eq!(report.failure().unwrap(), "container: is not there. Create it");
        assert_eq!(report.findings().len(), 3);
    }
}
