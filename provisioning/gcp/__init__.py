"""Google Compute Engine, spoken to over REST; only the credentials are google-auth's."""
