"""What a script that knows nothing of numdrift is given to run in a mode, and what was understood of it."""
