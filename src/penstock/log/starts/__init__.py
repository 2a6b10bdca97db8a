"""The requests that start runs, stored with them, so that the same request again joins its run."""
