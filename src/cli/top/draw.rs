//! Drawing of the view.

use std::time::Duration;

use ratatui::{
    Frame, Terminal,
    backend::TestBackend,
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Sparkline, Table},
};

use super::model::{Lock, Model, Order, Rates, Sample, State};
use crate::cli::output::{printable, short_duration};

/// Height of the view above the table.
const HEAD_HEIGHT: u16 = 8;

/// Width of a frame that is printed to a file or a pipe.
const TEXT_WIDTH: u16 = 120;

/// Maximum height of a frame that is printed to a file or a pipe.
const MAX_TEXT_HEIGHT: u16 = 1_000;

/// Width below which the chart is left out.
const MIN_CHART_WIDTH: u16 = 100;

/// Width of the chart.
const CHART_WIDTH: u16 = 40;

/// Width of a number with its name.
const ENTRY_WIDTH: usize = 18;

/// Width below which the less important columns are left out.
const MIN_FULL_WIDTH: u16 = 100;

/// Colors of the view, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    pub(super) is_colored: bool,
}

impl Theme {
    const fn color(self, color: Color) -> Style {
        if self.is_colored { Style::new().fg(color) } else { Style::new() }
    }

    const fn good(self) -> Style {
        self.color(Color::Green)
    }

    const fn notable(self) -> Style {
        self.color(Color::Yellow)
    }

    const fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    const fn chart(self) -> Style {
        self.color(Color::Cyan)
    }
}

/// Texts around the numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caption<'a> {
    pub(super) endpoint: &'a str,
    pub(super) interval: Duration,
    /// Local time of the frame.
    pub(super) time: &'a str,
    /// False for a frame that is printed once.
    pub(super) has_keys: bool,
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws the model.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, caption: Caption<'_>, theme: Theme) {
    let keys = u16::from(caption.has_keys);
    let [title, head, table, footer] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(HEAD_HEIGHT - 2),
        Constraint::Fill(1),
        Constraint::Length(keys),
    ])
    .areas(frame.area());
    draw_title(frame, title, model, caption, theme);
    if let Some(sample) = model.sample() {
        draw_head(frame, head, model, sample, theme);
        draw_table(frame, table, model, theme);
    }
    frame.render_widget(keys_line(model), footer);
}

/// Draws the model as text, without colors, with all locks.
pub(super) fn text(model: &Model, caption: Caption<'_>) -> String {
    let locks = u16::try_from(model.locks().len().max(1)).unwrap_or(MAX_TEXT_HEIGHT);
    let height = locks.saturating_add(HEAD_HEIGHT + 2).min(MAX_TEXT_HEIGHT);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(TEXT_WIDTH, height));
    let theme = Theme { is_colored: false };
    let Ok(_) = terminal.draw(|frame| draw(frame, model, caption, theme));
    text_of(terminal.backend().buffer())
}

/// Text of a drawn frame, without trailing spaces.
fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content().chunks(width).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

fn draw_title(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    caption: Caption<'_>,
    theme: Theme,
) {
    let Caption { endpoint, interval, time, .. } = caption;
    let spans = vec![Span::styled("leasehold top", BOLD), Span::raw(format!("  {endpoint}"))];
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(32)]).areas(first_line(area));
    frame.render_widget(Line::from(spans), left);
    let time = format!("{time}  every {}", short_duration(interval));
    frame.render_widget(Line::styled(time, DIM).right_aligned(), right);
    let trouble = model.sample().and_then(|sample| sample.trouble.as_deref());
    let problem = match (model.error(), trouble) {
        (Some(error), _) => Some(format!("{error}; retrying")),
        (None, Some(trouble)) => Some(format!("no grants: {trouble}")),
        (None, None) if model.sample().is_none() => Some("connecting".to_owned()),
        (None, None) => None,
    };
    if let Some(problem) = problem {
        let line = Line::styled(printable(&problem).replace('\n', " "), theme.bad());
        frame.render_widget(line, Rect { y: area.y + 1, height: 1, ..area }.intersection(area));
    }
}

