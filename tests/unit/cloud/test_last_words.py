"""What of a console goes into the reason of a failed order."""

from platform_server.cloud import last_words


def test_our_own_first_boot_speaks_before_the_system_does() -> None:
    shown = (
        "[  OK  ] Reached target multi-user.target\n"
        "[   8.1] python3[77]: enlist-first-boot: fetching\n"
        "enlist-first-boot: https://192.0.2.1:8446 cannot be reached: No route to host.\n"
        "machine login: \n"
    )
    told = last_words.told(shown)
    assert told == (
        " The console showed last: fetching | "
        "https://192.0.2.1:8446 cannot be reached: No route to host."
    )


def test_without_it_the_last_lines_stand() -> None:
    assert last_words.told("one\ntwo\n\nthree\nfour\n") == (
        " The console showed last: two | three | four"
    )


def test_a_console_without_words_adds_nothing() -> None:
    assert last_words.told("\n \n") == ""


def test_what_it_showed_is_printable_and_bounded() -> None:
    told = last_words.told("\x1b[31m" + "x" * 5000)
    assert "\x1b" not in told
    assert len(told) < 700
