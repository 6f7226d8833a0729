//! Panics of tasks. The runtime keeps them to itself, so a task that met
//! something that is not simulated would just be gone.

use std::{cell::Cell, panic, sync::Once};

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// The panics on this thread, on which all hosts of a simulation run.
pub(crate) struct Panics(u32);

impl Panics {
    /// Counts from here on.
    pub(crate) fn watch() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                _ = COUNT.try_with(|count| count.set(count.get() + 1));
                before(panic);
            }));
        });
        Self(COUNT.get())
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u32 {
        COUNT.get() - self.0
    }
}
