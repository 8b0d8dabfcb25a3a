"""The difference of two runs' graphs as one HTML page that needs no network."""
