"""Which operators a backend supports, as a report."""
