"""Texts that people, scripts and enemies write where a word, a number or a path is expected."""

from __future__ import annotations

from hypothesis import strategies as st

NUMBERS = ["0", "1", "2", "3", "0.5", "0.1", "-1", "1e-3", "10", "1.0", "100"]
ODD_NUMBERS = [
    "nan", "inf", "-inf", "1e400", "-1e400", "1e-400", "１２", "1_000", "0x10", "1e", ".", "-", "+", "--1", "9" * 30,
    "-" + "9" * 30, "2147483648", "4294967296", "9223372036854775808", "1000000000", "1,5", "1 000", "½", "٣", "1e309",
    "-0", "00", "1.", ".5", "3.0", "true", "True", "none", "None", "NULL",
]  # fmt: skip
ODD_WORDS = [
    "", " ", "\t", ":", ",", "=", "+", ";", "::", "a:b:c", "a=b", ":=", "=1", "'", '"', "'a", '"a"', "''", "[/b]",
    "[bold]x", "[", "]", "{}", "{0}", "%s", "%", "$HOME", "`x`", "../..", "/", "/dev/null", "~", "λ", "é", "\udcff",
    "\x1b[31m", "\u202e", "\x07", "a\nb", "x" * 5000, "*", "?", "*.csv", "none", "auto", "-", "--", "=cmd|x",
    "<script>",
    "👩‍🔬", "null", "self", "__class__", "__init__", "os.system", "a/b/c.csv", "t.csv", "t.parquet", "t.npz", ".csv",
]  # fmt: skip

numbers = st.sampled_from(NUMBERS) | st.sampled_from(ODD_NUMBERS)
words = st.sampled_from(ODD_WORDS) | st.text(max_size=8).map(lambda text: text.replace("\0", ""))
values = st.one_of(
    numbers,
    words,
    st.lists(numbers, min_size=1, max_size=3).map("+".join),
    st.lists(numbers, min_size=1, max_size=3).map(",".join),
)
