//! What a command runs under: a lock, or the leadership of an election.

use leasehold_client::{Error, Guard, Leadership, Loss, Risk, Token};

use leasehold_time::Moment;

/// A right that lasts until its deadline, which moves while it is kept alive.
pub(in crate::cli) trait Grant {
    /// Words before its name in a sentence.
    const KIND: &'static str;

    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn token(&self) -> Token;
    fn deadline(&self) -> Moment;
    fn is_valid(&self) -> bool;
    async fn lost(&self) -> Loss;
    async fn at_risk(&self) -> Risk;
    /// Waits until the daemon has confirmed it.
    async fn give_up(self) -> Result<(), Error>;
}

macro_rules! grant {
    ($kind:literal: $type:ident, given up by $give_up:ident) => {
        impl Grant for $type {
            const KIND: &'static str = $kind;

            fn name(&self) -> &str {
                Guard::name(self)
            }

            fn namespace(&self) -> &str {
                Guard::namespace(self)
            }

            fn token(&self) -> Token {
                Guard::token(self)
            }

            fn deadline(&self) -> Moment {
                Guard::deadline(self)
            }

            fn is_valid(&self) -> bool {
                Guard::is_valid(self)
            }

            async fn lost(&self) -> Loss {
                Guard::lost(self).await
            }

            async fn at_risk(&self) -> Risk {
                Guard::at_risk(self).await
            }

            async fn give_up(self) -> Result<(), Error> {
                self.$give_up().await
            }
        }
    };
}

grant!("lock": Guard, given up by release);
grant!("the leadership of": Leadership, given up by resign);
