"""What each alternative of a state edge would cost, as a sum of named terms, and which is cheapest. Pure but the probes."""
