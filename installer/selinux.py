"""Gives new files the labels that SELinux's policy has for their places, where it is there.

Files that were unpacked in one place and renamed to another keep the label of the first, and a
service may then not run them. Known limit: not proved on a machine with SELinux (docs/install.md).
"""

from installer import layout as layout_kit
from installer import programs

_SECONDS = 120.0


def relabel(layout: layout_kit.Layout) -> None:
    """Does nothing where SELinux is off or not there. Raises `ProgramFailed`."""
    asked, mend = programs.find("selinuxenabled"), programs.find("restorecon")
    if layout.units is None or asked is None or mend is None:
        return
    if programs.ask([asked]).returncode != 0:
        return
    places = [layout.prefix, layout.data_dir, layout.link]
    present = [str(place) for place in places if place.exists()]
    programs.run([mend, "-R", "-F", *present], seconds=_SECONDS)
