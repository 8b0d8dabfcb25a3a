"""What runs leave behind: folders, manifests, journals, pickles, and how they are read."""
