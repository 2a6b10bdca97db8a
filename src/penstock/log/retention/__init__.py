"""How long finished runs are kept, and runs as files: exported, archived and imported."""
