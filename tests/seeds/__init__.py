"""The five documents that Penstock implements: each row of what their readers type or rely on is a test."""
