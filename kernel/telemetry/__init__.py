"""What a service tells about itself: JSON logs, metrics and traces."""
