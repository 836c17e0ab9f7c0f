//! Quantities: reading, the canonical text, and arithmetic.

use windlass_api::quantity::{Error, Quantity};

fn quantity(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

#[test]
fn quantities_are_printed_in_the_canonical_form_of_kubernetes() {
    for (text, canonical) in CANONICAL {
        assert_eq!(quantity(text).to_string(), *canonical, "{text}");
    }
}

#[test]
fn a_canonical_form_is_read_as_the_same_amount_and_stays_as_it_is() {
    for (text, canonical) in CANONICAL {
        assert_eq!(quantity(canonical), quantity(text), "{text}");
        assert_eq!(quantity(canonical).to_string(), *canonical, "{text}");
    }
}

#[test]
fn a_spelling_that_kubernetes_keeps_is_made_canonical_here() {
    for (text, canonical) in [("1E3", "1e3"), ("+5m", "5m"), ("5.", "5"), ("1e+3", "1e3")] {
        assert_eq!(quantity(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn values_are_rounded_up() {
    for (text, value, milli) in VALUES {
        assert_eq!((quantity(text).value(), quantity(text).milli_value()), (*value, *milli), "{text}");
    }
}

#[test]
fn values_beyond_64_bits_are_cut() {
    assert_eq!((quantity("10E").value(), quantity("-10E").value()), (i64::MAX, i64::MIN));
    assert_eq!((quantity("1Ei").milli_value(), quantity("-1Ei").milli_value()), (i64::MAX, i64::MIN));
}

#[test]
fn texts_that_are_no_quantities_are_refused() {
    for (text, error) in REFUSED {
        assert_eq!(text.parse::<Quantity>(), Err(*error), "{text}");
    }
    assert_eq!(
        Error::Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    assert_eq!(Error::Suffix.to_string(), "unable to parse quantity's suffix");
    assert_eq!(Error::Numeric.to_string(), "unable to parse numeric part of quantity");
}

#[test]
fn amounts_beyond_our_range_are_refused_and_not_cut() {
    for text in ["1e30", "1e99", "1000000000000E", "999999999999999999999999999999"] {
        assert_eq!(text.parse::<Quantity>(), Err(Error::Numeric), "{text}");
    }
    assert_eq!(quantity("1e29").to_string(), "100e27");
    assert_eq!(quantity("1e-99").to_string(), "1e-9");
}

#[test]
fn sums_and_differences_are_exact_and_keep_the_format_of_the_first() {
    let table = [
        ("1Gi", "512Mi", "1536Mi", "512Mi"),
        ("100m", "1", "1100m", "-900m"),
        ("0", "1Ki", "1Ki", "-1Ki"),
        ("1Ki", "0", "1Ki", "1Ki"),
        ("0", "1e3", "1e3", "-1e3"),
        ("1e3", "1", "1001", "999"),
        ("1Ki", "1n", "1024000000001n", "1023999999999n"),
    ];
    for (a, b, sum, difference) in table {
        assert_eq!((quantity(a) + quantity(b)).to_string(), sum, "{a} + {b}");
        assert_eq!((quantity(a) - quantity(b)).to_string(), difference, "{a} - {b}");
    }
}

#[test]
fn amounts_are_compared_whatever_their_format() {
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert!(quantity("1k") < quantity("1Ki") && quantity("-1") < Quantity::ZERO);
    assert_eq!([quantity("2"), quantity("1500m"), quantity("1Ki")].iter().max(), Some(&quantity("1024")));
    assert_eq!(Quantity::from_value(5), quantity("5"));
    assert_eq!(Quantity::from_milli(1500), quantity("1.5"));
    assert!(Quantity::ZERO.is_zero() && !quantity("1n").is_zero());
    assert!(quantity("-1n").is_negative() && !Quantity::ZERO.is_negative());
    assert!(quantity("1Ki").is_integer() && !quantity("1m").is_integer());
}

#[test]
fn amounts_are_rounded_up_to_thousandths() {
    for (text, rounded) in
        [("1n", "1m"), ("-1n", "-1m"), ("1500u", "2m"), ("5m", "5m"), ("1.0001Ki", "1024103m")]
    {
        assert_eq!(quantity(text).round_up_to_milli().to_string(), rounded, "{text}");
    }
}

/// A text and its canonical form.
const CANONICAL: &[(&str, &str)] = &[
    ("0", "0"),
    ("1", "1"),
    ("1500m", "1500m"),
    ("1.5Gi", "1536Mi"),
    ("0.5", "500m"),
    ("1e3", "1e3"),
    ("128974848", "128974848"),
    ("129e6", "129e6"),
    ("129M", "129M"),
    ("123Mi", "123Mi"),
    ("1Gi", "1Gi"),
    ("1024", "1024"),
    ("1024Ki", "1Mi"),
    ("1023Ki", "1023Ki"),
    ("1000m", "1"),
    ("1k", "1k"),
    ("1000", "1k"),
    ("1001", "1001"),
    ("0.1n", "1n"),
    ("0.0000000001", "1n"),
    ("-0.0000000001", "-1n"),
    ("1.0", "1"),
    ("100m", "100m"),
    ("0.001", "1m"),
    ("1e-3", "1e-3"),
    ("1e-10", "1e-9"),
    ("12e6", "12e6"),
    ("12e7", "120e6"),
    ("-1500m", "-1500m"),
    ("-1.5Gi", "-1536Mi"),
    ("0.5Ki", "512"),
    ("0.001Ki", "1024m"),
    ("1.0001Ki", "1024102400u"),
    ("1Ei", "1Ei"),
    ("8Ei", "9223372036854775807"),
    ("9Ei", "9223372036854775807"),
    ("100Ei", "9223372036854775807"),
    ("-100Ei", "-9223372036854775807"),
    ("1E", "1E"),
    ("10E", "10E"),
    ("123456789012345678901", "123456789012345678901"),
    ("0.123456789123", "123456790n"),
    ("-", "0"),
    (".", "0"),
    ("Ki", "0"),
    ("00", "0"),
    ("1u", "1u"),
    ("1500u", "1500u"),
    ("999999n", "999999n"),
    ("1000000n", "1m"),
    ("2.5Mi", "2560Ki"),
    ("1.123456789123456789Ki", "1150419752063n"),
    ("18446744073709551616", "18446744073709551616"),
    ("1e18", "1e18"),
    ("1000e0", "1e3"),
    ("0e5", "0"),
    ("0Mi", "0"),
    ("1024Ei", "9223372036854775807"),
    ("1P", "1P"),
    ("1Pi", "1Pi"),
    ("1T", "1T"),
    ("1Ti", "1Ti"),
    ("1G", "1G"),
    ("9223372036854775807", "9223372036854775807"),
    ("9223372036854775807Ki", "9223372036854775807"),
    ("0.0009", "900u"),
    ("99999999999999999999n", "99999999999999999999n"),
];

/// A text, its value in units and in thousandths.
const VALUES: &[(&str, i64, i64)] = &[
    ("1500m", 2, 1500),
    ("0.5", 1, 500),
    ("1.5Gi", 1610612736, 1610612736000),
    ("-1500m", -2, -1500),
    ("0.1n", 1, 1),
    ("1024Ki", 1048576, 1048576000),
    ("1e-10", 1, 1),
    ("0.123456789123", 1, 124),
    ("1500u", 1, 2),
    ("99999999999999999999n", 100000000000, 100000000000000),
    ("1Pi", 1125899906842624, 1125899906842624000),
    ("0", 0, 0),
];

/// A text, and why it is no quantity.
const REFUSED: &[(&str, Error)] = &[
    ("", Error::Format),
    ("x", Error::Format),
    ("1 ", Error::Format),
    ("1x", Error::Format),
    ("1ii", Error::Suffix),
    ("1e", Error::Suffix),
    ("1Ki3", Error::Suffix),
    ("1.2.3", Error::Format),
    ("--1", Error::Suffix),
    ("1e99999999999999999999", Error::Suffix),
    ("1K", Error::Suffix),
    ("1mm", Error::Suffix),
    ("e3x", Error::Format),
    (" 1", Error::Format),
    ("1,5", Error::Format),
];
