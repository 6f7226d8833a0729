//! Colors, on terminals only.
//!
//! `NO_COLOR` turns them off, `CLICOLOR_FORCE` on, as for the help texts. JSON and
//! pipes have none.

use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use super::output::Output;

/// Colors of one output stream, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Palette {
    is_colored: bool,
}

impl Palette {
    /// Palette without colors.
    #[cfg(test)]
    pub(super) const PLAIN: Self = Self { is_colored: false };

    /// Returns the palette for standard output.
    pub(super) fn stdout(output: Output) -> Self {
        Self { is_colored: output == Output::Text && colors(AutoStream::choice(&io::stdout())) }
    }

    /// Returns the palette for standard error.
    pub(super) fn stderr(output: Output) -> Self {
        Self { is_colored: output == Output::Text && colors(AutoStream::choice(&io::stderr())) }
    }

    /// Returns whether the output is colored.
    pub(super) const fn is_colored(self) -> bool {
        self.is_colored
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Formats secondary text, such as a timestamp.
    pub(super) fn dim(self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    /// Formats a success.
    pub(super) fn good(self, text: &str) -> String {
        self.paint(AnsiColor::Green.on_default(), text)
    }

    /// Formats text that deserves attention.
    pub(super) fn notable(self, text: &str) -> String {
        self.paint(AnsiColor::Yellow.on_default(), text)
    }

    /// Formats a failure.
    pub(super) fn bad(self, text: &str) -> String {
        self.paint(AnsiColor::Red.on_default().bold(), text)
    }

    fn paint(self, style: Style, text: &str) -> String {
        if self.is_colored { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Returns whether the log on standard error is colored.
pub(super) fn is_log_colored() -> bool {
    colors(AutoStream::choice(&io::stderr()))
}

const fn colors(choice: ColorChoice) -> bool {
    !matches!(choice, ColorChoice::Never)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_palette_adds_nothing() {
        assert_eq!(Palette::PLAIN.bad("FAILED"), "FAILED");
        assert_eq!(Palette { is_colored: true }.good("ok"), "\x1b[32mok\x1b[0m");
    }

    #[test]
    fn json_has_no_colors() {
        assert_eq!(Palette::stdout(Output::Json), Palette::PLAIN);
        assert_eq!(Palette::stderr(Output::Json), Palette::PLAIN);
    }
}
