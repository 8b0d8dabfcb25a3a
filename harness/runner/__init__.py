"""The processes that scripts run in: launched, watched, ended."""
