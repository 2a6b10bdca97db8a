"""Files with the settings of clients, in TOML, JSON (also with comments) and YAML, changed without losing anything."""
