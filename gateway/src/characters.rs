//! Characters in stored texts that a reader does not see.

/// Whether the character changes the direction of the text around it or begins a new line, so that the text seems to say
/// something else.
#[must_use]
pub const fn changes_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether the character is invisible, as those that change the direction are: `Default_Ignorable_Code_Point` of
/// Unicode 17 (<https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point>), and the marks of annotations.
#[must_use]
pub const fn is_invisible(c: char) -> bool {
    changes_direction(c)
        || matches!(c,
            '\u{ad}'
            | '\u{34f}'
            // Fillers of Hangul, and vowels of Khmer.
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            // Selectors of Mongolian.
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            // Marks of shorthand and of music.
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            // Tags and variation selectors.
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_does_not_see_is_invisible_and_letters_and_emoji_are_not() {
        for c in [
            '\u{61c}',
            '\u{115f}',
            '\u{180e}',
            '\u{200b}',
            '\u{202e}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{e0041}',
            '\u{e01ef}',
        ] {
            assert!(is_invisible(c), "{c:?}");
        }
        for c in [
            'a', 'é', '한', 'ក', 'ᠠ', '❤', '😀', ' ', '\u{301}', '\u{fffd}',
        ] {
            assert!(!is_invisible(c), "{c:?}");
        }
    }
}
