"""How far two runs are apart: distances between losses, parameters and single numbers."""
