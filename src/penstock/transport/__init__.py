"""HTTP: an exchange without I/O (retries, timeouts, error responses), and the sync and async connections."""
