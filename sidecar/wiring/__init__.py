"""The one composition root: it names and connects the concrete parts."""
