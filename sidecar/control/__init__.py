"""What is asked of a sidecar while it runs: plan and apply a changed folder of views, answer a query, stream a view."""
