"""Views that ask for the most work a change can make, beside ordinary ones."""
