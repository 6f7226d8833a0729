//! Conversion of reasons from and to the wire.

use leasehold_types::Reason;

use crate::v1;

macro_rules! reasons {
    ($($name:ident)*) => {
        /// Returns the reason that a message carries.
        #[must_use]
        pub const fn reason_from_wire(reason: v1::Reason) -> Reason {
            match reason {
                v1::Reason::Unspecified => Reason::Unknown,
                $(v1::Reason::$name => Reason::$name,)*
            }
        }

        /// Returns the reason as a message carries it. Reasons that only a client
        /// reports are unspecified.
        #[must_use]
        pub const fn reason_to_wire(reason: Reason) -> v1::Reason {
            match reason {
                $(Reason::$name => v1::Reason::$name,)*
                _ => v1::Reason::Unspecified,
            }
        }
    };
}

reasons! {
    Held TimedOut Canceled Invalid UnknownHandle ShuttingDown StoreUnavailable Recovering DataLoss
    Limit Expired Broken MaxHoldTime LeaseLost UnknownSession ProtocolVersion Protocol StepDown
    ResumedElsewhere
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_reason_survives_round_trip() {
        let wire = (1..).map_while(|number| v1::Reason::try_from(number).ok());
        let reasons: Vec<_> = wire.map(|wire| (wire, reason_from_wire(wire))).collect();
        assert!(reasons.len() > 10);
        for (wire, reason) in reasons {
            assert_ne!(reason, Reason::Unknown, "{wire:?}");
            assert_eq!(reason_to_wire(reason), wire);
        }
        assert_eq!(reason_from_wire(v1::Reason::Unspecified), Reason::Unknown);
    }
}
