"""What a broker tells a monitoring system."""
