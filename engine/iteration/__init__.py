"""Loops: rounds above the epoch, and the operators that work inside of a scope that iterates."""
