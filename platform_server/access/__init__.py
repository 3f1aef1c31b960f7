"""Who is calling, and what he may do. Not what a route does: that is endpoints'."""
