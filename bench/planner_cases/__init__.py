"""Pods and offers that the planner is measured on: real prices, real shapes, published packing problems."""
