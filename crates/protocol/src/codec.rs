//! Buffers of messages. Each session keeps one buffer per direction, and its
//! messages are small.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Initial capacity of a buffer, in bytes. Larger messages grow it.
const INITIAL_BUFFER_BYTES: usize = 512;

/// Number of bytes after which a buffer is flushed to the transport.
const FLUSH_BYTES: usize = 32 * 1024;

/// Protobuf codec with small buffers.
pub(crate) struct SmallBuffers<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallBuffers<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallBuffers<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(INITIAL_BUFFER_BYTES, FLUSH_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(INITIAL_BUFFER_BYTES, FLUSH_BYTES))
    }
}
