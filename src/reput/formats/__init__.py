"""Binary and JSON formats of a store: each format is encoded and decoded in one place (docs/formats)."""
