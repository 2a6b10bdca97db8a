"""Real clients of a served agent: `make test-clients` runs these tests, which download the clients from npm."""
