"""What a backend compiles, executes and transfers: observed in the script's process, read and reported outside of it."""
