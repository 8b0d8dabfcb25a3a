"""An investigation in one archive, and back."""
