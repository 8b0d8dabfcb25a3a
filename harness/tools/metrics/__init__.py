"""What a backend's work comes to."""
