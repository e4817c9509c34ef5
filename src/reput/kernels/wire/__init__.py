"""Frames of the remoting protocol -> records and answers, all of one read in one call."""
