"""What systemd says of a service, and what that means for a change of release."""

import pytest

from installer import changeover, units

SAID: dict[str, tuple[str, tuple[str, str]]] = {
    "it serves": (
        "ActiveState=active\nSubState=running\nMainPID=7\nJob=\n",
        ("active", "7"),
    ),
    "a restart was asked for and has not begun": (
        "ActiveState=active\nSubState=running\nMainPID=7\nJob=412\n",
        ("activating", ""),
    ),
    "it has stopped and is to start again": (
        "ActiveState=inactive\nSubState=dead\nMainPID=0\nJob=412\n",
        ("activating", ""),
    ),
    "it died and waits for its next start": (
        "ActiveState=activating\nSubState=auto-restart\nMainPID=0\nJob=0\n",
        ("failed", ""),
    ),
    "it died for good": (
        "ActiveState=failed\nSubState=failed\nMainPID=0\nJob=0\n",
        ("failed", "0"),
    ),
    "it is stopping": (
        "ActiveState=deactivating\nSubState=stop-sigterm\nMainPID=7\nJob=0\n",
        ("deactivating", "7"),
    ),
}


@pytest.mark.parametrize("name", sorted(SAID))
def test_a_state_is_read_when(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said, meant = SAID[name]
    monkeypatch.setattr(units, "systemctl", lambda *_words, **_how: said)
    assert changeover.Systemd().state("enlist-agent.service") == meant
