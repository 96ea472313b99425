"""Which clips, and how often: motion statistics, prototypes, splits, the balanced sampler."""
