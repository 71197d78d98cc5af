"""The verdict on a run, and the sparkline that goes with it."""
