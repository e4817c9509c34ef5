"""Messages that wait for a time: timer log, timer wheel, and how far both are (docs/formats/timer.md)."""
