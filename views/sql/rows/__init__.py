"""Row values and composite types."""