fn first_line(area: Rect) -> Rect {
    Rect { height: area.height.min(1), ..area }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, model: &Model, sample: &Sample, theme: Theme) {
    let chart_width = if area.width < MIN_CHART_WIDTH { 0 } else { CHART_WIDTH };
    let [numbers, chart] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(chart_width)]).areas(area);
    let lines = vec![
        locks_line(sample, theme),
        waiters_line(sample, theme),
        rates_line(model.rates(), theme),
        calls_line(model.rates()),
        head_line("Store", [[Span::styled(printable(&sample.store), DIM), Span::raw("")]]),
    ];
    frame.render_widget(Paragraph::new(lines), numbers);
    if chart_width > 0 && model.history().len() > 1 {
        draw_chart(frame, chart, model, theme);
    }
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let [chart, label] =
        Layout::vertical([Constraint::Length(4), Constraint::Length(1)]).areas(area);
    let shown = usize::from(chart.width).min(model.history().len());
    // Tenths, so that rates below one per second are visible.
    let rates: Vec<u64> = model
        .history()
        .iter()
        .skip(model.history().len() - shown)
        .map(|rate| (rate * 10.0).round() as u64)
        .collect();
    let highest = rates.iter().max().copied().unwrap_or(0) as f64 / 10.0;
    frame.render_widget(Sparkline::default().data(&rates).style(theme.chart()), chart);
    let label_text = format!("grants/s, highest {}", number(highest));
    frame.render_widget(Line::styled(label_text, DIM), label);
}

/// Name and value of a number in the head, as wide as the others.
fn entry(name: &str, value: String, style: Style) -> [Span<'static>; 2] {
    let width = ENTRY_WIDTH.saturating_sub(name.len() + 1);
    [Span::styled(format!("{name} "), DIM), Span::styled(format!("{value:<width$}"), style)]
}

fn head_line<const N: usize>(title: &str, entries: [[Span<'static>; 2]; N]) -> Line<'static> {
    let title = Span::styled(format!("{title:<9}"), BOLD);
    Line::from_iter(std::iter::once(title).chain(entries.into_iter().flatten()))
}

fn locks_line(sample: &Sample, theme: Theme) -> Line<'static> {
    let alarm = |number: u64| if number > 0 { theme.bad() } else { Style::new() };
    head_line(
        "Locks",
        [
            entry("held", sample.held.to_string(), Style::new()),
            entry("at risk", sample.at_risk.to_string(), alarm(sample.at_risk)),
            entry(
                "elections without leader",
                sample.leaderless.to_string(),
                alarm(sample.leaderless),
            ),
        ],
    )
}

fn waiters_line(sample: &Sample, theme: Theme) -> Line<'static> {
    let notable = |number: u64| if number > 0 { theme.notable() } else { Style::new() };
    let oldest = optional(sample.oldest_wait);
    head_line(
        "Clients",
        [
            entry("sessions", sample.sessions.to_string(), Style::new()),
            entry("waiting", sample.waiting.to_string(), notable(sample.waiting)),
            entry("longest wait", oldest, Style::new()),
        ],
    )
}

fn rates_line(rates: Option<&Rates>, theme: Theme) -> Line<'static> {
    let of =
        |rate: fn(&Rates) -> f64| rates.map_or_else(|| "-".to_owned(), |all| number(rate(all)));
    let has_losses = rates.is_some_and(|rates| rates.losses > 0.0);
    head_line(
        "Per s",
        [
            entry("grants", of(|rates| rates.grants), theme.good()),
            entry("releases", of(|rates| rates.releases), Style::new()),
            entry(
                "losses",
                of(|rates| rates.losses),
                if has_losses { theme.bad() } else { Style::new() },
            ),
        ],
    )
}

fn calls_line(rates: Option<&Rates>) -> Line<'static> {
    let title = Span::styled(format!("{:<9}", "Calls/s"), BOLD);
    let calls = rates.map(|rates| &rates.calls[..]).unwrap_or_default();
    if calls.is_empty() {
        return Line::from(vec![title, Span::styled("no storage calls", DIM)]);
    }
    let calls = calls.iter().flat_map(|(operation, rate)| {
        let operation = Span::styled(format!("{} ", printable(operation)), DIM);
        [operation, Span::raw(format!("{}  ", number(*rate)))]
    });
    Line::from_iter(std::iter::once(title).chain(calls))
}

