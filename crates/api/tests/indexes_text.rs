//! The text form of index sets.

use windlass_api::indexes::{IndexSet, ParseError};

fn set(indexes: &[u32]) -> IndexSet {
    indexes.iter().copied().collect()
}

#[test]
fn a_run_of_two_prints_as_two_indexes_and_a_longer_one_as_an_interval() {
    for (indexes, text) in [
        (&[][..], ""),
        (&[0], "0"),
        (&[0, 1], "0,1"),
        (&[0, 1, 2], "0-2"),
        (&[1, 3, 4, 5, 7], "1,3-5,7"),
        (&[9, 10, 99, 100, 101], "9,10,99-101"),
        (&[4094, 4095, 4096, 4097], "4094-4097"),
        (&[4095, 4096], "4095,4096"),
        (&[4095, 8192], "4095,8192"),
        (&[2_147_483_647], "2147483647"),
    ] {
        assert_eq!(set(indexes).to_string(), text);
        assert_eq!(format!("{:?}", set(indexes)), format!("IndexSet({text})"));
    }
}

#[test]
fn the_lenient_parser_skips_what_is_broken_and_drops_what_is_out_of_range() {
    for (text, completions, want) in [
        ("", 10, ""),
        ("1,3-5,7", 10, "1,3-5,7"),
        ("0-1,2-3", 10, "0-3"),
        ("0,1,2", 10, "0-2"),
        ("+1,+3-+4", 10, "1,3,4"),
        ("007", 10, "7"),
        ("x,2", 10, "2"),
        ("2,,3", 10, "2,3"),
        ("1-x,3", 10, "3"),
        ("x-1,3", 10, "3"),
        ("1-,3", 10, "3"),
        ("-1,3", 10, "3"),
        (" 1,3", 10, "3"),
        ("1-3-9,5", 10, "1-3,5"),
        ("99999999999999999999,3", 10, "3"),
        ("1-99999999999999999999,3", 10, "3"),
        ("5-3,8", 10, "8"),
        ("100-3,8", 200, "8"),
        ("9000-3,8", 10_000, "8"),
        ("8,5000,9-20", 10_000, "8-20,5000"),
        ("3-3", 10, "3"),
        ("1,4-20,30", 10, "1,4-9"),
        ("1,4-99999999999,30", 10, "1,4-9"),
        ("1,10,2", 10, "1"),
        ("1,99999999999,2", 10, "1"),
        ("1,10-12,2", 10, "1"),
        ("9", 10, "9"),
        ("0-3", 0, ""),
        ("0-3", -1, ""),
        ("0-2147483646", i32::MAX, "0-2147483646"),
    ] {
        assert_eq!(IndexSet::parse_lenient(text, completions).to_string(), want, "{text:?} of {completions}");
    }
}

#[test]
fn the_strict_parser_takes_numbers_and_intervals_in_increasing_order() {
    for (text, completions, want) in [
        ("", 0, ""),
        ("", 10, ""),
        ("0", 1, "0"),
        ("1,3-5,7", 8, "1,3-5,7"),
        ("0-1,2-3", 10, "0-3"),
        ("0,1,2", 10, "0-2"),
        ("+1,+3-+4", 10, "1,3,4"),
        ("00000000000000000000007", 10, "7"),
        ("0-9999", 10_000, "0-9999"),
        ("0-4095,4096-8191", 10_000, "0-8191"),
    ] {
        assert_eq!(
            IndexSet::parse_strict(text, completions).map(|set| set.to_string()),
            Ok(want.to_owned()),
            "{text:?} of {completions}"
        );
    }
}

#[test]
fn the_strict_parser_says_what_is_wrong_as_the_api_server_does() {
    let parts =
        " violates the requirement that an index interval can have at most two parts separated by '-'";
    for (text, completions, want) in [
        ("1-2-3", 10, format!("the fragment \"1-2-3\"{parts}")),
        ("0,x-2-,", 10, format!("the fragment \"x-2-\"{parts}")),
        ("x", 10, "cannot convert string to integer for index: \"x\"".to_owned()),
        ("1,", 10, "cannot convert string to integer for index: \"\"".to_owned()),
        (",1", 10, "cannot convert string to integer for index: \"\"".to_owned()),
        ("-", 10, "cannot convert string to integer for index: \"\"".to_owned()),
        ("-1", 10, "cannot convert string to integer for index: \"\"".to_owned()),
        ("1-", 10, "cannot convert string to integer for index: \"\"".to_owned()),
        ("+", 10, "cannot convert string to integer for index: \"+\"".to_owned()),
        ("++1", 10, "cannot convert string to integer for index: \"++1\"".to_owned()),
        ("1-x", 10, "cannot convert string to integer for index: \"x\"".to_owned()),
        ("x-99", 10, "cannot convert string to integer for index: \"x\"".to_owned()),
        ("1, 2", 10, "cannot convert string to integer for index: \" 2\"".to_owned()),
        ("1_0", 100, "cannot convert string to integer for index: \"1_0\"".to_owned()),
        ("٣", 100, "cannot convert string to integer for index: \"٣\"".to_owned()),
        (
            "9223372036854775808",
            10,
            "cannot convert string to integer for index: \"9223372036854775808\"".to_owned(),
        ),
        ("9223372036854775807", 10, "too large index: \"9223372036854775807\"".to_owned()),
        ("10", 10, "too large index: \"10\"".to_owned()),
        ("10-x", 10, "too large index: \"10\"".to_owned()),
        ("3-10", 10, "too large index: \"10\"".to_owned()),
        ("0", 0, "too large index: \"0\"".to_owned()),
        ("0", -1, "too large index: \"0\"".to_owned()),
        ("5-3", 10, "non-increasing order, previous: 5, current: 3".to_owned()),
        ("3-3", 10, "non-increasing order, previous: 3, current: 3".to_owned()),
        ("1,1", 10, "non-increasing order, previous: 1, current: 1".to_owned()),
        ("3-5,5", 10, "non-increasing order, previous: 5, current: 5".to_owned()),
        ("3-5,4-7", 10, "non-increasing order, previous: 5, current: 4".to_owned()),
    ] {
        let error = IndexSet::parse_strict(text, completions).expect_err(text);
        assert_eq!(error.to_string(), want, "{text:?} of {completions}");
    }
}

#[test]
fn quoted_pieces_are_escaped_as_go_escapes_them() {
    let piece = "\"\\'\n\r\t\u{7}\u{8}\u{b}\u{c}\u{1}\u{7f}é\u{200b}\u{e0001}";
    assert_eq!(
        ParseError::NotANumber(piece.to_owned()).to_string(),
        "cannot convert string to integer for index: \"\\\"\\\\'\\n\\r\\t\\a\\b\\v\\f\\x01\\x7fé\\u200b\\U000e0001\""
    );
}

#[test]
fn printing_and_strict_parsing_are_inverse_for_many_alternating_indexes() {
    let alternating: IndexSet = (0..100_000).map(|index| index * 2).collect();
    let text = alternating.to_string();
    assert!(text.starts_with("0,2,4,6,8,10,12,"));
    assert_eq!(IndexSet::parse_strict(&text, 200_000), Ok(alternating.clone()));
    assert_eq!(IndexSet::parse_lenient(&text, 200_000), alternating);
}
