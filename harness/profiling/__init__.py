"""Where the time of a training goes in each mode: traces of chosen steps, and tables that are made of them."""
