"""The support analysis as one HTML page that needs no network."""
