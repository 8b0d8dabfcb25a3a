"""The kernels themselves: torch functions, some with C code behind them."""
