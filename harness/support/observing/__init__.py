"""The part of the support analysis that is in the script's process: it asks the backend and writes what that says."""
