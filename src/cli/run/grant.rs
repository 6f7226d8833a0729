//! Grant under which a command runs: a lock, or the leadership of an election.

use leasehold_client::{Error, Guard, Leadership, Loss, Risk, Token};

use leasehold_time::Moment;

/// Right with a deadline, which keep-alives move.
pub(in crate::cli) trait Grant {
    /// Words before the name in a sentence.
    const KIND: &'static str;

    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn token(&self) -> Token;
    fn deadline(&self) -> Moment;
    fn is_valid(&self) -> bool;
    async fn lost(&self) -> Loss;
    async fn at_risk(&self) -> Risk;
    /// Releases the grant, and waits for the daemon's response.
    async fn release(self) -> Result<(), Error>;
}

macro_rules! grant {
    ($kind:literal: $type:ident, released by $release:ident) => {
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

            async fn release(self) -> Result<(), Error> {
                // The inherent method of the type.
                <$type>::$release(self).await
            }
        }
    };
}

grant!("lock": Guard, released by release);
grant!("the leadership of": Leadership, released by resign);
