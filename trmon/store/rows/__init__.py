"""Convert domain values to table rows and back."""
