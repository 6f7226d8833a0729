//! The terminal of `top`: its alternate screen, and its keys.

use std::{io, thread, time::Duration};

use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use tokio::sync::mpsc;

use super::model::{Input, Order};

/// Interval at which the reader of the keys checks whether the view has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Capacity of the queue of keys.
const KEYS_CAPACITY: usize = 16;

/// Rows of a page.
const PAGE: usize = 10;

/// Meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Ends the view.
    Quit,
    /// Changes the view.
    Input(Input),
    /// Any other key, or a change of the terminal's size.
    Other,
}

/// Alternate screen in raw mode. Dropping it restores the terminal.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::Receiver<io::Result<Key>>,
}

impl Screen {
    /// Takes over the terminal. A panic restores it too.
    pub(super) fn open() -> io::Result<Self> {
        let (sender, keys) = mpsc::channel(KEYS_CAPACITY);
        let terminal = ratatui::try_init()?;
        // Not a task of the runtime: its end would wait for a key.
        thread::spawn(move || read_keys(&sender));
        Ok(Self { terminal, keys })
    }

    /// Draws a frame.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render).map(drop)
    }

    /// Waits for the next key. Cancel-safe.
    pub(super) async fn next_key(&mut self) -> io::Result<Key> {
        // The reader ends after an error, which it sends.
        self.keys.recv().await.unwrap_or(Ok(Key::Quit))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}

fn read_keys(keys: &mpsc::Sender<io::Result<Key>>) {
    while !keys.is_closed() {
        let key = match event::poll(CHECK_INTERVAL) {
            Ok(false) => continue,
            Ok(true) => event::read().map(|event| key_of(&event)),
            Err(error) => Err(error),
        };
        let is_error = key.is_err();
        if keys.blocking_send(key).is_err() || is_error {
            return;
        }
    }
}

fn key_of(event: &Event) -> Key {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return Key::Other };
    if *kind == KeyEventKind::Release {
        return Key::Other;
    }
    let has_control = modifiers.contains(KeyModifiers::CONTROL);
    match code {
        KeyCode::Char('c' | 'C') if has_control => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char('r') => Key::Input(Input::Reverse),
        KeyCode::Up | KeyCode::Char('k') => Key::Input(Input::Up(1)),
        KeyCode::Down | KeyCode::Char('j') => Key::Input(Input::Down(1)),
        KeyCode::PageUp => Key::Input(Input::Up(PAGE)),
        KeyCode::PageDown => Key::Input(Input::Down(PAGE)),
        KeyCode::Home => Key::Input(Input::Up(usize::MAX)),
        KeyCode::End => Key::Input(Input::Down(usize::MAX)),
        KeyCode::Char(key) => {
            let order = Order::ALL.iter().find(|(_, known, _)| known == key);
            order.map_or(Key::Other, |(order, ..)| Key::Input(Input::Sort(*order)))
        }
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Key {
        key_of(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_have_their_meaning() {
        let plain = |code| key(code, KeyModifiers::NONE);
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Key::Quit);
        assert_eq!(plain(KeyCode::Char('q')), Key::Quit);
        assert_eq!(plain(KeyCode::Char('c')), Key::Other);
        assert_eq!(plain(KeyCode::Char('w')), Key::Input(Input::Sort(Order::Waiting)));
        assert_eq!(plain(KeyCode::PageDown), Key::Input(Input::Down(PAGE)));
        assert_eq!(key_of(&Event::Resize(80, 24)), Key::Other);
    }
}
