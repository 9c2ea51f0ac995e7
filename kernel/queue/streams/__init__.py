"""Ways to hand work out: each lane claims, renews, settles, retries, dead-letters and gives back."""
