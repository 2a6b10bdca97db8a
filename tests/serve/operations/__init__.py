"""Operations of a server: metrics, probes, and the page of an operator."""
