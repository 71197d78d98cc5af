"""`trmon replay`: reads recordings and prints what they show."""
