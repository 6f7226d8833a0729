//! Numbers that authorize any process that knows them.

/// Defines a secret type: 128 random bits that are never printed.
#[macro_export]
macro_rules! secret {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Creates a secret from 128 random bits.
            #[must_use]
            pub const fn new(bits: u128) -> Self {
                Self(bits.to_be_bytes())
            }

            /// Decodes the wire format. `None` unless `bytes` has 16 bytes.
            #[must_use]
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// Encodes the wire format.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(REDACTED)"))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[allow(unreachable_pub, reason = "the macro defines public types")]
    mod defined {
        secret! {
            /// A secret.
            Handle
        }
    }
    use defined::Handle;

    #[test]
    fn debug_redacts_secret() {
        let handle = Handle::new(0x1234_5678);
        assert_eq!(Handle::from_bytes(&handle.to_bytes()), Some(handle));
        assert_eq!(Handle::from_bytes(b"short"), None);
        assert_eq!(format!("{handle:?}"), "Handle(REDACTED)");
    }
}
