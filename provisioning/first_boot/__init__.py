"""First-boot data: the text that makes a new machine a node, the same for every provider.

Not for: encoding it as a provider wants it (each driver does that, once), making the ticket (the
Platform signs it), or installing (`install.sh` does that, as it does for a person).
"""

from provisioning.first_boot.rendering import Form, Ticket, add_snippet, render
from provisioning.first_boot.snippets import Snippet, parse_snippet

__all__ = ["Form", "Snippet", "Ticket", "add_snippet", "parse_snippet", "render"]