/// Formats a rate: with a decimal below 100.
pub(super) fn number(rate: f64) -> String {
    if rate < 99.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// Column of the table: heading, the order that it stands for, and width.
struct Column {
    heading: &'static str,
    order: Option<Order>,
    width: Constraint,
    text: fn(&Lock) -> String,
    is_essential: bool,
}

const COLUMNS: [Column; 8] = [
    Column {
        heading: "LOCK",
        order: Some(Order::Name),
        width: Constraint::Fill(2),
        text: |lock| {
            printable(&match lock.namespace.as_str() {
                "" | "default" => lock.name.clone(),
                namespace => format!("{namespace}/{}", lock.name),
            })
        },
        is_essential: true,
    },
    Column {
        heading: "STATE",
        order: None,
        width: Constraint::Length(9),
        text: |lock| lock.state.name().to_owned(),
        is_essential: true,
    },
    Column {
        heading: "HELD FOR",
        order: Some(Order::Held),
        width: Constraint::Length(9),
        text: |lock| optional(lock.held_for),
        is_essential: true,
    },
    Column {
        heading: "LEFT",
        order: Some(Order::Left),
        width: Constraint::Length(7),
        text: |lock| optional(lock.time_left),
        is_essential: true,
    },
    Column {
        heading: "WAITING",
        order: Some(Order::Waiting),
        width: Constraint::Length(8),
        text: |lock| lock.waiting.to_string(),
        is_essential: true,
    },
    Column {
        heading: "LONGEST WAIT",
        order: None,
        width: Constraint::Length(12),
        text: |lock| optional(lock.longest_wait),
        is_essential: false,
    },
    Column {
        heading: "GRANTS",
        order: Some(Order::Grants),
        width: Constraint::Length(7),
        text: |lock| lock.recent_grants.to_string(),
        is_essential: false,
    },
    Column {
        heading: "HOLDER",
        order: None,
        width: Constraint::Fill(3),
        text: |lock| printable(lock.holder.as_deref().unwrap_or("-")),
        is_essential: true,
    },
];

fn optional(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".to_owned(), compact)
}

/// Formats a duration with its two largest units.
fn compact(duration: Duration) -> String {
    short_duration(duration).split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let rows = usize::from(area.height.saturating_sub(1));
    let is_full = area.width >= MIN_FULL_WIDTH;
    let columns = || COLUMNS.iter().filter(move |column| is_full || column.is_essential);
    let headings = columns().map(|column| {
        let is_sorted = column.order == Some(model.order());
        let arrow = if model.is_reversed() { "▴" } else { "▾" };
        let mark = if is_sorted { arrow } else { "" };
        let style = if is_sorted { BOLD.add_modifier(Modifier::UNDERLINED) } else { BOLD };
        Cell::from(Span::styled(format!("{}{mark}", column.heading), style))
    });
    let locks = model.visible(rows).iter().take(rows).map(|lock| {
        let cells = columns().map(|column| {
            let style = match column.heading {
                "STATE" => state_style(lock.state, theme),
                "LEFT" if lock.state == State::AtRisk => theme.bad(),
                "WAITING" if lock.waiting > 0 => theme.notable(),
                "LOCK" => BOLD,
                _ => Style::new(),
            };
            Cell::from(Span::styled((column.text)(lock).replace('\n', " "), style))
        });
        Row::new(cells)
    });
    let widths = columns().map(|column| column.width);
    let table = Table::new(locks, widths).header(Row::new(headings)).column_spacing(2);
    frame.render_widget(table, area);
    if model.locks().is_empty() && area.height > 1 {
        let message = Line::styled("No lock has a holder or a waiter.", DIM);
        frame.render_widget(message, Rect { y: area.y + 1, height: 1, ..area });
    }
}

fn state_style(state: State, theme: Theme) -> Style {
    match state {
        State::AtRisk | State::Leaderless => theme.bad(),
        State::Held | State::Led => theme.good(),
        State::Peer => Style::new(),
        State::Free | State::Unknown => DIM,
    }
}

fn keys_line(model: &Model) -> Line<'static> {
    let mut spans = vec![Span::styled("sort: ", DIM)];
    for (order, key, name) in Order::ALL {
        let style = if order == model.order() { BOLD } else { Style::new() };
        spans.push(Span::styled(format!("{key}"), style.add_modifier(Modifier::UNDERLINED)));
        let rest = name.strip_prefix(key).unwrap_or(name);
        spans.push(Span::styled(format!("{rest}  "), style));
    }
    for (key, name) in [("r", "everse"), ("↑↓", " scroll"), ("q", "uit")] {
        spans.push(Span::styled(key, Style::new().add_modifier(Modifier::UNDERLINED)));
        spans.push(Span::raw(format!("{name}  ")));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{
            Input,
            tests::{lock, sample},
        },
        *,
    };

    const CAPTION: Caption<'static> = Caption {
        endpoint: "http://127.0.0.1:7420",
        interval: Duration::from_secs(2),
        time: "12:03:11",
        has_keys: true,
    };

    fn screen(model: &Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let theme = Theme { is_colored: true };
        terminal.draw(|frame| draw(frame, model, CAPTION, theme)).unwrap();
        text_of(terminal.backend().buffer())
    }

    fn model() -> Model {
        let mut model = Model::default();
        let risky = Lock { state: State::AtRisk, ..lock("billing/run", 3_723, 0) };
        model.update(Ok(sample(1, 100, Vec::new())));
        model.update(Ok(sample(2, 110, vec![lock("orders", 12, 2), risky])));
        model
    }

    #[test]
    fn frame_has_numbers_and_rows() {
        let screen = screen(&model(), 120, 13);
        let lines: Vec<&str> = screen.lines().collect();
        assert!(lines[0].starts_with("leasehold top  http://127.0.0.1:7420  "), "{screen}");
        assert!(lines[0].ends_with("12:03:11  every 2s"), "{screen}");
        assert!(lines[2].starts_with("Locks    held 2"), "{screen}");
        assert!(lines[4].starts_with("Per s    grants 10.0"), "{screen}");
        assert!(lines[5].starts_with("Calls/s  renew 20.0"), "{screen}");
        assert!(lines[6].starts_with("Store    embedded"), "{screen}");
        assert!(lines[8].contains("HELD FOR▾"), "{screen}");
        let columns: Vec<_> = lines[9].split_whitespace().collect();
        assert_eq!(columns[..6], ["billing/run", "at", "risk", "1h", "2m", "9s"]);
        assert!(lines[10].starts_with("orders "), "{screen}");
        assert!(lines[12].starts_with("sort: held  left  waiting"), "{screen}");
    }

    #[test]
    fn small_terminals_are_drawn() {
        let mut model = model();
        for width in 1..130 {
            for height in 1..16 {
                screen(&model, width, height);
            }
        }
        screen(&model, 80, 11);
        model.on(Input::Down(9));
        assert!(screen(&model, 80, 11).contains("orders"), "the last row stays visible");
        let narrow = screen(&model, 80, 14);
        assert!(!narrow.contains("GRANTS") && narrow.contains("HOLDER"), "{narrow}");
    }

    #[test]
    fn problems_are_printed() {
        let mut model = Model::default();
        assert!(screen(&model, 80, 9).contains("connecting"));
        model.update(Err("can't connect".to_owned()));
        assert!(screen(&model, 80, 9).contains("can't connect; retrying"));
        let trouble = Some("throttled".to_owned());
        model.update(Ok(Sample { trouble, ..sample(1, 0, Vec::new()) }));
        let screen = screen(&model, 80, 12);
        assert!(screen.contains("no grants: throttled"), "{screen}");
        assert!(screen.contains("No lock has a holder or a waiter."), "{screen}");
    }

    #[test]
    fn control_characters_are_not_drawn() {
        let mut model = Model::default();
        let holder = Some("a\x1b[2J\nb".to_owned());
        model.update(Ok(sample(1, 0, vec![Lock { holder, ..lock("x\ny", 1, 0) }])));
        let screen = screen(&model, 120, 12);
        assert!(!screen.contains('\x1b'), "{screen}");
        assert_eq!(screen.lines().count(), 12);
    }

    #[test]
    fn frame_without_colors_has_none() {
        let mut terminal = Terminal::new(TestBackend::new(120, 12)).unwrap();
        let theme = Theme { is_colored: false };
        terminal.draw(|frame| draw(frame, &model(), CAPTION, theme)).unwrap();
        let buffer = terminal.backend().buffer();
        assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset));
    }
}
