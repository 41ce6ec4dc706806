"""The standing benchmark: svelto beside what a user would pick instead, on the data sets of the papers."""
