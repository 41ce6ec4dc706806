"""Estimators that learn kernel machines from data."""
