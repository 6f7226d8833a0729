//! Panics of tasks. The runtime swallows them, so a task that reaches an
//! unsupported call would silently disappear.

use std::{cell::Cell, panic, sync::Once};

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Counter of panics on this thread, which runs all hosts of a simulation.
pub(crate) struct Panics(u32);

impl Panics {
    /// Starts counting.
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

    /// Returns the number of panics.
    pub(crate) fn count(&self) -> u32 {
        COUNT.get() - self.0
    }
}
