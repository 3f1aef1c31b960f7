"""First-boot data: the text that makes a new machine a node, the same for every provider.

Not for: encoding it as a provider wants it (each driver does that, once), making the ticket (the
Platform signs it), or installing (`install.sh` does that, as it does for a person).
"""

from provisioning.first_boot.rendering import Form, Ticket, render
from provisioning.first_boot.snippets import Snippet, parse_snippet

__all__ = ["Form", "Snippet", "Ticket", "parse_snippet", "render"]
