"""The long tail through one adapter: libcloud drivers that carry first-boot data and a tag."""
