//! What can be a key or a value of a record that is sent.

use std::borrow::Cow;

/// Bytes, text, or nothing.
///
/// ```
/// use lockgate::AsField;
///
/// assert_eq!("text".as_field(), Some(&b"text"[..]));
/// assert_eq!([1u8, 2].as_field(), Some(&[1u8, 2][..]));
/// assert_eq!(Some("text").as_field(), Some(&b"text"[..]));
/// assert_eq!(None::<&str>.as_field(), None);
/// assert_eq!(().as_field(), None); // () is the shortest way to say that a key or value is missing
/// ```
pub trait AsField {
    /// The bytes, or `None` where the key or value is missing.
    fn as_field(&self) -> Option<&[u8]>;
}

impl AsField for () {
    fn as_field(&self) -> Option<&[u8]> {
        None
    }
}

impl<T: AsField> AsField for Option<T> {
    #[inline]
    fn as_field(&self) -> Option<&[u8]> {
        self.as_ref().and_then(AsField::as_field)
    }
}

impl<T: AsField + ?Sized> AsField for &T {
    #[inline]
    fn as_field(&self) -> Option<&[u8]> {
        (**self).as_field()
    }
}

macro_rules! bytes_are_fields {
    ($($type:ty: $bytes:ident),*) => {$(
        impl AsField for $type {
            #[inline]
            fn as_field(&self) -> Option<&[u8]> {
                Some(self.$bytes())
            }
        }
    )*};
}

bytes_are_fields!([u8]: as_ref, Vec<u8>: as_slice, Box<[u8]>: as_ref, Cow<'_, [u8]>: as_ref);
bytes_are_fields!(str: as_bytes, String: as_bytes, Cow<'_, str>: as_bytes);

impl<const N: usize> AsField for [u8; N] {
    #[inline]
    fn as_field(&self) -> Option<&[u8]> {
        Some(self)
    }
}
