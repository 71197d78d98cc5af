"""The risk of a collapse, as diagnoses and the fleet state it."""
