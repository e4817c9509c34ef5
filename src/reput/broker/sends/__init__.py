"""Requests that send messages: plain ones, replies, and those that a consumer sends back."""
